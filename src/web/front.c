#include "web/front.h"
#include "web/app.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "web/scenes.h"

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
        /* What a scene's page says of itself. */
        if (f->scene_to && port != f->port && port >= f->scene_from && port <= f->scene_to)
                return false;
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

/* ---- what needs no key ---- */

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

static bool coroutine_fn serve_public(struct front *f, struct call *c)
{
        if (path_is(c, "/v1/openapi.json") && is_get(c))
                reply_text(c, 200, "application/json", str_n((const char *) openapi_json, openapi_json_len));
        else if (path_below(c, "/v1/blobs/"))
                rest_blob(f->control, c);
        else
                return app_handle(c) || auth_handle(f->auth, c);
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
        if (r == -EACCES) {
                (void) auth_challenge(c, presented ? "invalid_token" : NULL);
                (void) call_reply_error(c, 401, "unauthorized", "%s", err_text(e));
        } else if (r == -EPERM) {
                (void) auth_challenge(c, "insufficient_scope");
                (void) call_reply_error(c, 403, "insufficient_scope", "%s", err_text(e));
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

        /* First of all: a scene's host is a stranger's page, whatever the path. */
        if (f->scenes && scenes_handle(f->scenes, call))
                return;
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
        int r = identify(f->auth, call, who, &presented, &e);
        if (r < 0)
                refuse(call, r, presented, &e);
        else if (path_is(call, "/mcp"))
                serve_mcp(f, call, who);
        else if (path_is(call, "/metrics") && is_get(call))
                serve_metrics(f, call);
        else if (!rest_auth_handle(f->auth, call, who) && !rest_handle(f->control, call, who))
                (void) call_reply_error(call, 404, "not_found", "there is nothing at this address");
}
