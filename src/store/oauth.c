#include "store/oauth.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define CODE_KEPT_MS (3600 * (int64_t) 1000) /* used codes are remembered, so that their replay is noticed */

/* ---- clients ---- */

void client_done(struct client *c)
{
        free(c->redirect_uris);
        c->redirect_uris = NULL;
}

int clients_put(struct db *db, const struct client *c, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO clients (id, name, redirect_uris, document, created_at, used_at, fresh_until) VALUES "
              "(?1,?2,?3,?4,?5,?6,?7)"
              " ON CONFLICT (id) DO UPDATE SET name = ?2, redirect_uris = ?3, used_at = ?6, fresh_until = ?7 WHERE "
              "document = 1");
        query_str(&q, c->id);
        query_str(&q, c->name);
        query_str(&q, c->redirect_uris);
        query_int(&q, c->document);
        query_int(&q, c->created_at);
        query_int(&q, c->used_at);
        query_int(&q, c->fresh_until);
        return query_run(&q, e);
}

int clients_get(struct db *db, const char *id, struct client *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q,
              "SELECT id, name, redirect_uris, document, created_at, used_at, granted_at, fresh_until FROM clients "
              "WHERE id = ?");
        query_str(&q, id);
        if (query_row(&q)) {
                *ret = (struct client){ .redirect_uris = xstrdup(col_str(&q, 2)),
                                        .document = col_int(&q, 3) != 0,
                                        .created_at = col_int(&q, 4),
                                        .used_at = col_int(&q, 5),
                                        .granted_at = col_int(&q, 6),
                                        .fresh_until = col_int(&q, 7) };
                col_copy(&q, 0, ret->id, sizeof ret->id);
                col_copy(&q, 1, ret->name, sizeof ret->name);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int clients_touch(struct db *db, const char *id, int64_t now, bool granted)
{
        struct query q;

        query(db, &q,
              "UPDATE clients SET used_at = ?1, granted_at = CASE WHEN ?2 THEN ?1 ELSE granted_at END WHERE id = ?3");
        query_int(&q, now);
        query_int(&q, granted);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int clients_trim(struct db *db, int64_t unused_before, int64_t gone_before, int64_t keep)
{
        struct query q;

        query(db, &q,
              "DELETE FROM clients WHERE NOT EXISTS (SELECT 1 FROM grants WHERE client_id = clients.id)"
              " AND ((granted_at IS NULL AND used_at < ?1) OR used_at < ?2 OR id IN (SELECT id FROM clients WHERE "
              "granted_at IS NULL"
              " ORDER BY used_at DESC, id LIMIT -1 OFFSET ?3))");
        query_int(&q, unused_before);
        query_int(&q, gone_before);
        query_int(&q, keep);
        return query_run(&q, NULL);
}

int64_t clients_count(struct db *db)
{
        struct query q;

        query(db, &q, "SELECT count(*) FROM clients");
        return query_number(&q);
}

/* ---- codes ---- */

void code_done(struct code *c)
{
        freep(&c->client);
        freep(&c->redirect_uri);
        freep(&c->challenge);
        freep(&c->scope);
        freep(&c->resource);
}

int codes_insert(struct db *db, const unsigned char hash[32], const struct code *c, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO codes (hash, person_id, client_id, redirect_uri, challenge, scope, resource, expires_at) "
              "VALUES (?,?,?,?,?,?,?,?)");
        query_blob(&q, hash, 32);
        query_str(&q, c->person);
        query_str(&q, c->client);
        query_str(&q, c->redirect_uri);
        query_str(&q, c->challenge);
        query_str(&q, c->scope);
        query_str(&q, c->resource);
        query_int(&q, c->expires_at);
        return query_run(&q, e);
}

int codes_find(struct db *db, const unsigned char hash[32], struct code *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q,
              "SELECT person_id, client_id, redirect_uri, challenge, scope, resource, expires_at, used_at, grant_id "
              "FROM codes WHERE hash = ?");
        query_blob(&q, hash, 32);
        if (query_row(&q)) {
                *ret = (struct code){ .client = xstrdup(col_str(&q, 1)),
                                      .redirect_uri = xstrdup(col_str(&q, 2)),
                                      .challenge = xstrdup(col_str(&q, 3)),
                                      .scope = xstrdup(col_str(&q, 4)),
                                      .resource = xstrdup(col_str(&q, 5)),
                                      .expires_at = col_int(&q, 6),
                                      .used_at = col_int(&q, 7) };
                col_copy(&q, 0, ret->person, sizeof ret->person);
                col_copy(&q, 8, ret->grant, sizeof ret->grant);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int codes_use(struct db *db, const unsigned char hash[32], const char *grant, int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE codes SET used_at = ?, grant_id = ? WHERE hash = ? AND used_at IS NULL");
        query_int(&q, now);
        query_str(&q, grant);
        query_blob(&q, hash, 32);
        return query_change(db, &q);
}

/* ---- grants ---- */

#define GRANT_SELECT                                                                                                  \
        "SELECT g.id, g.account_id, g.person_id, g.client_id, c.name, p.name, g.redirect_host, g.scope, g.resource, " \
        "g.created_at,"                                                                                               \
        " g.used_at FROM grants g JOIN clients c ON c.id = g.client_id JOIN people p ON p.id = g.person_id"

static void read_grant(struct query *q, struct grant *g)
{
        *g = (struct grant){ .created_at = col_int(q, 9), .used_at = col_int(q, 10) };
        col_copy(q, 0, g->id, sizeof g->id);
        col_copy(q, 1, g->account, sizeof g->account);
        col_copy(q, 2, g->person, sizeof g->person);
        col_copy(q, 3, g->client, sizeof g->client);
        col_copy(q, 4, g->client_name, sizeof g->client_name);
        col_copy(q, 5, g->person_name, sizeof g->person_name);
        col_copy(q, 6, g->redirect_host, sizeof g->redirect_host);
        col_copy(q, 7, g->scope, sizeof g->scope);
        col_copy(q, 8, g->resource, sizeof g->resource);
}

int grants_insert(struct db *db, const struct grant *g, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO grants (id, account_id, person_id, client_id, redirect_host, scope, resource, created_at, "
              "used_at)"
              " VALUES (?,?,?,?,?,?,?,?,?)");
        query_str(&q, g->id);
        query_str(&q, g->account);
        query_str(&q, g->person);
        query_str(&q, g->client);
        query_str(&q, g->redirect_host);
        query_str(&q, g->scope);
        query_str(&q, g->resource);
        query_int(&q, g->created_at);
        query_int(&q, g->used_at);
        return query_run(&q, e);
}

int grants_get(struct db *db, const char *id, struct grant *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, GRANT_SELECT " WHERE g.id = ?");
        query_str(&q, id);
        if (query_row(&q)) {
                read_grant(&q, ret);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int grants_touch(struct db *db, const char *id, int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE grants SET used_at = ? WHERE id = ?");
        query_int(&q, now);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int grants_each(struct db *db, const char *account, int (*fn)(const struct grant *g, void *arg), void *arg)
{
        _cleanup_free_ struct grant *g = xmalloc(sizeof *g);
        struct query q;
        int r = 0;

        query(db, &q, GRANT_SELECT " WHERE g.account_id = ? ORDER BY g.used_at DESC, g.id");
        query_str(&q, account);
        while (r == 0 && query_row(&q)) {
                read_grant(&q, g);
                r = fn(g, arg);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int grants_delete(struct db *db, const char *account, const char *id)
{
        struct query q;

        query(db, &q, "DELETE FROM grants WHERE id = ?1 AND (?2 IS NULL OR account_id = ?2)");
        query_str(&q, id);
        query_str(&q, account);
        return query_change(db, &q);
}

/* ---- tokens ---- */

int tokens_insert(struct db *db, const unsigned char hash[32], const struct token *t, struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO tokens (hash, grant_id, kind, created_at, expires_at) VALUES (?,?,?,?,?)");
        query_blob(&q, hash, 32);
        query_str(&q, t->grant);
        query_int(&q, t->kind);
        query_int(&q, t->created_at);
        query_int(&q, t->expires_at);
        return query_run(&q, e);
}

int tokens_find(struct db *db, const unsigned char hash[32], struct token *ret)
{
        struct query q;
        int r = -ENOENT;

        query(db, &q, "SELECT grant_id, kind, created_at, expires_at, rotated_at FROM tokens WHERE hash = ?");
        query_blob(&q, hash, 32);
        if (query_row(&q)) {
                *ret = (struct token){ .kind = col_int(&q, 1) ? TOKEN_REFRESH : TOKEN_ACCESS,
                                       .created_at = col_int(&q, 2),
                                       .expires_at = col_int(&q, 3),
                                       .rotated_at = col_int(&q, 4) };
                col_copy(&q, 0, ret->grant, sizeof ret->grant);
                r = 0;
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int tokens_rotated(struct db *db, const unsigned char hash[32], int64_t now)
{
        struct query q;

        query(db, &q, "UPDATE tokens SET rotated_at = ? WHERE hash = ? AND rotated_at IS NULL");
        query_int(&q, now);
        query_blob(&q, hash, 32);
        return query_change(db, &q);
}

int tokens_delete(struct db *db, const unsigned char hash[32])
{
        struct query q;

        query(db, &q, "DELETE FROM tokens WHERE hash = ?");
        query_blob(&q, hash, 32);
        return query_change(db, &q);
}

int oauth_trim(struct db *db, int64_t now)
{
        struct query q;

        query(db, &q, "DELETE FROM codes WHERE expires_at < ?");
        query_int(&q, now - CODE_KEPT_MS);
        int r = query_run(&q, NULL);
        if (r < 0)
                return r;
        query(db, &q, "DELETE FROM tokens WHERE expires_at < ?");
        query_int(&q, now);
        r = query_run(&q, NULL);
        if (r < 0)
                return r;
        query(db, &q, "DELETE FROM grants WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE grant_id = grants.id)");
        return query_run(&q, NULL);
}
