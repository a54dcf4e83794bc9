#include "adapter/oauth.h"
#include "adapter/challenge.h"
#include "adapter/fetch.h"
#include "base/b64.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FORM_MAX ((size_t) 64 << 10)
#define EXPIRES_MAX ((int64_t) 10 * 365 * 86400)
#define TOKEN_MAX 8000

static int add_field(struct buf *b, const char *key, const char *value)
{
        int r;

        if (!value)
                return 0;
        r = b->len ? buf_addc(b, '&') : 0;
        if (r == 0)
                r = buf_adds(b, key);
        if (r == 0)
                r = buf_addc(b, '=');
        return r == 0 ? url_encode(b, str_of(value)) : r;
}

/* "error" of an error answer, when it looks like one of RFC 6749: nothing else of the answer is shown to anybody. */
static void error_code(const struct json *answer, char out[64])
{
        struct str s = json_strn(json_get(answer, "error"));
        size_t n = 0;

        while (n < s.n && n < 63 && (c_is_alnum(s.p[n]) || s.p[n] == '_'))
                n++;
        (void) snprintf(out, 64, "%.*s", (int) (n == s.n ? n : 0), s.p ? s.p : "");
}

struct reply {
        unsigned status;
        bool not_sent, lost;
        struct json *json;
        char error[64];
};

static void reply_done(struct reply *r)
{
        json_unref(r->json);
}

static const char *basic_header(const struct json *client, struct buf *out)
{
        _cleanup_buf_ struct buf pair = BUF_MAX(FORM_MAX);
        const char *id = json_get_str(client, "id", ""), *secret = json_get_str(client, "secret", "");

        /* RFC 6749 §2.3.1: both are form-encoded first. */
        if (url_encode(&pair, str_of(id)) < 0 || buf_addc(&pair, ':') < 0 || url_encode(&pair, str_of(secret)) < 0)
                return NULL;
        if (buf_adds(out, "Basic ") < 0 || b64_encode(out, pair.p, pair.len) < 0)
                return NULL;
        return buf_cstr(out);
}

static int coroutine_fn post_form(const char *url, const struct json *client, struct buf *form, struct reply *ret,
                                  struct err *e)
{
        const char *method = json_get_str(client, "method", "none"), *secret = json_get_str(client, "secret", NULL);
        _cleanup_buf_ struct buf basic = BUF_MAX(FORM_MAX);
        const char *headers[] = { NULL, NULL, NULL };
        struct fetched got;
        int r = 0;

        *ret = (struct reply){ 0 };
        if (secret && strcmp(method, "client_secret_basic") == 0) {
                headers[0] = "Authorization";
                headers[1] = basic_header(client, &basic);
                r = headers[1] ? 0 : -ENOBUFS;
        } else {
                r = add_field(form, "client_id", json_get_str(client, "id", NULL));
                if (r == 0 && secret)
                        r = add_field(form, "client_secret", secret);
        }
        if (r < 0)
                return err_set(e, r, "the request is too long");
        const struct fetch_spec spec = { .method = "POST",
                                         .url = url,
                                         .headers = headers,
                                         .type = "application/x-www-form-urlencoded",
                                         .body = buf_str(form),
                                         .once = true };
        r = fetch(&spec, &got, e);
        ret->not_sent = r < 0 && got.not_sent;
        ret->lost = r < 0 && !got.not_sent;
        ret->status = r < 0 ? 0 : got.status;
        if (r == 0 && got.body.len && json_parse(got.body.p, got.body.len, &ret->json, NULL) < 0)
                ret->json = NULL;
        buf_done(&got.body);
        error_code(ret->json, ret->error);
        return r;
}

/* {"access", "refresh", "scope", "expiresAt"} of a token answer; NULL when it is none. */
static struct json *take_tokens(const struct json *answer, const char *scope, const char *old_refresh)
{
        const char *access = json_get_str(answer, "access_token", NULL);
        const char *type = json_get_str(answer, "token_type", "Bearer");
        int64_t expires = json_get_int(answer, "expires_in", -1);
        struct json *t;

        if (!access || !*access || strlen(access) > TOKEN_MAX || !str_ieq(str_of(type), STR("bearer")))
                return NULL;
        for (const char *p = access; *p; p++)
                if (*p <= ' ' || *p >= 0x7f)
                        return NULL;
        t = json_obj();
        json_set_str(t, "access", access);
        json_set_str(t, "refresh", json_get_str(answer, "refresh_token", old_refresh));
        json_set_str(t, "scope", json_get_str(answer, "scope", scope));
        if (expires >= 0 && expires <= EXPIRES_MAX)
                json_set_int(t, "expiresAt", wall_ms() + expires * 1000);
        return t;
}

static bool lists(const struct json *list, const char *word)
{
        for (size_t i = 0; i < json_len(list); i++)
                if (cstr_eq(json_str(json_at(list, i)), word))
                        return true;
        return false;
}

/* The way this client proves itself: none where that is possible, since it can keep no secret. */
static const char *wanted_method(const struct as_meta *m)
{
        static const char *const known[] = { "none", "client_secret_basic", "client_secret_post" };

        for (size_t i = 0; m->token_methods && i < ARRAY_LEN(known); i++)
                if (lists(m->token_methods, known[i]))
                        return known[i];
        return "none";
}

static struct json *strings(const char *a, const char *b)
{
        struct json *list = json_arr();

        json_push(list, json_new_str(a));
        if (b)
                json_push(list, json_new_str(b));
        return list;
}

static struct json *registration(const struct as_meta *m, const char *redirect_uri, const char *scope)
{
        struct json *j = json_obj();

        json_set_str(j, "client_name", "ParallelSandbox MCP adapter");
        json_set_str(j, "application_type", "native");
        json_set(j, "redirect_uris", strings(redirect_uri, NULL));
        json_set(j, "grant_types", strings("authorization_code", "refresh_token"));
        json_set(j, "response_types", strings("code", NULL));
        json_set_str(j, "token_endpoint_auth_method", wanted_method(m));
        json_set_str(j, "scope", scope);
        json_set_str(j, "software_id", "parallelsandbox-mcp");
        json_set_str(j, "software_version", PSBX_VERSION);
        return j;
}

static struct json *take_client(const struct as_meta *m, const struct json *answer, const char *redirect_uri)
{
        const char *id = json_get_str(answer, "client_id", NULL), *secret = json_get_str(answer, "client_secret", NULL);
        const char *method = json_get_str(answer, "token_endpoint_auth_method", NULL);
        struct json *c;

        if (!id || !*id)
                return NULL;
        if (!secret || !*secret) {
                method = "none";
        } else if (!method) {
                method = wanted_method(m);
                if (strcmp(method, "none") == 0 && !lists(m->token_methods, "none"))
                        method = "client_secret_basic"; /* RFC 7591 §2: the default */
        }
        c = json_obj();
        json_set_str(c, "id", id);
        if (strcmp(method, "none") != 0)
                json_set_str(c, "secret", secret);
        json_set_str(c, "method", method);
        json_set_str(c, "redirectUri", redirect_uri);
        return c;
}

int coroutine_fn oauth_register(const struct as_meta *m, const char *redirect_uri, const char *scope,
                                struct json **ret_client, struct err *e)
{
        _cleanup_json_ struct json *body = NULL, *answer = NULL;
        _cleanup_free_ char *text = NULL;
        struct fetched got;
        char code[64];
        int r;

        if (!m->registration)
                return err_set(e, -ENOTSUP,
                               "the authorization server %.200s takes no registrations: set "
                               "PARALLELSANDBOX_OAUTH_CLIENT_ID to a client that it knows",
                               m->issuer);
        body = registration(m, redirect_uri, scope);
        text = json_text(body);
        const struct fetch_spec spec = {
                .method = "POST", .url = m->registration, .type = "application/json", .body = str_of(text)
        };
        r = fetch(&spec, &got, e);
        if (r == 0 && got.body.len && json_parse(got.body.p, got.body.len, &answer, NULL) < 0)
                answer = NULL;
        buf_done(&got.body);
        if (r < 0)
                return r;
        if (got.status == 200 || got.status == 201)
                *ret_client = take_client(m, answer, redirect_uri);
        if (*ret_client)
                return 0;
        error_code(answer, code);
        return err_set(e, -EACCES, "the registration was refused (HTTP %u%s%s)", got.status, code[0] ? ", " : "", code);
}

int coroutine_fn oauth_exchange(const struct as_meta *m, const struct json *client, const char *endpoint,
                                const struct oauth_code *c, struct json **ret, struct err *e)
{
        _cleanup_buf_ struct buf form = BUF_MAX(FORM_MAX);
        _cleanup_(reply_done) struct reply got = { 0 };
        struct json *tokens, *file;
        int r = add_field(&form, "grant_type", "authorization_code");

        if (r == 0)
                r = add_field(&form, "code", c->code);
        if (r == 0)
                r = add_field(&form, "code_verifier", c->verifier);
        if (r == 0)
                r = add_field(&form, "redirect_uri", c->redirect_uri);
        if (r == 0)
                r = add_field(&form, "resource", m->resource);
        if (r == 0)
                r = post_form(m->token, client, &form, &got, e);
        if (r < 0)
                return r;
        tokens = got.status == 200 ? take_tokens(got.json, c->asked_scope, NULL) : NULL;
        if (!tokens)
                return err_set(e, -EACCES, "the authorization server gave no token (HTTP %u%s%s)", got.status,
                               got.error[0] ? ", " : "", got.error);
        file = json_obj();
        json_set_int(file, "version", 1);
        json_set_str(file, "endpoint", endpoint);
        json_set_str(file, "issuer", m->issuer);
        json_set_str(file, "resource", m->resource);
        json_set_str(file, "tokenEndpoint", m->token);
        json_set(file, "client", json_ref((struct json *) (uintptr_t) client));
        json_set(file, "tokens", tokens);
        *ret = file;
        return 0;
}

/* Without its tokens the file still knows the client and the port. */
static void coroutine_fn end_tokens(const struct tokenfile *f, struct json *file)
{
        json_del(file, "tokens");
        json_del(file, "refreshing");
        (void) tokenfile_write(f, file, NULL);
}

static int coroutine_fn ask_refresh(const struct json *file, struct reply *got, struct err *e)
{
        const struct json *tokens = json_get(file, "tokens");
        _cleanup_buf_ struct buf form = BUF_MAX(FORM_MAX);
        int r = add_field(&form, "grant_type", "refresh_token");

        if (r == 0)
                r = add_field(&form, "refresh_token", json_get_str(tokens, "refresh", NULL));
        if (r == 0)
                r = add_field(&form, "resource", json_get_str(file, "resource", NULL));
        if (r < 0)
                return err_set(e, r, "the refresh token is too long");
        return post_form(json_get_str(file, "tokenEndpoint", ""), json_get(file, "client"), &form, got, e);
}

/* What an answer that is no token means. */
static enum refreshed coroutine_fn judge_refusal(const struct tokenfile *f, struct json *file, const struct reply *got,
                                                 struct err *e)
{
        if (got->not_sent || got->status == 503 || got->status == 429) {
                json_del(file, "refreshing");
                if (got->status)
                        (void) err_set(e, -EAGAIN, "the authorization server answered HTTP %u", got->status);
                return tokenfile_write(f, file, NULL) < 0 ? REFRESH_ENDED : REFRESH_LATER;
        }
        if (!got->lost)
                (void) err_set(e, -EACCES, "the authorization server refused to refresh the sign-in (HTTP %u%s%s)",
                               got->status, got->error[0] ? ", " : "", got->error);
        if (strcmp(got->error, "invalid_client") == 0 || strcmp(got->error, "unauthorized_client") == 0)
                json_del(file, "client"); /* it has forgotten us: register anew */
        end_tokens(f, file);
        return REFRESH_ENDED;
}

enum refreshed coroutine_fn oauth_refresh(const struct tokenfile *f, struct err *e)
{
        _cleanup_json_ struct json *file = tokenfile_read(f, true), *tokens = NULL;
        _cleanup_(reply_done) struct reply got = { 0 };
        const struct json *old = json_get(file, "tokens");
        char now[RFC3339_LEN];

        if (!json_get_str(old, "refresh", NULL)) {
                (void) err_set(e, -EACCES, "the sign-in has ended");
                if (old)
                        end_tokens(f, file);
                return REFRESH_ENDED;
        }
        if (json_get(file, "refreshing")) {
                (void) err_set(e, -EACCES, "the answer to an earlier refresh was lost");
                end_tokens(f, file);
                return REFRESH_ENDED;
        }
        json_set_str(file, "refreshing", rfc3339(wall_ms(), now));
        if (tokenfile_write(f, file, e) < 0)
                return REFRESH_LATER;
        if (ask_refresh(file, &got, e) == 0 && got.status == 200)
                tokens = take_tokens(got.json, json_get_str(old, "scope", NULL), json_get_str(old, "refresh", NULL));
        if (!tokens)
                return judge_refusal(f, file, &got, e);
        json_set(file, "tokens", steal_ptr(tokens));
        json_del(file, "refreshing");
        return tokenfile_write(f, file, e) < 0 ? REFRESH_ENDED : REFRESH_DONE;
}

static void challenge_of(const char *verifier, struct buf *out)
{
        unsigned char digest[HASH_LEN];

        sha256_of(verifier, strlen(verifier), digest);
        (void) b64url_encode(out, digest, sizeof digest);
}

char *oauth_link(const struct as_meta *m, const char *client_id, const char *redirect_uri, const char *scope,
                 const char *state, const char *verifier)
{
        _cleanup_buf_ struct buf query = BUF_MAX(FORM_MAX), challenge = BUF_MAX(128);
        int r = add_field(&query, "response_type", "code");

        challenge_of(verifier, &challenge);
        if (r == 0)
                r = add_field(&query, "client_id", client_id);
        if (r == 0)
                r = add_field(&query, "redirect_uri", redirect_uri);
        if (r == 0)
                r = add_field(&query, "code_challenge", buf_cstr(&challenge));
        if (r == 0)
                r = add_field(&query, "code_challenge_method", "S256");
        if (r == 0)
                r = add_field(&query, "state", state);
        if (r == 0)
                r = add_field(&query, "scope", scope);
        if (r == 0)
                r = add_field(&query, "resource", m->resource);
        if (r == 0 && scope_has(scope, STR("offline_access")))
                r = add_field(&query, "prompt", "consent"); /* OpenID Connect §11 */
        if (r < 0)
                return NULL;
        return xasprintf("%s%c%s", m->authorize, strchr(m->authorize, '?') ? '&' : '?', buf_cstr(&query));
}
