#include "store/people.h"

#include "base/mem.h"

#include <errno.h>

/* ---- people ---- */

#define PERSON_COLUMNS "id, account_id, login, name, password, created_at, seen_at"

static void read_person(struct query *q, struct person *p)
{
        *p = (struct person){ .created_at = col_int(q, 5), .seen_at = col_int(q, 6) };
        col_copy(q, 0, p->id, sizeof p->id);
        col_copy(q, 1, p->account, sizeof p->account);
        col_copy(q, 2, p->login, sizeof p->login);
        col_copy(q, 3, p->name, sizeof p->name);
        col_copy(q, 4, p->password, sizeof p->password);
}

int64_t people_count(struct db *db)
{
        struct query q;

        query(db, &q, "SELECT count(*) FROM people");
        return query_number(&q);
}

int people_insert(struct db *db, const struct person *p, struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO people (id, account_id, login, name, password, created_at) VALUES (?,?,?,?,?,?)");
        query_str(&q, p->id);
        query_str(&q, p->account);
        query_str(&q, p->login);
        query_str(&q, p->name);
        query_str(&q, p->password);
        query_int(&q, p->created_at);
        return query_run(&q, e);
}

static int one_person(struct query *q, struct person *ret)
{
        int r = -ENOENT;

        if (query_row(q)) {
                read_person(q, ret);
                r = 0;
        }
        int end = query_end(q, NULL);
        return end < 0 ? end : r;
}

int people_by_login(struct db *db, const char *login, struct person *ret)
{
        struct query q;

        query(db, &q, "SELECT " PERSON_COLUMNS " FROM people WHERE login = ?");
        query_str(&q, login);
        return one_person(&q, ret);
}

int people_by_id(struct db *db, const char *id, struct person *ret)
{
        struct query q;

        query(db, &q, "SELECT " PERSON_COLUMNS " FROM people WHERE id = ?");
        query_str(&q, id);
        return one_person(&q, ret);
}

int people_set_password(struct db *db, const char *id, const char *password)
{
        struct query q;

        query(db, &q, "UPDATE people SET password = ? WHERE id = ?");
        query_str(&q, password);
        query_str(&q, id);
        return query_change(db, &q);
}

int people_seen(struct db *db, const char *id, int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE people SET seen_at = ? WHERE id = ?");
        query_int(&q, now);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int people_each(struct db *db, const char *account, int (*fn)(const struct person *p, void *arg), void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q,
              "SELECT " PERSON_COLUMNS " FROM people WHERE ?1 IS NULL OR account_id = ?1 ORDER BY created_at, id");
        query_str(&q, account);
        while (r == 0 && query_row(&q)) {
                struct person p;

                read_person(&q, &p);
                r = fn(&p, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int people_delete(struct db *db, const char *account, const char *id, struct err *e)
{
        struct query q;

        query(db, &q, "DELETE FROM people WHERE id = ?1 AND (?2 IS NULL OR account_id = ?2)");
        query_str(&q, id);
        query_str(&q, account);
        int r = query_run(&q, e);
        if (r < 0)
                return r;
        return query_changes(db) > 0 ? 0 : err_set(e, -ENOENT, "there is no such person");
}

/* ---- invitations ---- */

static void read_invite(struct query *q, struct invite *i)
{
        *i = (struct invite){ .first = col_int(q, 3) != 0, .created_at = col_int(q, 4), .expires_at = col_int(q, 5) };
        col_copy(q, 0, i->id, sizeof i->id);
        col_copy(q, 1, i->account, sizeof i->account);
        col_copy(q, 2, i->note, sizeof i->note);
}

int invites_insert(struct db *db, const unsigned char hash[32], const struct invite *i, const char *invited_by,
                   struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO invites (hash, id, account_id, first, note, invited_by, created_at, expires_at) VALUES "
              "(?,?,?,?,?,?,?,?)");
        query_blob(&q, hash, 32);
        query_str(&q, i->id);
        query_str(&q, i->account);
        query_int(&q, i->first);
        query_str(&q, i->note);
        query_str(&q, invited_by);
        query_int(&q, i->created_at);
        query_int(&q, i->expires_at);
        return query_run(&q, e);
}

int invites_find(struct db *db, const unsigned char hash[32], int64_t now, struct invite *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q,
              "SELECT id, account_id, note, first, created_at, expires_at FROM invites WHERE hash = ? AND expires_at > "
              "?");
        query_blob(&q, hash, 32);
        query_int(&q, now);
        if (query_row(&q)) {
                read_invite(&q, ret);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int invites_delete(struct db *db, const char *account, const char *id)
{
        struct query q;

        query(db, &q, "DELETE FROM invites WHERE id = ? AND account_id = ?");
        query_str(&q, id);
        query_str(&q, account);
        return query_change(db, &q);
}

int invites_delete_first(struct db *db)
{
        struct query q;

        query(db, &q, "DELETE FROM invites WHERE first = 1");
        return query_run(&q, NULL);
}

int invites_each(struct db *db, const char *account, int64_t now, int (*fn)(const struct invite *i, void *arg),
                 void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q,
              "SELECT id, account_id, note, first, created_at, expires_at FROM invites WHERE account_id = ? AND "
              "expires_at > ?"
              " ORDER BY created_at, id");
        query_str(&q, account);
        query_int(&q, now);
        while (r == 0 && query_row(&q)) {
                struct invite i;

                read_invite(&q, &i);
                r = fn(&i, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

/* ---- passkeys ---- */

#define PASSKEY_COLUMNS "id, person_id, credential, public_key, sign_count, rp_id, name, created_at, used_at"

static int copy_blob(struct query *q, int i, unsigned char *out, size_t max, size_t *ret_len)
{
        size_t n;
        const void *p = col_blob(q, i, &n);

        if (n > max)
                return -EIO;
        if (n)
                memcpy(out, p, n);
        *ret_len = n;
        return 0;
}

static int read_passkey(struct query *q, struct passkey *k)
{
        *k = (struct passkey){ .sign_count = col_int(q, 4), .created_at = col_int(q, 7), .used_at = col_int(q, 8) };
        col_copy(q, 0, k->id, sizeof k->id);
        col_copy(q, 1, k->person, sizeof k->person);
        col_copy(q, 5, k->rp_id, sizeof k->rp_id);
        col_copy(q, 6, k->name, sizeof k->name);
        int r = copy_blob(q, 2, k->credential, sizeof k->credential, &k->credential_len);
        return r < 0 ? r : copy_blob(q, 3, k->public_key, sizeof k->public_key, &k->public_key_len);
}

int passkeys_insert(struct db *db, const struct passkey *k, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO passkeys (id, person_id, credential, public_key, sign_count, rp_id, name, created_at) "
              "VALUES (?,?,?,?,?,?,?,?)");
        query_str(&q, k->id);
        query_str(&q, k->person);
        query_blob(&q, k->credential, k->credential_len);
        query_blob(&q, k->public_key, k->public_key_len);
        query_int(&q, k->sign_count);
        query_str(&q, k->rp_id);
        query_str(&q, k->name);
        query_int(&q, k->created_at);
        return query_run(&q, e);
}

int passkeys_find(struct db *db, const void *credential, size_t n, struct passkey *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, "SELECT " PASSKEY_COLUMNS " FROM passkeys WHERE credential = ?");
        query_blob(&q, credential, n);
        if (query_row(&q))
                r = read_passkey(&q, ret);
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int passkeys_used(struct db *db, const char *id, int64_t sign_count, int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE passkeys SET sign_count = ?, used_at = ? WHERE id = ?");
        query_int(&q, sign_count);
        query_int(&q, now);
        query_str(&q, id);
        return query_change(db, &q);
}

int passkeys_each(struct db *db, const char *person, int (*fn)(const struct passkey *k, void *arg), void *arg)
{
        _cleanup_free_ struct passkey *k = xmalloc(sizeof *k);
        struct query q;
        int r = 0;

        query(db, &q, "SELECT " PASSKEY_COLUMNS " FROM passkeys WHERE person_id = ? ORDER BY created_at, id");
        query_str(&q, person);
        while (r == 0 && query_row(&q)) {
                r = read_passkey(&q, k);
                if (r == 0)
                        r = fn(k, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int passkeys_delete(struct db *db, const char *person, const char *id)
{
        struct query q;

        query(db, &q, "DELETE FROM passkeys WHERE id = ? AND person_id = ?");
        query_str(&q, id);
        query_str(&q, person);
        return query_change(db, &q);
}

/* ---- sign-ins ---- */

#define LOGIN_COLUMNS "id, person_id, address, agent, created_at, used_at, expires_at"

static void read_login(struct query *q, struct login *l)
{
        *l = (struct login){ .created_at = col_int(q, 4), .used_at = col_int(q, 5), .expires_at = col_int(q, 6) };
        col_copy(q, 0, l->id, sizeof l->id);
        col_copy(q, 1, l->person, sizeof l->person);
        col_copy(q, 2, l->address, sizeof l->address);
        col_copy(q, 3, l->agent, sizeof l->agent);
}

int logins_insert(struct db *db, const unsigned char hash[32], const struct login *l, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO logins (hash, id, person_id, address, agent, created_at, used_at, expires_at) VALUES "
              "(?,?,?,?,?,?,?,?)");
        query_blob(&q, hash, 32);
        query_str(&q, l->id);
        query_str(&q, l->person);
        query_str(&q, l->address);
        query_str(&q, l->agent);
        query_int(&q, l->created_at);
        query_int(&q, l->used_at);
        query_int(&q, l->expires_at);
        return query_run(&q, e);
}

int logins_find(struct db *db, const unsigned char hash[32], int64_t now, struct login *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, "SELECT " LOGIN_COLUMNS " FROM logins WHERE hash = ? AND expires_at > ?");
        query_blob(&q, hash, 32);
        query_int(&q, now);
        if (query_row(&q)) {
                read_login(&q, ret);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int logins_touch(struct db *db, const char *id, int64_t used_at, int64_t expires_at)
{
        struct query q;

        query(db, &q, "UPDATE logins SET used_at = ?, expires_at = ? WHERE id = ?");
        query_int(&q, used_at);
        query_int(&q, expires_at);
        query_str(&q, id);
        return query_change(db, &q);
}

int logins_each(struct db *db, const char *person, int64_t now, int (*fn)(const struct login *l, void *arg), void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q,
              "SELECT " LOGIN_COLUMNS " FROM logins WHERE person_id = ? AND expires_at > ? ORDER BY used_at DESC, id");
        query_str(&q, person);
        query_int(&q, now);
        while (r == 0 && query_row(&q)) {
                struct login l;

                read_login(&q, &l);
                r = fn(&l, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int logins_delete(struct db *db, const char *person, const char *id)
{
        struct query q;

        query(db, &q, "DELETE FROM logins WHERE id = ? AND person_id = ?");
        query_str(&q, id);
        query_str(&q, person);
        return query_change(db, &q);
}

int logins_delete_others(struct db *db, const char *person, const char *keep_id)
{
        struct query q;

        query(db, &q, "DELETE FROM logins WHERE person_id = ? AND id <> ?");
        query_str(&q, person);
        query_str(&q, keep_id);
        return query_run(&q, NULL);
}

/* ---- forms, and what is over ---- */

int forms_use(struct db *db, const unsigned char nonce[16], int64_t expires_at)
{
        struct query q;

        query(db, &q, "INSERT INTO used_forms (nonce, expires_at) VALUES (?,?)");
        query_blob(&q, nonce, 16);
        query_int(&q, expires_at);
        return query_run(&q, NULL);
}

int people_trim(struct db *db, int64_t now)
{
        static const char *const statements[] = {
                "DELETE FROM invites WHERE expires_at <= ?",
                "DELETE FROM logins WHERE expires_at <= ?",
                "DELETE FROM used_forms WHERE expires_at <= ?",
        };
        int r = 0;

        for (size_t i = 0; r == 0 && i < ARRAY_LEN(statements); i++) {
                struct query q;

                query(db, &q, statements[i]);
                query_int(&q, now);
                r = query_run(&q, NULL);
        }
        return r;
}
