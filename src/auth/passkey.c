/* passkey: the requests of passkey.js. A challenge is a form token: of this browser, for one purpose, good once. */
#include "auth/handlers.h"
#include "auth/password.h"
#include "auth/webauthn.h"

#include "auth/cose.h"
#include "base/b64.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BODY_MAX ((size_t) 64 << 10)
#define TIMEOUT_MS 120000
#define PASSKEYS_MAX 20
#define BURST 30
#define EVERY_MS 1000

struct answer {
        struct buf client_data, attestation, auth_data, signature, credential;
        char challenge[128];
};

static void answer_done(struct answer *x)
{
        buf_done(&x->client_data);
        buf_done(&x->attestation);
        buf_done(&x->auth_data);
        buf_done(&x->signature);
        buf_done(&x->credential);
}
#define _cleanup_answer_ _cleanup_(answer_done)

static void coroutine_fn fail(struct visit *v, unsigned status, const char *text_key)
{
        visit_add_headers(v->call);
        (void) call_reply_error(v->call, status, "passkey", "%s", visit_text(v, text_key));
}

static void coroutine_fn reply(struct visit *v, struct buf *b)
{
        visit_add_headers(v->call);
        (void) call_reply(v->call, 200, "application/json", b->p, b->len);
}

/* ---- options ---- */

static void coroutine_fn sign_in_options(struct visit *v, const char *rp)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        _cleanup_free_ char *challenge = form_token(v, "passkey-get");
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "challenge", challenge);
        jw_kstr(&w, "rpId", rp);
        jw_kint(&w, "timeout", TIMEOUT_MS);
        jw_kstr(&w, "userVerification", "preferred");
        (void) jw_end_all(&w);
        reply(v, &b);
}

static int exclude(const struct passkey *k, void *arg)
{
        _cleanup_buf_ struct buf id = BUF_MAX(2048);
        struct jw *w = arg;

        (void) b64url_encode(&id, k->credential, k->credential_len);
        jw_obj(w);
        jw_kstr(w, "type", "public-key");
        jw_kstrn(w, "id", buf_str(&id));
        jw_end(w);
        return 0;
}

static void coroutine_fn register_options(struct visit *v, const char *rp)
{
        static const int algorithms[] = { COSE_ES256, COSE_EDDSA, COSE_RS256 };
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10), user = BUF_MAX(64);
        _cleanup_free_ char *challenge = form_token(v, "passkey-create");
        struct jw w;

        (void) b64url_encode(&user, v->person.id, strlen(v->person.id));
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "challenge", challenge);
        jw_kobj(&w, "rp");
        jw_kstr(&w, "id", rp);
        jw_kstr(&w, "name", "ParallelSandbox");
        jw_end(&w);
        jw_kobj(&w, "user");
        jw_kstrn(&w, "id", buf_str(&user));
        jw_kstr(&w, "name", v->person.login);
        jw_kstr(&w, "displayName", v->person.name);
        jw_end(&w);
        jw_karr(&w, "pubKeyCredParams");
        for (size_t i = 0; i < ARRAY_LEN(algorithms); i++) {
                jw_obj(&w);
                jw_kstr(&w, "type", "public-key");
                jw_kint(&w, "alg", algorithms[i]);
                jw_end(&w);
        }
        jw_end(&w);
        jw_karr(&w, "excludeCredentials");
        (void) passkeys_each(v->a->db, v->person.id, exclude, &w);
        jw_end(&w);
        jw_kobj(&w, "authenticatorSelection");
        jw_kstr(&w, "residentKey", "required"); /* one signs in without giving a login */
        jw_kbool(&w, "requireResidentKey", true);
        jw_kstr(&w, "userVerification", "preferred");
        jw_end(&w);
        jw_kstr(&w, "attestation", "none");
        jw_kint(&w, "timeout", TIMEOUT_MS);
        (void) jw_end_all(&w);
        reply(v, &b);
}

/* ---- answers ---- */

static int decode(const struct json *j, const char *key, struct buf *out)
{
        struct str s = json_strn(json_get(j, key));

        *out = BUF_MAX(BODY_MAX);
        return s.n ? b64url_decode(out, s) : 0;
}

/* The browser's answer, and the challenge it says it answers: used up before anything else is looked at. */
static int read_answer(struct visit *v, const char *purpose, const struct json *j, struct answer *x)
{
        _cleanup_json_ struct json *data = NULL;
        int r = decode(j, "clientDataJSON", &x->client_data);

        if (r == 0)
                r = decode(j, "attestationObject", &x->attestation);
        if (r == 0)
                r = decode(j, "authenticatorData", &x->auth_data);
        if (r == 0)
                r = decode(j, "signature", &x->signature);
        if (r == 0)
                r = decode(j, "id", &x->credential);
        if (r < 0 || json_parse(x->client_data.p, x->client_data.len, &data, NULL) < 0)
                return -EBADMSG;
        (void) snprintf(x->challenge, sizeof x->challenge, "%s", json_get_str(data, "challenge", ""));
        return form_token_use(v, purpose, str_of(x->challenge));
}

static void coroutine_fn register_passkey(struct visit *v, const struct json *j, const char *rp)
{
        _cleanup_answer_ struct answer x = { 0 };
        _cleanup_free_ struct passkey *k = xcalloc(1, sizeof *k);
        struct authenticator_data d = { 0 };
        struct err e = { 0 };
        int r = read_answer(v, "passkey-create", j, &x);

        if (r == 0)
                r = registration_check(buf_str(&x.client_data), buf_str(&x.attestation), x.challenge, v->origin, rp, &d,
                                       &e);
        if (r < 0 || !d.credential.p || !d.public_key.p || d.credential.n > sizeof k->credential ||
            d.public_key.n > sizeof k->public_key) {
                fail(v, 400, "error_passkey");
                return;
        }
        struct str name = utf8_prefix(str_trim(json_strn(json_get(j, "name")), " "), sizeof k->name - 1);
        random_id(k->id, 12);
        (void) snprintf(k->person, sizeof k->person, "%s", v->person.id);
        (void) snprintf(k->name, sizeof k->name, "%.*s", (int) name.n, name.n ? name.p : "");
        if (!k->name[0])
                (void) snprintf(k->name, sizeof k->name, "%s", visit_text(v, "passkey_unnamed"));
        (void) snprintf(k->rp_id, sizeof k->rp_id, "%s", rp);
        memcpy(k->credential, d.credential.p, d.credential.n);
        k->credential_len = d.credential.n;
        memcpy(k->public_key, d.public_key.p, d.public_key.n);
        k->public_key_len = d.public_key.n;
        k->sign_count = d.sign_count;
        k->created_at = v->a->now();
        r = passkeys_insert(v->a->db, k, &e);
        _cleanup_buf_ struct buf b = BUF_MAX(64);
        (void) buf_adds(&b, "{\"location\":\"/settings#passkeys\"}");
        if (r < 0)
                fail(v, r == -EEXIST ? 409 : 503, r == -EEXIST ? "error_passkey_known" : "error_busy");
        else
                reply(v, &b);
}

/* The passkey that signed, of this name of the server, and its person. A count that does not go up means a copy
 * (§6.1.1). */
static int check_sign_in(struct visit *v, const struct answer *x, const char *rp, struct person *p, struct err *e)
{
        _cleanup_free_ struct passkey *k = xcalloc(1, sizeof *k);
        struct authenticator_data d = { 0 };
        int r = passkeys_find(v->a->db, x->credential.p, x->credential.len, k);

        if (r < 0)
                return r;
        if (!cstr_eq(k->rp_id, rp))
                return -ENOENT;
        r = assertion_check(buf_str(&x->client_data), buf_str(&x->auth_data), buf_str(&x->signature),
                            str_n((const char *) k->public_key, k->public_key_len), x->challenge, v->origin, rp, &d, e);
        if (r == 0 && (d.sign_count || k->sign_count) && d.sign_count <= k->sign_count)
                r = err_set(e, -EACCES, "the passkey's count went back: it may be a copy");
        if (r == 0)
                r = people_by_id(v->a->db, k->person, p);
        if (r == 0)
                r = passkeys_used(v->a->db, k->id, d.sign_count, v->a->now());
        return r;
}

static void coroutine_fn sign_in(struct visit *v, const struct json *j, const char *rp)
{
        _cleanup_answer_ struct answer x = { 0 };
        _cleanup_free_ struct person *p = xcalloc(1, sizeof *p);
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        const char *next = json_get_str(j, "next", "");
        struct err e = { 0 };
        struct jw w;
        int r = read_answer(v, "passkey-get", j, &x);

        if (r == 0)
                r = check_sign_in(v, &x, rp, p, &e);
        if (r == 0)
                r = session_start(v, p, &e);
        if (r < 0) {
                fail(v, 400, "error_passkey_sign_in");
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "location", local_path_ok(next) ? next : "/");
        (void) jw_end_all(&w);
        reply(v, &b);
}

static bool coroutine_fn allowed(struct visit *v)
{
        char address[80], key[96];

        limit_address(v->call, address);
        (void) snprintf(key, sizeof key, "p:%s", address);
        if (limit_take(v->a->limits, str_of(key), BURST, EVERY_MS, clock_ms()) == 0)
                return true;
        (void) call_add_header(v->call, "Retry-After", "5");
        fail(v, 429, "error_busy");
        return false;
}

void coroutine_fn passkey_action(struct visit *v)
{
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);
        _cleanup_json_ struct json *j = NULL;
        struct str what = call_path(v->call), type = call_header(v->call, "Content-Type");
        struct err e = { 0 };
        char rp[256];

        what = str_n(what.p + 9, what.n - 9); /* "/passkey/" */
        bool create = str_eq(what, STR("register")) || str_eq(what, STR("register-options"));
        if (!same_origin(v->call) || !call_header(v->call, "Origin").p) {
                fail(v, 403, "origin_text");
                return;
        }
        if (create && (!v->signed_in || !session_csrf_ok(v->a, &v->login, call_header(v->call, "X-Psbx-Csrf")))) {
                fail(v, 403, "error_stale");
                return;
        }
        if (!allowed(v))
                return;
        if (!str_starts(type, STR("application/json")) || call_read_all(v->call, &body, &e) < 0 ||
            json_parse(body.p, body.len, &j, &e) < 0 || rp_id_of(v->origin, rp) < 0) {
                fail(v, 400, "error_passkey");
                return;
        }
        if (str_eq(what, STR("sign-in-options")))
                sign_in_options(v, rp);
        else if (str_eq(what, STR("sign-in")))
                sign_in(v, j, rp);
        else if (str_eq(what, STR("register-options")))
                register_options(v, rp);
        else if (create)
                register_passkey(v, j, rp);
        else
                fail(v, 404, "not_found_text");
}
