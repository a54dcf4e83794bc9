#include "store/secrets.h"

#include "base/mem.h"

#include <errno.h>

int secrets_put(struct db *db, const char *account, const char *name, const void *sealed, size_t n, int64_t now,
                struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO secrets (account_id, name, sealed, created_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?4)"
              " ON CONFLICT (account_id, name) DO UPDATE SET sealed = ?3, changed_at = ?4");
        query_str(&q, account);
        query_str(&q, name);
        query_blob(&q, sealed, n);
        query_int(&q, now);
        return query_run(&q, e);
}

int secrets_delete(struct db *db, const char *account, const char *name)
{
        struct query q;

        query(db, &q, "DELETE FROM secrets WHERE account_id = ? AND name = ?");
        query_str(&q, account);
        query_str(&q, name);
        return query_change(db, &q);
}

#define ROW_COLUMNS "name, created_at, changed_at, used_at"

static void read_row(struct query *q, struct secret_row *s)
{
        *s = (struct secret_row){ .created_at = col_int(q, 1), .changed_at = col_int(q, 2), .used_at = col_int(q, 3) };
        col_copy(q, 0, s->name, sizeof s->name);
}

int secrets_get(struct db *db, const char *account, const char *name, struct secret_row *ret, struct buf *sealed)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, "SELECT " ROW_COLUMNS ", sealed FROM secrets WHERE account_id = ? AND name = ?");
        query_str(&q, account);
        query_str(&q, name);
        if (query_row(&q)) {
                size_t n;
                const void *p = col_blob(&q, 4, &n);

                read_row(&q, ret);
                r = sealed ? buf_add(sealed, p, n) : 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int secrets_each(struct db *db, const char *account, int (*fn)(const struct secret_row *s, void *arg), void *arg)
{
        struct secret_row row;
        struct query q;
        int stop = 0;

        query(db, &q, "SELECT " ROW_COLUMNS " FROM secrets WHERE account_id = ? ORDER BY name");
        query_str(&q, account);
        while (stop == 0 && query_row(&q)) {
                read_row(&q, &row);
                stop = fn(&row, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : stop;
}

int64_t secrets_count(struct db *db, const char *account)
{
        struct query q;

        query(db, &q, "SELECT count(*) FROM secrets WHERE account_id = ?");
        query_str(&q, account);
        return query_number(&q);
}

int secrets_used(struct db *db, const char *account, const char *name, int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE secrets SET used_at = ? WHERE account_id = ? AND name = ?");
        query_int(&q, now);
        query_str(&q, account);
        query_str(&q, name);
        return query_run(&q, NULL);
}

int secrets_any(struct db *db)
{
        struct query q;

        query(db, &q, "SELECT EXISTS (SELECT 1 FROM secrets) OR EXISTS (SELECT 1 FROM box_secrets)");
        return (int) query_number(&q);
}

/* ---- copies ---- */

int box_secrets_add(struct db *db, const char *box, const char *name, const void *sealed, size_t n, int64_t now,
                    struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO box_secrets (box_id, name, sealed, created_at) VALUES (?, ?, ?, ?)");
        query_str(&q, box);
        query_str(&q, name);
        query_blob(&q, sealed, n);
        query_int(&q, now);
        return query_run(&q, e);
}

int box_secrets_given(struct db *db, const char *box, const char *name)
{
        struct query q;

        query(db, &q, "UPDATE box_secrets SET given = 1 WHERE box_id = ? AND name = ?");
        query_str(&q, box);
        query_str(&q, name);
        return query_run(&q, NULL);
}

int box_secrets_each(struct db *db, const char *box,
                     int (*fn)(const char *name, bool given, const void *sealed, size_t n, void *arg), void *arg)
{
        struct query q;
        int stop = 0;

        query(db, &q, "SELECT name, given, sealed FROM box_secrets WHERE box_id = ? ORDER BY id");
        query_str(&q, box);
        while (stop == 0 && query_row(&q)) {
                size_t n;
                const void *p = col_blob(&q, 2, &n);

                stop = fn(col_str(&q, 0), col_int(&q, 1) != 0, p, n, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : stop;
}

int box_secrets_drop(struct db *db, const char *box)
{
        struct query q;

        query(db, &q, "DELETE FROM box_secrets WHERE box_id = ?");
        query_str(&q, box);
        return query_run(&q, NULL);
}

int box_secrets_ended(struct db *db, int (*fn)(const char *box, void *arg), void *arg)
{
        struct query q;
        int stop = 0;

        query(db, &q,
              "SELECT DISTINCT b.id FROM box_secrets s JOIN boxes b ON b.id = s.box_id"
              " WHERE b.state NOT IN ('starting', 'running', 'frozen')");
        while (stop == 0 && query_row(&q))
                stop = fn(col_str(&q, 0), arg);
        int end = query_end(&q, NULL);
        return end < 0 ? end : stop;
}
