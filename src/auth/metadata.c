/* metadata: where clients learn about us (RFC 9728, RFC 8414). Built from the Host the client used, which was checked:
 * clients compare these strings with the address they know, some of them byte by byte. */
#include "auth/handlers.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static void jw_list(struct jw *w, const char *key, const char *const *items)
{
        jw_karr(w, key);
        for (; *items; items++)
                jw_str(w, *items);
        jw_end(w);
}

void coroutine_fn serve_resource_metadata(struct auth *a, struct call *call)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        char origin[ORIGIN_MAX];
        struct jw w;

        (void) a;
        auth_origin(call, origin);
        _cleanup_free_ char *resource = xasprintf("%s/mcp", origin);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "resource", resource);
        jw_list(&w, "authorization_servers", (const char *const[]){ origin, NULL });
        jw_list(&w, "scopes_supported", (const char *const[]){ AUTH_SCOPE, NULL });
        jw_list(&w, "bearer_methods_supported", (const char *const[]){ "header", NULL });
        jw_kstr(&w, "resource_name", "ParallelSandbox");
        (void) jw_end_all(&w);
        (void) call_add_header(call, "Cache-Control", "no-store");
        /* Public, and the same for everybody: the one answer that pages of other origins may read. */
        (void) call_add_header(call, "Access-Control-Allow-Origin", "*");
        (void) call_reply(call, 200, "application/json", b.p, b.len);
}

static void jw_endpoint(struct jw *w, const char *key, const char *origin, const char *path)
{
        _cleanup_free_ char *url = xasprintf("%s%s", origin, path);

        jw_kstr(w, key, url);
}

void coroutine_fn serve_server_metadata(struct auth *a, struct call *call)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);
        static const char *const none[] = { "none", NULL };
        char origin[ORIGIN_MAX];
        struct jw w;

        auth_origin(call, origin);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "issuer", origin);
        jw_endpoint(&w, "authorization_endpoint", origin, "/authorize");
        jw_endpoint(&w, "token_endpoint", origin, "/token");
        jw_endpoint(&w, "registration_endpoint", origin, "/register");
        jw_endpoint(&w, "revocation_endpoint", origin, "/revoke");
        jw_list(&w, "response_types_supported", (const char *const[]){ "code", NULL });
        jw_list(&w, "response_modes_supported", (const char *const[]){ "query", NULL });
        jw_list(&w, "grant_types_supported", (const char *const[]){ "authorization_code", "refresh_token", NULL });
        /* Left out it would mean client_secret_basic (RFC 8414 §2). */
        jw_list(&w, "token_endpoint_auth_methods_supported", none);
        jw_list(&w, "revocation_endpoint_auth_methods_supported", none);
        jw_list(&w, "code_challenge_methods_supported", (const char *const[]){ "S256", NULL });
        jw_list(&w, "scopes_supported", (const char *const[]){ AUTH_SCOPE, NULL });
        jw_list(&w, "ui_locales_supported", (const char *const[]){ "en", "ja", "zh-Hant", NULL });
        jw_kbool(&w, "authorization_response_iss_parameter_supported", true); /* RFC 9207 §3 */
        if (a->allow_metadata)
                jw_kbool(&w, "client_id_metadata_document_supported", true);
        (void) jw_end_all(&w);
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_reply(call, 200, "application/json", b.p, b.len);
}
