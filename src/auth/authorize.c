/*
 * authorize: the authorization endpoint (RFC 6749 §4.1.1, OAuth 2.1 §4.1.1) and the consent page.
 *
 * What is wrong with the client or its redirect URI is shown on a page; everything else goes back to the client, with
 * state and iss (RFC 9207). A person who is not signed in signs in on the same page. Consent is asked every time: a
 * public client cannot prove who it is.
 */
#include "auth/handlers.h"
#include "auth/params.h"
#include "auth/password.h"
#include "auth/pkce.h"
#include "auth/redirect.h"

#include "base/b64.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define QUERY_MAX ((size_t) 8 << 10)
#define STATE_MAX 2048

struct ask {
        struct client client;
        char *redirect_uri, *state, *challenge, *resource;
        struct str query; /* the request as it came */
};

static void ask_done(struct ask *k)
{
        client_done(&k->client);
        freep(&k->redirect_uri);
        freep(&k->state);
        freep(&k->challenge);
        freep(&k->resource);
}
#define _cleanup_ask_ _cleanup_(ask_done)

/* ---- going back to the client ---- */

static void coroutine_fn back(struct visit *v, struct ask *k, const char *key, const char *value,
                              const char *description)
{
        _cleanup_buf_ struct buf to = BUF_MAX(16 << 10);

        (void) buf_adds(&to, k->redirect_uri);
        (void) param_add(&to, key, value);
        if (description)
                (void) param_add(&to, "error_description", description);
        if (k->state)
                (void) param_add(&to, "state", k->state);
        (void) param_add(&to, "iss", v->origin);
        visit_redirect(v, buf_cstr(&to));
}

static void coroutine_fn back_error(struct visit *v, struct ask *k, const char *error, const char *description)
{
        back(v, k, "error", error, description);
}

/* ---- the request ---- */

/* The client and where it wants its answer. False when a page was shown: nothing may be sent to an address that is not
 * known to be the client's. */
static bool coroutine_fn read_client(struct visit *v, struct ask *k)
{
        _cleanup_free_ char *id = param_str(k->query, "client_id"), *uri = NULL;
        struct err e = { 0 };

        if (!id) {
                visit_message(v, 400, "authorize_bad_title", "authorize_no_client");
                return false;
        }
        int r = client_find(v->a, v->call, id, &k->client, &e);
        if (r < 0) {
                visit_message(v, r == -ENOENT ? 400 : 503, "authorize_bad_title",
                              r == -ENOENT ? "authorize_unknown_client" : "authorize_later");
                return false;
        }
        r = param_get(k->query, "redirect_uri", &uri);
        if (r == 0) {
                /* RFC 6749 §3.1.2.3: it may be left out when exactly one is registered. */
                _cleanup_json_ struct json *uris = NULL;

                if (json_parse(k->client.redirect_uris, strlen(k->client.redirect_uris), &uris, NULL) == 0 &&
                    json_len(uris) == 1)
                        uri = xstrdup(json_str(json_at(uris, 0)));
        }
        if (r < 0 || !uri || !client_allows(&k->client, uri)) {
                visit_message(v, 400, "authorize_bad_title", "authorize_bad_redirect");
                return false;
        }
        k->redirect_uri = steal_ptr(uri);
        return true;
}

/* The scopes we know among those asked for; none asked for is all. False when there was none of ours. */
static bool scope_ok(const char *scope)
{
        struct str rest = str_of(scope);

        if (!str_trim(rest, " ").n)
                return true;
        while (rest.n)
                if (str_eq(str_cut(&rest, ' '), STR(AUTH_SCOPE)))
                        return true;
        return false;
}

/* Everything else (RFC 6749 §4.1.2.1, RFC 7636 §4.4.1, RFC 8707 §2): false when the client was told. */
static bool coroutine_fn read_rest(struct visit *v, struct ask *k)
{
        _cleanup_free_ char *type = NULL, *method = NULL, *scope = NULL;
        const char *error = "invalid_request", *why = NULL;
        int state = param_get(k->query, "state", &k->state), type_given = param_get(k->query, "response_type", &type),
            challenge = param_get(k->query, "code_challenge", &k->challenge),
            method_given = param_get(k->query, "code_challenge_method", &method),
            scope_given = param_get(k->query, "scope", &scope),
            resource = param_get(k->query, "resource", &k->resource);

        if (state < 0 || (k->state && strlen(k->state) > STATE_MAX))
                why = "state is malformed, given twice, or too long";
        else if (type_given < 0 || type_given == 0)
                why = "response_type is missing or given twice";
        else if (!cstr_eq(type, "code"))
                error = "unsupported_response_type", why = "only the response type code is possible";
        else if (challenge <= 0)
                why = "code_challenge is required (PKCE)";
        else if (method_given <= 0 || !cstr_eq(method, "S256"))
                why = "code_challenge_method must be S256";
        else if (!pkce_challenge_ok(str_of(k->challenge)))
                why = "code_challenge is not that of S256";
        else if (resource < 0 || (resource && !resource_ok(k->resource, v->origin)))
                error = "invalid_target", why = "the resource is not this server";
        else if (scope_given < 0 || (scope_given && !scope_ok(scope)))
                error = "invalid_scope", why = "the only scope is " AUTH_SCOPE;
        if (!why)
                return true;
        back_error(v, k, error, why);
        return false;
}

/* ---- the page ---- */

static void describe_redirect(struct visit *v, const struct ask *k)
{
        struct str host = { 0 };
        enum redirect_kind kind = redirect_check(str_of(k->redirect_uri), &host);
        char text[260];

        (void) snprintf(text, sizeof text, "%.*s", (int) min_size(host.n, sizeof text - 1), host.p);
        json_set_str(v->data, "redirect_host", text);
        json_set_bool(v->data, "loopback", kind == REDIRECT_LOOPBACK);
        json_set_bool(v->data, "web", kind == REDIRECT_HTTPS);
        json_set_bool(v->data, "app", kind == REDIRECT_APP);
}

static void coroutine_fn consent_page(struct visit *v, struct ask *k, unsigned status, const char *error_key,
                                      const char *login)
{
        _cleanup_free_ char *token = form_token(v, "consent"), *resource = xasprintf("%s/mcp", v->origin);
        _cleanup_buf_ struct buf request = BUF_MAX(2 * QUERY_MAX), here = BUF_MAX(QUERY_MAX + 32);
        bool named = k->client.name[0] != '\0';

        (void) b64url_encode(&request, k->query.p, k->query.n);
        (void) buf_addf(&here, "/authorize?%.*s", (int) k->query.n, k->query.p);
        json_set_str(v->data, "here", buf_cstr(&here));
        json_set_str(v->data, "passkey_next", buf_cstr(&here));
        json_set_str(v->data, "csrf", token);
        json_set_str(v->data, "request", buf_cstr(&request));
        json_set_bool(v->data, "named", named);
        json_set_str(v->data, "client", named ? k->client.name : visit_text(v, "client_unnamed"));
        if (k->client.document) {
                char host[260];

                (void) snprintf(host, sizeof host, "%.*s", (int) min_size(strcspn(k->client.id + 8, "/"), 250),
                                k->client.id + 8);
                json_set_str(v->data, "client_host", host);
        }
        json_set_str(v->data, "resource", resource);
        json_set_str(v->data, "login", login ? login : "");
        if (error_key)
                json_set_str(v->data, "error", visit_text(v, error_key));
        json_set_bool(v->data, "no_people", people_count(v->a->db) == 0);
        describe_redirect(v, k);
        visit_page(v, status, "consent.html");
}

/* Signed in already, or with what the form brought. False when the page was shown again. */
static bool coroutine_fn sign_in_first(struct visit *v, struct ask *k)
{
        if (v->signed_in)
                return true;
        _cleanup_free_ char *login = visit_field(v, "login"), *password = visit_field(v, "password");
        _cleanup_free_ struct person *p = xcalloc(1, sizeof *p);
        struct err e = { 0 };
        int64_t wait = 0;
        int r = password_sign_in(v, login, password, p, &wait);

        if (r == 0)
                r = session_start(v, p, &e);
        if (r == 0)
                return true;
        if (r == -ECANCELED)
                return false;
        bool wrong = r == -EACCES;
        if (r == -EAGAIN) {
                json_set_int(v->data, "seconds", (wait + 999) / 1000);
                json_set_bool(v->data, "wait", true);
        }
        consent_page(v, k, wrong ? 422 : 429, wrong ? "error_sign_in" : r == -EAGAIN ? NULL : "error_busy", login);
        return false;
}

static void coroutine_fn allow(struct visit *v, struct ask *k)
{
        _cleanup_free_ char *code = NULL, *resource = xasprintf("%s/mcp", v->origin);
        struct code c = { .client = k->client.id,
                          .redirect_uri = k->redirect_uri,
                          .challenge = k->challenge,
                          .scope = (char *) AUTH_SCOPE,
                          .resource = resource };
        struct err e = { 0 };

        (void) snprintf(c.person, sizeof c.person, "%s", v->person.id);
        if (code_issue(v->a, &c, &code, &e) < 0) {
                back_error(v, k, "server_error", "the code could not be stored");
                return;
        }
        (void) clients_touch(v->a->db, k->client.id, v->a->now(), true);
        back(v, k, "code", code, NULL);
}

/* ---- the two ways in ---- */

static void coroutine_fn decide(struct visit *v, struct ask *k)
{
        _cleanup_free_ char *token = visit_field(v, "csrf"), *decision = visit_field(v, "decision");

        if (form_token_use(v, "consent", str_of(token)) < 0) {
                /* An old page, the same form twice, or another site's: asked anew, with a fresh token. */
                consent_page(v, k, 403, "error_stale", NULL);
                return;
        }
        if (cstr_eq(decision, "deny"))
                back_error(v, k, "access_denied", "the person said no");
        else if (!cstr_eq(decision, "allow"))
                consent_page(v, k, 422, NULL, NULL);
        else if (sign_in_first(v, k))
                allow(v, k);
}

static void coroutine_fn authorize_post(struct visit *v)
{
        _cleanup_ask_ struct ask k = { 0 };
        _cleanup_buf_ struct buf query = BUF_MAX(QUERY_MAX);
        struct err e = { 0 };

        if (form_read(v->call, &v->form, &e) < 0) {
                visit_message(v, 400, "bad_form_title", "bad_form_text");
                return;
        }
        _cleanup_free_ char *request = visit_field(v, "request");
        if (!request[0]) {
                /* A client may begin with a POST (RFC 6749 §3.1): the same as a GET. */
                _cleanup_buf_ struct buf to = BUF_MAX(QUERY_MAX + 32);

                (void) buf_addf(&to, "/authorize?%.*s", (int) v->form.len, v->form.p ? v->form.p : "");
                visit_redirect(v, buf_cstr(&to));
                return;
        }
        if (!same_origin(v->call)) {
                visit_message(v, 403, "origin_title", "origin_text");
                return;
        }
        if (b64url_decode(&query, str_of(request)) < 0) {
                visit_message(v, 400, "bad_form_title", "bad_form_text");
                return;
        }
        k.query = buf_str(&query);
        if (read_client(v, &k) && read_rest(v, &k))
                decide(v, &k);
}

void coroutine_fn page_authorize(struct visit *v)
{
        if (str_eq(call_method(v->call), STR("POST"))) {
                authorize_post(v);
                return;
        }
        _cleanup_ask_ struct ask k = { 0 };
        struct str target = call_target(v->call);

        (void) str_cut(&target, '?');
        k.query = target;
        if (target.n > QUERY_MAX - 64) {
                visit_message(v, 414, "authorize_bad_title", "authorize_long");
                return;
        }
        if (read_client(v, &k) && read_rest(v, &k))
                consent_page(v, &k, 200, NULL, NULL);
}
