#include "web/front.h"

#include "auth/keys.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include "openapi_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static bool loopback_name(struct str host)
{
        return str_ieq(host, STR("localhost")) || str_eq(host, STR("127.0.0.1")) || str_eq(host, STR("[::1]"));
}

static bool known_name(const struct front *f, struct str name)
{
        if (str_ieq(name, str_of(f->host)))
                return true;
        for (size_t i = 0; f->extra_hosts && f->extra_hosts[i]; i++)
                if (str_ieq(name, str_of(f->extra_hosts[i])))
                        return true;
        /* Whoever asks by a loopback name asked this machine. */
        return loopback_name(name);
}

bool front_host_ok(const struct front *f, struct str host)
{
        struct str name = host;
        uint64_t port = 80;
        const char *colon = NULL;

        for (size_t i = 0; i < host.n; i++)
                if (host.p[i] == ':' && (host.p[0] != '[' || memchr(host.p, ']', i)))
                        colon = host.p + i;
        if (colon) {
                name.n = (size_t) (colon - host.p);
                if (parse_u64(str_n(colon + 1, host.n - name.n - 1), 65535, &port) < 0)
                        return false;
        }
        /* A front proxy may serve a configured name on another port; loopback names must carry ours. */
        if (port != f->port && (loopback_name(name) || str_ieq(name, str_of(f->host))))
                return false;
        return known_name(f, name);
}

bool front_origin_ok(const struct front *f, struct str origin)
{
        static const struct str schemes[] = { { "http://", 7 }, { "https://", 8 } };

        for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
                if (str_starts(origin, schemes[i]))
                        return front_host_ok(f, str_n(origin.p + schemes[i].n, origin.n - schemes[i].n));
        return false;
}

static bool path_is(const struct call *c, const char *path)
{
        return str_eq(call_path(c), str_of(path));
}

static bool path_below(const struct call *c, const char *prefix)
{
        return str_starts(call_path(c), str_of(prefix));
}

static bool is_get(const struct call *c)
{
        return str_eq(call_method(c), STR("GET")) || str_eq(call_method(c), STR("HEAD"));
}

static void coroutine_fn reply_text(struct call *c, unsigned status, const char *type, struct str body)
{
        (void) call_add_header(c, "Cache-Control", "no-store");
        (void) call_reply(c, status, type, body.p, body.n);
}

/* ---- pages that need no key ---- */

static void coroutine_fn serve_ready(struct front *f, struct call *c)
{
        bool ready = !f->stopping && f->control->reconciled && f->driver_ready(f->control->driver);

        if (ready)
                reply_text(c, 200, "application/json", STR("{\"ready\":true}"));
        else
                reply_text(c, 503, "application/json",
                           f->stopping ? STR("{\"ready\":false,\"reason\":\"stopping\"}")
                                       : STR("{\"ready\":false,\"reason\":\"boxhost is not connected yet\"}"));
}

static void coroutine_fn serve_resource_metadata(struct call *c)
{
        _cleanup_buf_ struct buf b = BUF_MAX(2048);
        _cleanup_free_ char *resource = NULL;
        struct str host = call_host(c);
        struct jw w;

        /* Built from the Host the client used, which was checked: clients compare it with the URL they know. */
        resource = xasprintf("http://%.*s/mcp", (int) host.n, host.p);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "resource", resource);
        jw_karr(&w, "authorization_servers");
        jw_end(&w);
        jw_karr(&w, "scopes_supported");
        jw_str(&w, "sandbox");
        jw_end(&w);
        jw_karr(&w, "bearer_methods_supported");
        jw_str(&w, "header");
        jw_end(&w);
        jw_kstr(&w, "resource_name", "ParallelSandbox");
        (void) jw_end_all(&w);
        reply_text(c, 200, "application/json", buf_str(&b));
}

static const char home_page[] =
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>ParallelSandbox</title><style>:root{color-scheme:light dark}body{font:16px/1.5 "
        "system-ui,sans-serif;max-width:38em;"
        "margin:3em auto;padding:0 1em}code{background:#8882;padding:.1em .3em;border-radius:.3em}</style>"
        "<h1>ParallelSandbox</h1><p>This server gives coding agents parallel Linux boxes over MCP.</p>"
        "<p>The MCP endpoint is <code>/mcp</code>; the REST interface is described in <a "
        "href=/v1/openapi.json>/v1/openapi.json</a>.</p>"
        "<p>Make a key for an agent with <code>parallelsandbox keys add NAME</code>.</p></html>";

static bool coroutine_fn serve_public(struct front *f, struct call *c)
{
        if (path_is(c, "/v1/openapi.json") && is_get(c))
                reply_text(c, 200, "application/json", str_n((const char *) openapi_json, openapi_json_len));
        else if ((path_is(c, "/.well-known/oauth-protected-resource") ||
                  path_is(c, "/.well-known/oauth-protected-resource/mcp")) &&
                 is_get(c))
                serve_resource_metadata(c);
        else if (path_below(c, "/v1/blobs/"))
                rest_blob(f->control, c);
        else if (path_is(c, "/") && is_get(c)) {
                (void) call_add_header(c, "Content-Security-Policy",
                                       "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
                reply_text(c, 200, "text/html; charset=utf-8", STR(home_page));
        } else
                return false;
        return true;
}

static bool coroutine_fn serve_operation(struct front *f, struct call *c)
{
        if (path_is(c, "/healthz") && is_get(c))
                reply_text(c, 200, "application/json", STR("{\"ok\":true}"));
        else if (path_is(c, "/readyz") && is_get(c))
                serve_ready(f, c);
        else
                return false;
        return true;
}

static void coroutine_fn serve_metrics(struct front *f, struct call *c)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);

        if (metrics_write(f, &b) < 0)
                (void) call_reply_error(c, 500, "internal", "the metrics did not fit");
        else
                reply_text(c, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&b));
}

/* ---- what needs a key ---- */

static void coroutine_fn refuse(struct call *c, int r, bool presented, const struct err *e)
{
        _cleanup_buf_ struct buf challenge = BUF_MAX(1024);
        struct str host = call_host(c);

        if (r == -EACCES) {
                (void) buf_addf(&challenge,
                                "Bearer resource_metadata=\"http://%.*s/.well-known/oauth-protected-resource/mcp\", "
                                "scope=\"sandbox\"%s",
                                (int) host.n, host.p, presented ? ", error=\"invalid_token\"" : "");
                (void) call_add_header(c, "WWW-Authenticate", buf_cstr(&challenge));
                (void) call_reply_error(c, 401, "unauthorized", "%s", err_text(e));
        } else if (r == -EINVAL) {
                (void) call_reply_error(c, 400, "invalid", "%s", err_text(e));
        } else {
                (void) call_add_header(c, "Retry-After", "2");
                (void) call_reply_error(c, 503, "unavailable", "%s", err_text(e));
        }
}

static void coroutine_fn serve_mcp(struct front *f, struct call *c, struct identity *who)
{
        if (f->stopping) {
                (void) call_add_header(c, "Retry-After", "5");
                reply_text(c, 503, "application/json",
                           STR("{\"error\":\"the server is restarting; nothing was "
                               "run\",\"reason\":\"maintenance\",\"retryAfterSec\":5}"));
                return;
        }
        mcp_serve(f->mcp, c, who->account, who);
}

void coroutine_fn front_handle(struct call *call, void *arg)
{
        struct front *f = arg;
        struct str origin = call_header(call, "Origin");
        struct err e = { 0 };
        bool presented = false;

        if (serve_operation(f, call))
                return;
        if (!front_host_ok(f, call_host(call))) {
                (void) call_reply_error(call, 421, "wrong_host",
                                        "this server does not answer under the name it was asked by");
                return;
        }
        if (serve_public(f, call))
                return;
        if (origin.p && !front_origin_ok(f, origin)) {
                (void) call_reply_error(call, 403, "wrong_origin", "pages of another origin may not call this server");
                return;
        }
        if (!path_is(call, "/mcp") && !path_below(call, "/v1/") && !path_is(call, "/metrics")) {
                (void) call_reply_error(call, 404, "not_found", "there is nothing at this address");
                return;
        }
        /* Off the coroutine's stack: a waiting call keeps it for long. */
        _cleanup_free_ struct identity *who = xmalloc(sizeof *who);
        int r = identify(f->db, call, who, &presented, &e);
        if (r < 0)
                refuse(call, r, presented, &e);
        else if (path_is(call, "/mcp"))
                serve_mcp(f, call, who);
        else if (path_is(call, "/metrics") && is_get(call))
                serve_metrics(f, call);
        else if (!rest_handle(f->control, call, who))
                (void) call_reply_error(call, 404, "not_found", "there is nothing at this address");
}
