/* token_http: the token endpoint (RFC 6749 §3.2) and the revocation endpoint (RFC 7009), for public clients. */
#include "auth/handlers.h"
#include "auth/params.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

static void coroutine_fn reply_pair(struct call *call, const struct token_pair *p)
{
        _cleanup_buf_ struct buf b = BUF_MAX(2048);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "access_token", p->access);
        jw_kstr(&w, "token_type", "Bearer");
        jw_kint(&w, "expires_in", p->expires_in);
        jw_kstr(&w, "refresh_token", p->refresh);
        jw_kstr(&w, "scope", p->scope);
        (void) jw_end_all(&w);
        oauth_no_store(call);
        (void) call_reply(call, 200, "application/json", b.p, b.len);
}

static void coroutine_fn reply_error(struct call *call, enum token_error x, const struct err *e)
{
        if (x == TOKEN_FAILED) {
                (void) call_add_header(call, "Retry-After", "2");
                oauth_error(call, 503, "temporarily_unavailable", "the store does not answer: nothing was changed");
        } else {
                oauth_error(call, 400, x == TOKEN_INVALID_TARGET ? "invalid_target" : "invalid_grant", "%s",
                            err_text(e));
        }
}

/* The form, and the client it names: known, or told invalid_client, upon which clients register anew. */
static bool coroutine_fn read_request(struct auth *a, struct call *call, struct buf *body, char **ret_client)
{
        _cleanup_free_ char *id = NULL;
        _cleanup_client_ struct client c = { 0 };
        struct err e = { 0 };
        int r = form_read(call, body, &e);

        if (r < 0) {
                oauth_error(call, r == -EMSGSIZE ? 413 : 400, "invalid_request", "%s", err_text(&e));
                return false;
        }
        r = param_get(buf_str(body), "client_id", &id);
        if (r < 0 || (r == 0 && !call_header(call, "Authorization").p)) {
                oauth_error(call, 400, "invalid_request", "client_id is missing, malformed or given twice");
                return false;
        }
        /* There are no client secrets: whoever comes with one (RFC 6749 §2.3.1) is not one of ours. */
        r = id ? clients_get(a->db, id, &c) : -ENOENT;
        if (r == -ENOENT) {
                oauth_error(call, 401, "invalid_client", "the client is not known here: it must register again");
                return false;
        }
        if (r < 0) {
                reply_error(call, TOKEN_FAILED, &e);
                return false;
        }
        *ret_client = steal_ptr(id);
        return true;
}

static bool coroutine_fn given_twice(struct call *call, struct str form)
{
        static const char *const names[] = { "grant_type",    "code",          "redirect_uri",
                                             "code_verifier", "refresh_token", "scope" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                _cleanup_free_ char *v = NULL;

                if (param_get(form, names[i], &v) < 0) {
                        oauth_error(call, 400, "invalid_request", "%s is malformed or given twice", names[i]);
                        return true;
                }
        }
        return false;
}

static void coroutine_fn token_for_code(struct auth *a, struct call *call, struct str form, const char *client)
{
        _cleanup_free_ char *code = param_str(form, "code"), *uri = param_str(form, "redirect_uri"),
                            *verifier = param_str(form, "code_verifier"), *resource = param_str(form, "resource");
        struct token_pair p = { 0 };
        struct err e = { 0 };

        if (!code || !verifier) {
                oauth_error(call, 400, "invalid_request", "%s is missing", code ? "code_verifier" : "code");
                return;
        }
        enum token_error x = code_redeem(a, str_of(code), client, uri, str_of(verifier), resource, &p, &e);
        if (x == TOKEN_OK)
                reply_pair(call, &p);
        else
                reply_error(call, x, &e);
}

static void coroutine_fn token_for_refresh(struct auth *a, struct call *call, struct str form, const char *client)
{
        _cleanup_free_ char *refresh = param_str(form, "refresh_token"), *resource = param_str(form, "resource");
        struct token_pair p = { 0 };
        struct err e = { 0 };

        if (!refresh) {
                oauth_error(call, 400, "invalid_request", "refresh_token is missing");
                return;
        }
        enum token_error x = refresh_rotate(a, str_of(refresh), client, resource, &p, &e);
        if (x == TOKEN_OK)
                reply_pair(call, &p);
        else
                reply_error(call, x, &e);
}

void coroutine_fn serve_token(struct auth *a, struct call *call)
{
        _cleanup_buf_ struct buf body = BUF_MAX(FORM_MAX);
        _cleanup_free_ char *client = NULL;

        if (!read_request(a, call, &body, &client) || given_twice(call, buf_str(&body)))
                return;
        _cleanup_free_ char *type = param_str(buf_str(&body), "grant_type");
        if (cstr_eq(type, "authorization_code"))
                token_for_code(a, call, buf_str(&body), client);
        else if (cstr_eq(type, "refresh_token"))
                token_for_refresh(a, call, buf_str(&body), client);
        else
                oauth_error(call, 400, type ? "unsupported_grant_type" : "invalid_request",
                            "grant_type must be authorization_code or refresh_token");
}

void coroutine_fn serve_revoke(struct auth *a, struct call *call)
{
        _cleanup_buf_ struct buf body = BUF_MAX(FORM_MAX);
        _cleanup_free_ char *client = NULL;

        if (!read_request(a, call, &body, &client))
                return;
        _cleanup_free_ char *token = param_str(buf_str(&body), "token");
        if (!token) {
                oauth_error(call, 400, "invalid_request", "token is missing");
                return;
        }
        if (token_revoke(a, str_of(token), client) < 0) {
                (void) call_add_header(call, "Retry-After", "2"); /* RFC 7009 §2.2.1 */
                oauth_error(call, 503, "temporarily_unavailable", "the token could not be revoked now");
                return;
        }
        oauth_no_store(call);
        (void) call_reply(call, 200, NULL, NULL, 0);
}
