/* rest_auth: keys, grants and the session over REST. */
#include "auth/handlers.h"
#include "auth/keys.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BODY_MAX ((size_t) 8 << 10)
#define LIST_MAX ((size_t) 8 << 20)

struct listing {
        struct jw w;
        const struct identity *who;
};

static void put_time(struct jw *w, const char *key, int64_t ms)
{
        char at[RFC3339_LEN];

        jw_kstr(w, key, ms ? rfc3339(ms, at) : NULL);
}

static int write_key(const struct key_row *k, void *arg)
{
        struct listing *l = arg;

        if (!cstr_eq(k->account, l->who->account))
                return 0;
        jw_obj(&l->w);
        jw_kstr(&l->w, "id", k->id);
        jw_kstr(&l->w, "name", k->name);
        jw_kstr(&l->w, "hint", k->hint);
        put_time(&l->w, "createdAt", k->created_at);
        put_time(&l->w, "lastUsedAt", k->last_used_at);
        put_time(&l->w, "revokedAt", k->revoked_at);
        jw_end(&l->w);
        return 0;
}

static int write_grant(const struct grant *g, void *arg)
{
        struct listing *l = arg;

        jw_obj(&l->w);
        jw_kstr(&l->w, "id", g->id);
        jw_kstr(&l->w, "clientId", g->client);
        jw_kstr(&l->w, "clientName", g->client_name);
        jw_kstr(&l->w, "redirectHost", g->redirect_host);
        jw_kstr(&l->w, "scope", g->scope);
        jw_kstr(&l->w, "resource", g->resource);
        jw_kstr(&l->w, "person", g->person_name);
        put_time(&l->w, "createdAt", g->created_at);
        put_time(&l->w, "lastUsedAt", g->used_at);
        jw_end(&l->w);
        return 0;
}

static void coroutine_fn finish(struct call *call, unsigned status, struct jw *w, struct buf *b)
{
        (void) call_add_header(call, "Cache-Control", "no-store");
        if (jw_end_all(w) < 0)
                (void) call_reply_error(call, 500, "internal", "the answer did not fit");
        else
                (void) call_reply(call, status, "application/json", b->p, b->len);
}

static void coroutine_fn keys_list(struct auth *a, struct call *call, const struct identity *who, const char *id)
{
        _cleanup_buf_ struct buf b = BUF_MAX(LIST_MAX);
        struct listing l = { .who = who };

        (void) id;
        jw_init(&l.w, &b);
        jw_obj(&l.w);
        jw_karr(&l.w, "keys");
        (void) keys_each(a->db, write_key, &l);
        finish(call, 200, &l.w, &b);
}

static void coroutine_fn keys_post(struct auth *a, struct call *call, const struct identity *who, const char *id)
{
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX), b = BUF_MAX(4096);
        _cleanup_json_ struct json *j = NULL;
        _cleanup_free_ char *key = NULL, *key_id = NULL;
        const char *name = NULL;
        struct err e = { 0 };
        struct jw w;

        (void) id;
        /* A key lasts until it is revoked: a client that was let in for a while cannot make itself one. */
        if (who->grant_id[0]) {
                (void) call_reply_error(call, 403, "person_required",
                                        "keys are made by people or with a key, not by a connected client");
                return;
        }
        int r = call_read_all(call, &body, &e);
        if (r == 0)
                r = json_parse(body.p, body.len, &j, &e);
        if (r == 0)
                r = json_need_str(j, "name", &name, &e);
        if (r == 0)
                r = key_add(a->db, who->account, name, &key, &key_id, &e);
        if (r < 0) {
                (void) call_reply_error(call,
                                        r == -EMSGSIZE ? 413
                                        : r == -EINVAL ? 400
                                                       : 503,
                                        r == -EINVAL ? "invalid" : "unavailable", "%s", err_text(&e));
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "id", key_id);
        jw_kstr(&w, "name", name);
        jw_kstr(&w, "key", key);
        finish(call, 201, &w, &b);
}

static void coroutine_fn gone(struct call *call, int r, const char *what)
{
        if (r == 0)
                (void) call_reply(call, 204, NULL, NULL, 0);
        else if (r == -ENOENT)
                (void) call_reply_error(call, 404, "not_found", "there is no such %s", what);
        else
                (void) call_reply_error(call, 503, "unavailable", "the %s cannot be revoked now", what);
}

static void coroutine_fn keys_delete_one(struct auth *a, struct call *call, const struct identity *who, const char *id)
{
        gone(call, keys_revoke_one(a->db, who->account, id), "key");
}

static void coroutine_fn grants_list(struct auth *a, struct call *call, const struct identity *who, const char *id)
{
        _cleanup_buf_ struct buf b = BUF_MAX(LIST_MAX);
        struct listing l = { .who = who };

        (void) id;
        jw_init(&l.w, &b);
        jw_obj(&l.w);
        jw_karr(&l.w, "grants");
        (void) grants_each(a->db, who->account, write_grant, &l);
        finish(call, 200, &l.w, &b);
}

static void coroutine_fn grants_delete_one(struct auth *a, struct call *call, const struct identity *who,
                                           const char *id)
{
        gone(call, grants_delete(a->db, who->account, id), "grant");
}

static void coroutine_fn session_get(struct auth *a, struct call *call, const struct identity *who, const char *id)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        struct person p;
        struct login l;
        struct jw w;

        (void) who;
        (void) id;
        if (call_header(call, "Authorization").p || session_find(a, call, &p, &l) < 0) {
                (void) call_reply_error(call, 404, "not_found", "this is for browsers that are signed in");
                return;
        }
        _cleanup_free_ char *csrf = session_csrf(a, &l);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kobj(&w, "person");
        jw_kstr(&w, "id", p.id);
        jw_kstr(&w, "login", p.login);
        jw_kstr(&w, "name", p.name);
        jw_end(&w);
        jw_kstr(&w, "csrf", csrf);
        finish(call, 200, &w, &b);
}

static const struct route {
        const char *method, *path; /* a path that ends in "/" takes an id */
        void coroutine_fn (*fn)(struct auth *a, struct call *call, const struct identity *who, const char *id);
} routes[] = {
        { "GET", "/v1/keys", keys_list },
        { "POST", "/v1/keys", keys_post },
        { "DELETE", "/v1/keys/", keys_delete_one },
        { "GET", "/v1/grants", grants_list },
        { "DELETE", "/v1/grants/", grants_delete_one },
        { "GET", "/v1/session", session_get },
};

static bool matches(struct str path, const char *pattern, char id[64])
{
        struct str p = str_of(pattern);

        id[0] = '\0';
        if (!str_ends(p, STR("/")))
                return str_eq(path, p);
        if (!str_starts(path, p) || path.n == p.n || path.n - p.n >= 64 || memchr(path.p + p.n, '/', path.n - p.n))
                return false;
        (void) snprintf(id, 64, "%.*s", (int) (path.n - p.n), path.p + p.n);
        return true;
}

bool coroutine_fn rest_auth_handle(struct auth *a, struct call *call, const struct identity *who)
{
        _cleanup_buf_ struct buf allow = BUF_MAX(64);
        char id[64];

        for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
                if (!matches(call_path(call), routes[i].path, id))
                        continue;
                if (str_eq(call_method(call), str_of(routes[i].method))) {
                        routes[i].fn(a, call, who, id);
                        return true;
                }
                (void) buf_addf(&allow, "%s%s", allow.len ? ", " : "", routes[i].method);
        }
        if (!allow.len)
                return false;
        (void) call_add_header(call, "Allow", buf_cstr(&allow));
        (void) call_reply_error(call, 405, "method_not_allowed", "this address takes %s", buf_cstr(&allow));
        return true;
}
