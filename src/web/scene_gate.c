#include "web/scene_gate.h"

#include "base/hash.h"
#include "base/mem.h"
#include "control/scene_ports.h"

#include <stdio.h>

#define COOKIE_SEC (30 * 24 * 3600)

static void cookie_name(unsigned port, char ret[static 32])
{
        (void) snprintf(ret, 32, "psbx_%u_scene", port);
}

/* A page elsewhere may have set cookies of this name before ours; any right one will do. */
static bool cookie_ok(const struct scene_route *r, const struct call *call)
{
        struct str all = call_header(call, "Cookie");
        char name[32], want[SCENE_KEY_LEN + 1];
        bool ok = false;

        cookie_name(r->port, name);
        scene_port_key(r->c, "pass", r->box, r->port, want);
        while (all.n) {
                struct str value = str_trim(str_cut(&all, ';'), " \t");
                struct str key = str_cut(&value, '=');

                if (str_eq(key, str_of(name)) && value.n == SCENE_KEY_LEN && mem_equal(value.p, want, SCENE_KEY_LEN))
                        ok = true;
        }
        return ok;
}

/* "scheme://host" of a header's address is a scene of this box. */
static bool of_this_box(const struct scene_route *r, struct str address)
{
        _cleanup_buf_ struct buf drop = BUF_MAX(512);
        const char *sep = address.n ? memmem(address.p, address.n, "://", 3) : NULL;
        size_t n = sep ? (size_t) (sep - address.p) + 3 : 0;

        if (!sep)
                return false;
        while (n < address.n && address.p[n] != '/' && address.p[n] != '?' && address.p[n] != '#')
                n++;
        return r->policy.inward(r->policy.arg, str_n(address.p, n), &drop) == 1;
}

/* A page is asked for, or the client is no browser. */
static bool asks_for_page(const struct call *call)
{
        return !str_starts(call_header(call, "User-Agent"), STR("Mozilla/")) ||
               str_has(call_header(call, "Accept"), STR("text/html"));
}

/*
 * Whether nobody else's page had the browser send this. Browsers say it by Sec-Fetch-Site where the address is
 * trustworthy (loopback, https), by Origin where something may change or be read; for the rest, over plain http, a page
 * of the box shows by Referer (our answers' Referrer-Policy is same-origin), and others can only open pages.
 */
static bool own_request(const struct scene_route *r, const struct call *call)
{
        struct str origin = call_header(call, "Origin"), site = call_header(call, "Sec-Fetch-Site");

        if (origin.p)
                return of_this_box(r, origin);
        if (site.p)
                return str_eq(site, STR("same-origin")) || str_eq(site, STR("none")) ||
                       str_eq(call_header(call, "Sec-Fetch-Mode"), STR("navigate"));
        /* Only browsers carry cookies of one page for another; a header of ours needs leave that we never give. */
        return asks_for_page(call) || call_header(call, "X-Psbx-Scene").p ||
               of_this_box(r, call_header(call, "Referer"));
}

/* The key and what follows it, when the request's path is a door's. */
static bool door(const struct call *call, struct str *ret_key, struct str *ret_rest)
{
        struct str target = call_origin_form(call), prefix = STR(SCENE_DOOR);
        size_t n = 0;

        if (!str_starts(target, prefix))
                return false;
        target = str_n(target.p + prefix.n, target.n - prefix.n);
        while (n < target.n && target.p[n] != '/' && target.p[n] != '?')
                n++;
        *ret_key = str_n(target.p, n);
        *ret_rest = str_n(target.p + n, target.n - n);
        return true;
}

enum scene_gate scene_gate(const struct scene_route *r, const struct call *call)
{
        struct str key, rest;

        if (door(call, &key, &rest))
                return scene_key_ok(r->c, r->box, key) ? SCENE_GATE_ENTERS : SCENE_GATE_SHUT;
        /* Another spelling of the door: nobody is told to write it, and no service shall read a key. */
        if (str_starts(call_path(call), STR(SCENE_DOOR)))
                return SCENE_GATE_SHUT;
        /* A port is another box's some day, and a worker would still be there to read what it is asked and answers. */
        if (call_header(call, "Service-Worker").p)
                return SCENE_GATE_SHUT;
        return cookie_ok(r, call) && own_request(r, call) ? SCENE_GATE_OPEN : SCENE_GATE_SHUT;
}

static void give_cookie(const struct scene_route *r, struct call *call, unsigned port)
{
        char name[32], pass[SCENE_KEY_LEN + 1];

        cookie_name(port, name);
        scene_port_key(r->c, "pass", r->box, port, pass);
        /* Lax: an address that is followed from another site comes in with it; what that site's forms send does not. */
        _cleanup_free_ char *text =
                xasprintf("%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax", name, pass, COOKIE_SEC);
        (void) call_add_header(call, "Set-Cookie", text);
}

void coroutine_fn scene_gate_enter(const struct scene_route *r, struct call *call)
{
        struct str key, rest;

        if (!door(call, &key, &rest))
                return;
        for (size_t i = 0; i < r->services.count; i++) {
                unsigned port = scene_port_find(r->c->scene_ports, r->box, r->services.wire[i].name);

                if (port)
                        give_cookie(r, call, port);
        }
        /* "//host" and "/\host" would be addresses of other hosts. */
        while (rest.n && (rest.p[0] == '/' || rest.p[0] == '\\'))
                rest = str_n(rest.p + 1, rest.n - 1);
        _cleanup_free_ char *to = xasprintf("/%.*s", (int) rest.n, rest.n ? rest.p : "");
        (void) call_add_header(call, "Location", to);
        (void) call_add_header(call, "Cache-Control", "no-store");
        (void) call_add_header(call, "Referrer-Policy", "no-referrer");
        (void) call_reply(call, 307, NULL, NULL, 0); /* method and body stay (RFC 9110 §15.4.8) */
}
