#include "web/scene_page.h"

#include "auth/page.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

/* A page load, not a script's request or a picture. */
static bool wants_page(const struct call *call)
{
        struct str accept = call_header(call, "Accept");

        return (str_eq(call_method(call), STR("GET")) || str_eq(call_method(call), STR("HEAD"))) &&
               str_has(accept, STR("text/html"));
}

/* The page stands alone: every other address of this host is the service's. */
static void add_headers(struct call *call, const char *nonce)
{
        _cleanup_free_ char *policy =
                xasprintf("default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; "
                          "base-uri 'none'; form-action 'none'",
                          nonce, nonce);

        (void) call_add_header(call, "Content-Security-Policy", policy);
        (void) call_add_header(call, "Referrer-Policy", "no-referrer");
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_add_header(call, "X-Psbx-Scene", "down"); /* how the page's script tells it from the product */
}

static void coroutine_fn reply(struct auth *a, struct call *call, unsigned status, const char *state,
                               const struct scene_route *route, const char *why)
{
        _cleanup_json_ struct json *data = json_obj();
        _cleanup_free_ char *nonce = random_token(16);
        char port[8] = "";

        add_headers(call, nonce);
        json_set_str(data, "nonce", nonce);
        json_set_bool(data, state, true);
        json_set_bool(data, "retry", route != NULL);
        if (route) {
                (void) snprintf(port, sizeof port, "%u", scene_route_port(route));
                (void) call_add_header(call, "Retry-After", "2");
                json_set_str(data, "service", scene_route_service(route));
                json_set_str(data, "box", route->box);
                json_set_str(data, "port", port);
                json_set_str(data, "why", why);
        }
        page_alone(a, call, status, "scene.html", data);
}

void coroutine_fn scene_page_unknown(struct auth *a, struct call *call)
{
        if (wants_page(call)) {
                reply(a, call, 404, "unknown", NULL, NULL);
                return;
        }
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_reply_error(call, 404, "no_scene",
                                "there is nothing to see at this address: it may be misspelt, or its box is gone");
}

void coroutine_fn scene_page_failed(struct auth *a, struct call *call, const struct scene_route *route, bool leaves,
                                    int r, const struct err *e)
{
        bool own = !leaves && route->services.wire[route->index].mode == WIRE_BOX;
        bool down = own && r == -ECONNREFUSED, stopped = own && (r == -ESTALE || r == -ENOENT || r == -EAGAIN);
        unsigned status = stopped ? 503 : r == -ETIMEDOUT ? 504 : 502;

        if (wants_page(call)) {
                reply(a, call, status, down ? "down" : stopped ? "stopped" : "broken", route, err_text(e));
                return;
        }
        (void) call_add_header(call, "Retry-After", "2");
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_add_header(call, "X-Psbx-Scene", "down");
        if (down)
                (void) call_reply_error(call, status, "nothing_listens", "nothing listens on port %u of the box %s",
                                        scene_route_port(route), route->box);
        else if (stopped)
                (void) call_reply_error(call, status, "box_not_running", "%s", err_text(e));
        else
                (void) call_reply_error(call, status, "service_failed", "the service \"%s\" of the box %s: %s",
                                        scene_route_service(route), route->box, err_text(e));
}
