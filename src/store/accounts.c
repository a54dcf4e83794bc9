#include "store/accounts.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

int accounts_add(struct db *db, const char *name, char **ret, struct err *e)
{
        struct query q;
        char id[13];

        if (!name[0] || strlen(name) > 60)
                return err_set(e, -EINVAL, "an account's name is 1 to 60 bytes");
        random_id(id, sizeof id - 1);
        query(db, &q, "INSERT INTO accounts (id, name, created_at) VALUES (?, ?, ?)");
        query_str(&q, id);
        query_str(&q, name);
        query_int(&q, wall_ms());
        int r = query_run(&q, e);
        if (r == 0)
                *ret = xstrdup(id);
        return r;
}

int accounts_first(struct db *db, char **ret, struct err *e)
{
        struct query q;
        char *id = NULL;

        query(db, &q, "SELECT id FROM accounts ORDER BY created_at, id LIMIT 1");
        if (query_row(&q))
                id = xstrdup(col_str(&q, 0));
        int r = query_end(&q, e);
        if (r == 0 && !id)
                return accounts_add(db, "main", ret, e);
        if (r < 0) {
                freep(&id);
                return r;
        }
        *ret = id;
        return 0;
}

int keys_insert(struct db *db, const char *id, const char *account, const char *name, const unsigned char hash[32],
                const char *hint, struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO keys (id, account_id, name, hash, hint, created_at) VALUES (?,?,?,?,?,?)");
        query_str(&q, id);
        query_str(&q, account);
        query_str(&q, name);
        query_blob(&q, hash, 32);
        query_str(&q, hint);
        query_int(&q, wall_ms());
        return query_run(&q, e);
}

int keys_find(struct db *db, const unsigned char hash[32], char **ret_account, char **ret_key)
{
        struct query q;
        int64_t used = 0, now = wall_ms();
        int r = -ENOENT;

        query(db, &q, "SELECT account_id, id, last_used_at FROM keys WHERE hash = ? AND revoked_at IS NULL");
        query_blob(&q, hash, 32);
        if (query_row(&q)) {
                *ret_account = xstrdup(col_str(&q, 0));
                *ret_key = xstrdup(col_str(&q, 1));
                used = col_int(&q, 2);
                r = 0;
        }
        int end = query_end(&q, NULL);
        if (end < 0)
                r = end;
        if (r == 0 && now - used > 60000) {
                query(db, &q, "UPDATE keys SET last_used_at = ? WHERE id = ?");
                query_int(&q, now);
                query_str(&q, *ret_key);
                (void) query_run(&q, NULL);
        }
        return r;
}

int keys_each(struct db *db, int (*fn)(const struct key_row *k, void *arg), void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q,
              "SELECT id, account_id, name, hint, created_at, last_used_at, revoked_at FROM keys ORDER BY created_at, "
              "id");
        while (r == 0 && query_row(&q)) {
                struct key_row k = { .id = col_str(&q, 0),
                                     .account = col_str(&q, 1),
                                     .name = col_str(&q, 2),
                                     .hint = col_str(&q, 3),
                                     .created_at = col_int(&q, 4),
                                     .last_used_at = col_int(&q, 5),
                                     .revoked_at = col_int(&q, 6) };
                r = fn(&k, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int keys_revoke(struct db *db, const char *id_or_name, struct err *e)
{
        struct query q;

        query(db, &q, "UPDATE keys SET revoked_at = ?1 WHERE (id = ?2 OR name = ?2) AND revoked_at IS NULL");
        query_int(&q, wall_ms());
        query_str(&q, id_or_name);
        int r = query_run(&q, e);
        return r < 0 ? r : (int) query_changes(db);
}

int keys_revoke_one(struct db *db, const char *account, const char *id)
{
        struct query q;

        query(db, &q, "UPDATE keys SET revoked_at = ? WHERE id = ? AND account_id = ? AND revoked_at IS NULL");
        query_int(&q, wall_ms());
        query_str(&q, id);
        query_str(&q, account);
        return query_change(db, &q);
}

int agents_called(struct db *db, const char *account, const char *agent, const char *client)
{
        struct query q;

        query(db, &q,
              "INSERT INTO agents (account_id, id, client, called_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE"
              " SET called_at = ?4, client = coalesce(?3, client), left_at = NULL");
        query_str(&q, account);
        query_str(&q, agent);
        query_str(&q, client);
        query_int(&q, wall_ms());
        return query_run(&q, NULL);
}

int agents_heartbeat(struct db *db, const char *account, const char *agent, const char *client)
{
        struct query q;

        query(db, &q,
              "INSERT INTO agents (account_id, id, client, called_at, heartbeat_at) VALUES (?1, ?2, ?3, ?4, ?4) ON "
              "CONFLICT"
              " DO UPDATE SET heartbeat_at = ?4, client = coalesce(?3, client), left_at = NULL");
        query_str(&q, account);
        query_str(&q, agent);
        query_str(&q, client);
        query_int(&q, wall_ms());
        return query_run(&q, NULL);
}

int agents_left(struct db *db, const char *account, const char *agent)
{
        struct query q;

        query(db, &q, "UPDATE agents SET left_at = ? WHERE account_id = ? AND id = ?");
        query_int(&q, wall_ms());
        query_str(&q, account);
        query_str(&q, agent);
        return query_run(&q, NULL);
}

int agents_get(struct db *db, const char *account, const char *agent, struct agent_row *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, "SELECT called_at, heartbeat_at, left_at, client FROM agents WHERE account_id = ? AND id = ?");
        query_str(&q, account);
        query_str(&q, agent);
        if (query_row(&q)) {
                *ret = (struct agent_row){ col_int(&q, 0), col_int(&q, 1), col_int(&q, 2), "" };
                (void) snprintf(ret->client, sizeof ret->client, "%s", col_null(&q, 3) ? "" : col_str(&q, 3));
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int agents_trim(struct db *db, int64_t before_ms)
{
        struct query q;

        query(db, &q, "DELETE FROM agents WHERE max(called_at, coalesce(heartbeat_at, 0)) < ?");
        query_int(&q, before_ms);
        return query_run(&q, NULL);
}

int sessions_insert(struct db *db, const char *id, const char *account, const char *version, const char *client)
{
        struct query q;

        query(db, &q,
              "INSERT INTO sessions (id, account_id, version, client, created_at, used_at) VALUES (?1,?2,?3,?4,?5,?5)");
        query_str(&q, id);
        query_str(&q, account);
        query_str(&q, version);
        query_str(&q, client);
        query_int(&q, wall_ms());
        return query_run(&q, NULL);
}

int sessions_find(struct db *db, const char *id, const char *account, char version[static 16], char *client,
                  size_t client_size)
{
        struct query q;
        int64_t used = 0, now = wall_ms();
        int r = -ENOENT;

        query(db, &q, "SELECT version, used_at, client FROM sessions WHERE id = ? AND account_id = ?");
        query_str(&q, id);
        query_str(&q, account);
        if (query_row(&q)) {
                (void) snprintf(version, 16, "%s", col_str(&q, 0));
                used = col_int(&q, 1);
                if (client)
                        (void) snprintf(client, client_size, "%s", col_str(&q, 2) ? col_str(&q, 2) : "");
                r = 0;
        }
        int end = query_end(&q, NULL);
        if (end < 0)
                return end;
        if (r == 0 && now - used > 60000) {
                query(db, &q, "UPDATE sessions SET used_at = ? WHERE id = ?");
                query_int(&q, now);
                query_str(&q, id);
                (void) query_run(&q, NULL);
        }
        return r;
}

int sessions_delete(struct db *db, const char *id, const char *account)
{
        struct query q;

        query(db, &q, "DELETE FROM sessions WHERE id = ? AND account_id = ?");
        query_str(&q, id);
        query_str(&q, account);
        return query_change(db, &q);
}

int sessions_trim(struct db *db, int64_t before_ms, int64_t keep)
{
        struct query q;

        query(db, &q,
              "DELETE FROM sessions WHERE used_at < ?1 OR id IN (SELECT id FROM sessions ORDER BY used_at DESC LIMIT "
              "-1 OFFSET ?2)");
        query_int(&q, before_ms);
        query_int(&q, keep);
        return query_run(&q, NULL);
}
