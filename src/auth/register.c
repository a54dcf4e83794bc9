/* register: dynamic client registration (RFC 7591), public clients only; and the errors of OAuth's JSON endpoints. */
#include "auth/handlers.h"
#include "auth/password.h"
#include "auth/redirect.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BODY_MAX ((size_t) 32 << 10)
#define URIS_MAX 10
#define NAME_MAX_BYTES 100
#define BURST 200
#define EVERY_MS 1000

void oauth_no_store(struct call *call)
{
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_add_header(call, "Pragma", "no-cache");
}

void coroutine_fn oauth_error(struct call *call, unsigned status, const char *error, const char *fmt, ...)
{
        _cleanup_buf_ struct buf text = BUF_MAX(2048), b = BUF_MAX(8192);
        struct jw w;
        va_list ap;

        va_start(ap, fmt);
        (void) buf_addv(&text, fmt, ap);
        va_end(ap);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "error", error);
        jw_kstrn(&w, "error_description", buf_str(&text));
        (void) jw_end_all(&w);
        oauth_no_store(call);
        (void) call_reply(call, status, "application/json", b.p, b.len);
}

/* What the client asked for, as it is kept: only valid redirect URIs, and a name that fits on a page. */
static int read_uris(const struct json *body, struct client *c, struct err *e)
{
        const struct json *uris = json_get(body, "redirect_uris");

        if (json_type(uris) != JSON_ARRAY || json_len(uris) == 0)
                return err_set(e, -EINVAL, "redirect_uris must be a list with at least one address");
        if (json_len(uris) > URIS_MAX)
                return err_set(e, -EINVAL, "at most %d redirect_uris are possible", URIS_MAX);
        for (size_t i = 0; i < json_len(uris); i++) {
                struct str uri = json_strn(json_at(uris, i));

                if (!uri.p || redirect_check(uri, NULL) == REDIRECT_BAD)
                        return err_set(e, -EINVAL,
                                       "redirect_uris: only https, http on 127.0.0.1, [::1] or localhost, and an "
                                       "application's own"
                                       " scheme are possible, without fragment or user name");
        }
        c->redirect_uris = json_text(uris);
        return 0;
}

int client_read(const struct json *body, struct client *c, struct err *e)
{
        struct str name = str_trim(json_strn(json_get(body, "client_name")), " \t\r\n");
        const char *method = json_get_str(body, "token_endpoint_auth_method", "none");

        if (json_type(body) != JSON_OBJECT)
                return err_set(e, -EPROTO, "the registration must be a JSON object");
        /* A client that cannot do without a secret would fail later: tell it now. Those that ask for one by default get
         * "none" back. */
        if (!cstr_eq(method, "none") && !cstr_eq(method, "client_secret_basic") &&
            !cstr_eq(method, "client_secret_post"))
                return err_set(e, -EPROTO, "token_endpoint_auth_method: only \"none\" is possible");
        name = utf8_prefix(name, NAME_MAX_BYTES);
        (void) snprintf(c->name, sizeof c->name, "%.*s", (int) name.n, name.p ? name.p : "");
        return read_uris(body, c, e);
}

static void coroutine_fn reply_client(struct call *call, const struct client *c)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "client_id", c->id);
        jw_kint(&w, "client_id_issued_at", c->created_at / 1000);
        if (c->name[0])
                jw_kstr(&w, "client_name", c->name);
        jw_key(&w, "redirect_uris");
        jw_raw(&w, str_of(c->redirect_uris));
        jw_karr(&w, "grant_types");
        jw_str(&w, "authorization_code");
        jw_str(&w, "refresh_token");
        jw_end(&w);
        jw_karr(&w, "response_types");
        jw_str(&w, "code");
        jw_end(&w);
        jw_kstr(&w, "token_endpoint_auth_method", "none");
        jw_kstr(&w, "scope", AUTH_SCOPE);
        (void) jw_end_all(&w);
        oauth_no_store(call);
        (void) call_reply(call, 201, "application/json", b.p, b.len);
}

static bool coroutine_fn too_many(struct auth *a, struct call *call)
{
        char address[80], key[96], after[24];

        limit_address(call, address);
        (void) snprintf(key, sizeof key, "r:%s", address);
        int64_t wait = limit_take(a->limits, str_of(key), BURST, EVERY_MS, clock_ms());
        if (!wait)
                return false;
        (void) snprintf(after, sizeof after, "%lld", (long long) (wait + 999) / 1000);
        (void) call_add_header(call, "Retry-After", after);
        oauth_error(call, 429, "temporarily_unavailable",
                    "too many clients were registered from this address: try again in %s s", after);
        return true;
}

void coroutine_fn serve_register(struct auth *a, struct call *call)
{
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);
        _cleanup_json_ struct json *j = NULL;
        _cleanup_client_ struct client c = { 0 };
        struct err e = { 0 };

        if (too_many(a, call))
                return;
        int r = call_read_all(call, &body, &e);
        if (r == 0)
                r = json_parse(body.p, body.len, &j, &e);
        if (r < 0) {
                oauth_error(call, r == -EMSGSIZE ? 413 : 400, "invalid_client_metadata", "%s", err_text(&e));
                return;
        }
        r = client_read(j, &c, &e);
        if (r < 0) {
                oauth_error(call, 400, r == -EINVAL ? "invalid_redirect_uri" : "invalid_client_metadata", "%s",
                            err_text(&e));
                return;
        }
        _cleanup_free_ char *id = random_token(18);
        (void) snprintf(c.id, sizeof c.id, "psd_%s", id);
        c.created_at = c.used_at = a->now();
        r = clients_put(a->db, &c, &e);
        if (r < 0)
                oauth_error(call, 503, "temporarily_unavailable", "the client cannot be stored now");
        else
                reply_client(call, &c);
}
