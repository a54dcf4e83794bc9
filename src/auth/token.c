#include "auth/token.h"

#include "auth/pkce.h"
#include "auth/redirect.h"
#include "base/b64.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TOUCH_MS 60000
#define CHAIN_MAX 1000 /* successors that are followed within one grace */

static void hash_str(struct str s, unsigned char hash[HASH_LEN])
{
        sha256_of(s.p, s.n, hash);
}

/* A slash at its end is no difference to anybody. */
static bool same_resource(const char *given, const char *ours)
{
        size_t n = strlen(ours);

        return strncmp(given, ours, n) == 0 && (!given[n] || cstr_eq(given + n, "/"));
}

/* Scheme and host in any case (RFC 3986 §6.2.2.1), "/mcp" as it is. */
bool resource_ok(const char *resource, const char *origin)
{
        struct str r = str_of(resource), o = str_of(origin);

        if (r.n < o.n || !str_ieq(str_n(r.p, o.n), o))
                return false;
        return same_resource(resource + o.n, "/mcp");
}

/* ---- codes ---- */

int code_issue(struct auth *a, struct code *c, char **ret, struct err *e)
{
        _cleanup_free_ char *random = random_token(32);
        _cleanup_free_ char *text = xasprintf(CODE_PREFIX "%s", random);
        unsigned char hash[HASH_LEN];

        hash_str(str_of(text), hash);
        c->expires_at = a->now() + CODE_MS;
        int r = codes_insert(a->db, hash, c, e);
        if (r == 0)
                *ret = steal_ptr(text);
        return r;
}

/* ---- pairs ---- */

/* The pair that follows a secret (a code or a refresh token): a function of it and of our key. */
static void successor(const struct auth *a, struct str secret, struct token_pair *ret)
{
        static const char *const purposes[] = { "access", "refresh" };
        static const char *const prefixes[] = { ACCESS_PREFIX, REFRESH_PREFIX };

        for (size_t i = 0; i < 2; i++) {
                _cleanup_free_ char *text = xasprintf("%s\n%.*s", purposes[i], (int) secret.n, secret.p);
                _cleanup_buf_ struct buf b = BUF_MAX(TOKEN_MAX);
                unsigned char mac[HASH_LEN];

                hmac_sha256(a->key, text, strlen(text), mac);
                (void) b64url_encode(&b, mac, sizeof mac);
                (void) snprintf(i ? ret->refresh : ret->access, TOKEN_MAX, "%s%s", prefixes[i], buf_cstr(&b));
        }
}

static int store_pair(struct auth *a, const char *grant, const struct token_pair *p, int64_t now, struct err *e)
{
        struct token access = { .kind = TOKEN_ACCESS, .created_at = now, .expires_at = now + ACCESS_MS };
        struct token refresh = { .kind = TOKEN_REFRESH, .created_at = now, .expires_at = now + REFRESH_MS };
        unsigned char hash[HASH_LEN];

        (void) snprintf(access.grant, sizeof access.grant, "%s", grant);
        (void) snprintf(refresh.grant, sizeof refresh.grant, "%s", grant);
        hash_str(str_of(p->access), hash);
        int r = tokens_insert(a->db, hash, &access, e);
        if (r < 0)
                return r;
        hash_str(str_of(p->refresh), hash);
        return tokens_insert(a->db, hash, &refresh, e);
}

/* ---- a code for a pair ---- */

static int new_grant(struct auth *a, const struct code *c, int64_t now, struct grant *g, struct err *e)
{
        struct person p;
        struct str host = { 0 };
        int r = people_by_id(a->db, c->person, &p);

        if (r < 0)
                return err_set(e, r, "the person who allowed this was removed");
        (void) redirect_check(str_of(c->redirect_uri), &host);
        *g = (struct grant){ .created_at = now, .used_at = now };
        random_id(g->id, 20);
        (void) snprintf(g->account, sizeof g->account, "%s", p.account);
        (void) snprintf(g->person, sizeof g->person, "%s", p.id);
        (void) snprintf(g->client, sizeof g->client, "%s", c->client);
        (void) snprintf(g->scope, sizeof g->scope, "%s", c->scope);
        (void) snprintf(g->resource, sizeof g->resource, "%s", c->resource);
        (void) snprintf(g->redirect_host, sizeof g->redirect_host, "%.*s", (int) host.n, host.p ? host.p : "");
        return grants_insert(a->db, g, e);
}

static int exchange(struct auth *a, struct str text, const unsigned char hash[HASH_LEN], const struct code *c,
                    struct token_pair *ret, struct err *e)
{
        _cleanup_free_ struct grant *g = xcalloc(1, sizeof *g);
        int64_t now = a->now();
        int r = db_begin(a->db, e);

        if (r < 0)
                return r;
        r = new_grant(a, c, now, g, e);
        if (r == 0)
                r = codes_use(a->db, hash, g->id, now);
        successor(a, text, ret);
        if (r == 0)
                r = store_pair(a, g->id, ret, now, e);
        if (r == 0)
                r = db_commit(a->db, e);
        if (r < 0) {
                db_rollback(a->db);
                return r;
        }
        ret->expires_in = ACCESS_MS / 1000;
        (void) snprintf(ret->scope, sizeof ret->scope, "%s", c->scope);
        return 0;
}

enum token_error code_redeem(struct auth *a, struct str text, const char *client, const char *redirect_uri,
                             struct str verifier, const char *resource, struct token_pair *ret, struct err *e)
{
        _cleanup_code_ struct code c = { 0 };
        unsigned char hash[HASH_LEN];

        hash_str(text, hash);
        int r = codes_find(a->db, hash, &c);
        if (r < 0) {
                (void) err_set(e, r, "the code is not known");
                return r == -ENOENT ? TOKEN_INVALID_GRANT : TOKEN_FAILED;
        }
        if (c.used_at) {
                /* OAuth 2.1 §4.1.3: somebody else has it too; what it gave ends. */
                if (c.grant[0])
                        (void) grants_delete(a->db, NULL, c.grant);
                (void) err_set(e, -EACCES, "the code was used before");
                return TOKEN_INVALID_GRANT;
        }
        enum token_error result = TOKEN_INVALID_GRANT;
        if (c.expires_at <= a->now())
                (void) err_set(e, -ETIME, "the code is over: it is good for %d s", (int) (CODE_MS / 1000));
        else if (!cstr_eq(c.client, client))
                (void) err_set(e, -EACCES, "the code belongs to another client");
        else if (!redirect_uri || !cstr_eq(c.redirect_uri, redirect_uri))
                (void) err_set(e, -EACCES, "redirect_uri is not the one of the authorization request");
        else if (!pkce_matches(verifier, str_of(c.challenge)))
                (void) err_set(e, -EACCES, "code_verifier does not fit the code_challenge");
        else if (resource && !same_resource(resource, c.resource))
                result = TOKEN_INVALID_TARGET,
                (void) err_set(e, -EACCES, "the resource is not the one that was allowed");
        else
                result = TOKEN_OK;
        if (result != TOKEN_OK) {
                (void) codes_use(a->db, hash, NULL, a->now()); /* one try */
                return result;
        }
        r = exchange(a, text, hash, &c, ret, e);
        return r == 0 ? TOKEN_OK : r == -ENOENT ? TOKEN_INVALID_GRANT : TOKEN_FAILED;
}

/* ---- a refresh token for the next pair ---- */

static enum token_error rotate(struct auth *a, struct str text, const struct grant *g, struct token_pair *ret,
                               struct err *e)
{
        unsigned char hash[HASH_LEN];
        int64_t now = a->now();
        int r = db_begin(a->db, e);

        if (r < 0)
                return TOKEN_FAILED;
        hash_str(text, hash);
        r = tokens_rotated(a->db, hash, now);
        successor(a, text, ret);
        if (r == 0)
                r = store_pair(a, g->id, ret, now, e);
        if (r == 0)
                r = grants_touch(a->db, g->id, now);
        if (r == 0)
                r = db_commit(a->db, e);
        if (r < 0) {
                db_rollback(a->db);
                return TOKEN_FAILED;
        }
        ret->expires_in = ACCESS_MS / 1000;
        return TOKEN_OK;
}

/*
 * Within the grace: the pair that the first use gave. When that was rotated as well meanwhile, the last one of the
 * chain, so that nobody is left with a token whose own grace ends unseen.
 */
static enum token_error again(struct auth *a, struct str text, struct token_pair *ret)
{
        char current[TOKEN_MAX];
        unsigned char hash[HASH_LEN];
        struct token t;

        (void) snprintf(current, sizeof current, "%.*s", (int) text.n, text.p);
        for (int i = 0; i < CHAIN_MAX; i++) {
                successor(a, str_of(current), ret);
                hash_str(str_of(ret->refresh), hash);
                if (tokens_find(a->db, hash, &t) < 0)
                        return TOKEN_INVALID_GRANT;
                if (!t.rotated_at)
                        break;
                (void) snprintf(current, sizeof current, "%s", ret->refresh);
        }
        hash_str(str_of(ret->access), hash);
        if (t.rotated_at || tokens_find(a->db, hash, &t) < 0)
                return TOKEN_INVALID_GRANT;
        ret->expires_in = (t.expires_at - a->now()) / 1000;
        return ret->expires_in > 0 ? TOKEN_OK : TOKEN_INVALID_GRANT;
}

enum token_error refresh_rotate(struct auth *a, struct str text, const char *client, const char *resource,
                                struct token_pair *ret, struct err *e)
{
        _cleanup_free_ struct grant *g = xcalloc(1, sizeof *g);
        unsigned char hash[HASH_LEN];
        struct token t;

        hash_str(text, hash);
        int r = tokens_find(a->db, hash, &t);
        if (r == 0 && t.kind == TOKEN_REFRESH)
                r = grants_get(a->db, t.grant, g);
        else if (r == 0)
                r = -ENOENT;
        int64_t now = a->now();
        if (r < 0 || t.expires_at <= now || text.n >= TOKEN_MAX || !cstr_eq(g->client, client)) {
                (void) err_set(e, -EACCES, "the refresh token is not known, is over, or belongs to another client");
                return r < 0 && r != -ENOENT ? TOKEN_FAILED : TOKEN_INVALID_GRANT;
        }
        if (resource && !same_resource(resource, g->resource)) {
                (void) err_set(e, -EACCES, "the resource is not the one that was allowed");
                return TOKEN_INVALID_TARGET;
        }
        (void) snprintf(ret->scope, sizeof ret->scope, "%s", g->scope);
        if (!t.rotated_at)
                return rotate(a, text, g, ret, e);
        if (now - t.rotated_at <= GRACE_MS) {
                enum token_error x = again(a, text, ret);

                if (x != TOKEN_OK)
                        (void) err_set(e, -EACCES, "the refresh token was used before");
                return x;
        }
        /* RFC 9700 §4.14.2: it was stolen, or its thief is the one who rotated it. Nobody keeps anything. */
        (void) grants_delete(a->db, NULL, g->id);
        (void) err_set(e, -EACCES, "the refresh token was used before: everything that came from it has ended");
        return TOKEN_INVALID_GRANT;
}

/* ---- use ---- */

int access_token_check(struct auth *a, const struct call *call, struct str text, struct grant *ret, struct err *e)
{
        char origin[ORIGIN_MAX], resource[ORIGIN_MAX + 8];
        unsigned char hash[HASH_LEN];
        struct token t;
        int64_t now = a->now();

        hash_str(text, hash);
        int r = tokens_find(a->db, hash, &t);
        if (r < 0 && r != -ENOENT)
                return err_set(e, r, "the access token cannot be checked");
        if (r < 0 || t.kind != TOKEN_ACCESS || t.expires_at <= now || grants_get(a->db, t.grant, ret) < 0)
                return err_set(e, -EACCES, "the access token is not valid, is over, or was revoked");
        auth_origin(call, origin);
        (void) snprintf(resource, sizeof resource, "%s/mcp", origin);
        if (!cstr_eq(ret->resource, resource))
                return err_set(e, -EACCES, "the access token is for %s", ret->resource);
        struct str scopes = str_of(ret->scope);
        bool ok = false;
        while (scopes.n)
                ok |= str_eq(str_cut(&scopes, ' '), STR(AUTH_SCOPE));
        if (!ok)
                return err_set(e, -EPERM, "the access token lacks the scope " AUTH_SCOPE);
        if (now - ret->used_at > TOUCH_MS) {
                (void) grants_touch(a->db, ret->id, now);
                (void) clients_touch(a->db, ret->client, now, false);
        }
        return 0;
}

int token_revoke(struct auth *a, struct str text, const char *client)
{
        _cleanup_free_ struct grant *g = xcalloc(1, sizeof *g);
        unsigned char hash[HASH_LEN];
        struct token t;

        hash_str(text, hash);
        int r = tokens_find(a->db, hash, &t);
        if (r == 0)
                r = grants_get(a->db, t.grant, g);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        if (!cstr_eq(g->client, client))
                return 0;
        r = t.kind == TOKEN_REFRESH ? grants_delete(a->db, NULL, g->id) : tokens_delete(a->db, hash);
        return r == -ENOENT ? 0 : r;
}
