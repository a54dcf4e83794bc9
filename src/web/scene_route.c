#include "web/scene_route.h"

#include "base/mem.h"
#include "control/scene_ports.h"
#include "http/url.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FRESH_MS 1000

/* The app's cookies: of no concern to a service, and not for one to set (docs/sign-in.md). */
static const char *const private_cookies[] = { "psbx_", "__Host-psbx_", NULL };
/* The host name holds the key: no address of another site is told it. */
static const char *const more_headers[] = { "Referrer-Policy", "same-origin", NULL };

void scene_route_unref(struct scene_route *r)
{
        if (!r || --r->refs)
                return;
        wires_done(&r->services);
        free(r->outside);
        free(r->host);
        free(r);
}

void scene_route_unrefp(struct scene_route **r)
{
        scene_route_unref(*r);
}

void scene_route_detach(void *route)
{
        scene_route_unref(route);
}

struct scene_route *scene_route_at(const struct control *c, unsigned port)
{
        struct scene_route *r = xcalloc(1, sizeof *r);

        r->refs = 1;
        r->c = c;
        r->port = port;
        return r;
}

uint16_t scene_route_port(const struct scene_route *r)
{
        return r->services.wire[r->index].target_port;
}

const char *scene_route_service(const struct scene_route *r)
{
        return r->services.wire[r->index].name;
}

static int add_inner(const struct scene_route *r, size_t index, struct buf *out)
{
        uint16_t port = r->services.wire[index].target_port;

        return port == 80 ? buf_adds(out, "http://localhost") : buf_addf(out, "http://localhost:%u", port);
}

/* "name:port" in parts; what has no port of its own has otherwise. False: no port at all. */
static bool split_host(struct str host, uint64_t otherwise, struct str *ret_name, uint64_t *ret_port)
{
        const char *colon = host.n ? memrchr(host.p, ':', host.n) : NULL;

        *ret_name = host;
        *ret_port = otherwise;
        if (!colon || memchr(colon, ']', (size_t) (host.p + host.n - colon)))
                return true;
        ret_name->n = (size_t) (colon - host.p);
        return parse_u64(str_n(colon + 1, host.n - ret_name->n - 1), UINT16_MAX, ret_port) == 0;
}

/* The same where scenes have ports: those of the range, at the host that this one was asked by. */
static int inward_port(const struct scene_route *r, struct str host, struct buf *out)
{
        const char *box, *service;
        struct str name, mine;
        uint64_t port, own;

        (void) split_host(str_of(r->host), 80, &mine, &own);
        if (!split_host(host, 80, &name, &port) || !str_ieq(name, mine) ||
            !scene_port_in_range(r->c->scene_ports, (unsigned) port))
                return 0;
        int index = scene_port_owner(r->c->scene_ports, (unsigned) port, &box, &service) && cstr_eq(box, r->box)
                            ? scene_service_find(&r->services, str_of(service))
                            : -EACCES;
        if (index < 0)
                return -EACCES;
        return add_inner(r, (size_t) index, out) == 0 ? 1 : -ENOBUFS;
}

/* Another service of the box is told as the service itself would know it; another box is nobody's business. */
static int inward(void *arg, struct str origin, struct buf *out)
{
        const struct scene_route *r = arg;
        const char *sep = memmem(origin.p, origin.n, "://", 3);
        struct scene_name name;
        struct str label;

        if (str_ieq(origin, str_of(r->outer_origin)))
                return buf_adds(out, r->inner_origin) == 0 ? 1 : -ENOBUFS;
        size_t skip = sep ? (size_t) (sep - origin.p) + 3 : origin.n;
        if (r->port)
                return inward_port(r, str_n(origin.p + skip, origin.n - skip), out);
        if (!scene_host_label(r->c, str_n(origin.p + skip, origin.n - skip), &label) || !scene_name_parse(label, &name))
                return 0;
        int index = str_ieq(name.box, str_of(r->box)) && scene_key_ok(r->c, r->box, name.key)
                            ? scene_service_find(&r->services, name.service)
                            : -EACCES;
        if (index < 0)
                return -EACCES;
        return add_inner(r, (size_t) index, out) == 0 ? 1 : -ENOBUFS;
}

static bool is_here(struct str host)
{
        return str_ieq(host, STR("localhost")) || str_eq(host, STR("127.0.0.1")) || str_eq(host, STR("0.0.0.0")) ||
               str_eq(host, STR("[::1]")) || str_eq(host, STR("[::]"));
}

/* The service behind host:port as it is known inside: by the box's own address and the port a process listens on, or by
 * its name and the port others use. */
static int inner_service(const struct scene_route *r, struct str host, uint64_t port)
{
        const struct wire *mine = &r->services.wire[r->index];

        if (is_here(host) && (port == mine->target_port || port == mine->port))
                return (int) r->index;
        for (size_t i = 0; i < r->services.count; i++) {
                const struct wire *s = &r->services.wire[i];

                if (is_here(host) ? port == s->target_port : str_ieq(host, str_of(s->name)) && port == s->port)
                        return (int) i;
        }
        return -ENOENT;
}

/* Where the client finds another service of the box. */
static int add_outer(const struct scene_route *r, size_t index, struct buf *out)
{
        struct str name;
        uint64_t own;

        if (!r->port)
                return scene_origin(r->c, r->box, &r->services, index, out);
        unsigned port = scene_port_find(r->c->scene_ports, r->box, r->services.wire[index].name);
        (void) split_host(str_of(r->host), 80, &name, &own);
        return port ? buf_addf(out, "http://%.*s:%u", (int) name.n, name.p, port) : -ENOENT;
}

static int outward(void *arg, struct str origin, struct buf *out)
{
        const struct scene_route *r = arg;
        bool https = str_ieq(str_n(origin.p, min_size(origin.n, 8)), STR("https://"));
        struct str host = str_n(origin.p + (https ? 8 : 7), origin.n - (https ? 8 : 7));
        uint64_t port;

        if (!split_host(host, https ? 443 : 80, &host, &port))
                return 0;
        int index = inner_service(r, host, port);
        if (index < 0)
                return 0;
        int e = (size_t) index == r->index ? buf_adds(out, r->outer_origin) : add_outer(r, (size_t) index, out);
        return e == 0 ? 1 : 0;
}

/* Outside a page of this scene is one of that origin; what it redirects to comes back. */
static int leave(void *arg, struct str origin, struct buf *out)
{
        const struct scene_route *r = arg;
        _cleanup_buf_ struct buf drop = BUF_MAX(512);

        if (str_ieq(origin, str_of(r->outer_origin)))
                return buf_adds(out, r->outside->origin) == 0 ? 1 : -ENOBUFS;
        return inward(arg, origin, &drop) ? -EACCES : 0;
}

static int come_back(void *arg, struct str origin, struct buf *out)
{
        const struct scene_route *r = arg;

        if (!str_ieq(origin, str_of(r->outside->origin)))
                return 0;
        return buf_adds(out, r->outer_origin) == 0 ? 1 : 0;
}

static void fill_outside(struct scene_route *r)
{
        struct url u;

        if (!r->services.external_base_url || url_parse(r->services.external_base_url, &u, NULL) < 0)
                return;
        struct scene_outside *o = r->outside = xcalloc(1, sizeof *o);
        const char *open = strchr(u.host, ':') ? "[" : "", *close = open[0] ? "]" : "";
        if (u.port == (u.https ? 443 : 80))
                (void) snprintf(o->host, sizeof o->host, "%s%s%s", open, u.host, close);
        else
                (void) snprintf(o->host, sizeof o->host, "%s%s%s:%u", open, u.host, close, u.port);
        (void) snprintf(o->origin, sizeof o->origin, "%s://%s", u.https ? "https" : "http", o->host);
        (void) snprintf(o->base, sizeof o->base, "%s", cstr_eq(u.path, "/") ? "" : u.path);
        (void) snprintf(o->key, sizeof o->key, "outside %.80s", o->origin);
        o->policy = (struct proxy_policy){ .host = o->host,
                                           .base = o->base,
                                           .inward = leave,
                                           .outward = come_back,
                                           .private_cookies = private_cookies,
                                           .cookie_prefix = r->port ? r->cookie_prefix : NULL,
                                           .more = more_headers,
                                           .arg = r };
}

bool scene_route_leaves(const struct scene_route *r, const struct call *call)
{
        if (!r->outside)
                return false;
        /* scenePaths are those of sceneUrl, the first service's. */
        return r->services.wire[r->index].mode == WIRE_EXTERNAL ||
               (r->index == 0 && wires_scene_path(&r->services, call_path(call)));
}

static void fill(struct scene_route *r, const struct call *call)
{
        struct str host = call_host(call);
        bool https = str_eq(call_header(call, "X-Forwarded-Proto"), STR("https"));
        uint16_t port = scene_route_port(r);
        size_t n = (size_t) snprintf(r->outer_origin, sizeof r->outer_origin, "%s://", https ? "https" : "http");

        for (size_t i = 0; i < host.n && n < sizeof r->outer_origin - 1; i++)
                r->outer_origin[n++] = host.p[i] >= 'A' && host.p[i] <= 'Z' ? (char) (host.p[i] + 32) : host.p[i];
        r->outer_origin[n] = '\0';
        if (port == 80)
                (void) snprintf(r->inner, sizeof r->inner, "localhost");
        else
                (void) snprintf(r->inner, sizeof r->inner, "localhost:%u", port);
        (void) snprintf(r->inner_origin, sizeof r->inner_origin, "http://%s", r->inner);
        const struct wire *w = &r->services.wire[r->index];
        (void) snprintf(r->key, sizeof r->key, "%s %s %u %s", r->box, wire_mode_name(w->mode), port, w->from_box);
        fill_outside(r);
        /* The forwarded host has no key in it, and agrees with Origin: frameworks compare the two. The scheme agrees as
         * well, since a service of its own knows of no TLS (docs/scenes.md). */
        r->policy = (struct proxy_policy){ .host = r->inner,
                                           .forwarded_host = r->inner,
                                           .forwarded_proto = "http",
                                           .inward = inward,
                                           .outward = outward,
                                           .private_cookies = private_cookies,
                                           .cookie_prefix = r->port ? r->cookie_prefix : NULL,
                                           .more = more_headers,
                                           .arg = r };
}

static int resolve_box(struct scene_route *r, struct str service, struct err *e)
{
        struct box_row row = { 0 };
        int err = boxes_get(r->c->db, NULL, r->box, &row, e);

        if (err < 0)
                return err;
        (void) snprintf(r->account, sizeof r->account, "%s", row.account);
        wires_read(&row, &r->services);
        box_row_done(&row);
        int index = scene_service_find(&r->services, service);
        if (index < 0)
                return -ENOENT;
        r->index = (size_t) index;
        return 0;
}

/*
 * Every port of the host gets every cookie, and its pages' scripts see those that are not HttpOnly. So a service's
 * cookies have a name outside that holds its port and a secret: other scenes can neither read nor forge them.
 */
static int resolve_port(struct scene_route *r, struct err *e)
{
        char secret[SCENE_KEY_LEN + 1];
        const char *box, *service;

        if (!scene_port_owner(r->c->scene_ports, r->port, &box, &service))
                return -ENOENT;
        (void) snprintf(r->box, sizeof r->box, "%s", box);
        scene_port_key(r->c, "cookies", r->box, r->port, secret);
        (void) snprintf(r->cookie_prefix, sizeof r->cookie_prefix, "s%u-%s-", r->port, secret);
        return resolve_box(r, str_of(service), e);
}

static int resolve(struct scene_route *r, const struct scene_name *name, struct err *e)
{
        for (size_t i = 0; i < name->box.n; i++) {
                char c = name->box.p[i];

                r->box[i] = c >= 'A' && c <= 'Z' ? (char) (c + 32) : c;
        }
        /* The key first: without it nobody learns what exists. */
        if (!scene_key_ok(r->c, r->box, name->key))
                return -ENOENT;
        return resolve_box(r, name->service, e);
}

int scene_route_find(const struct control *c, struct call *call, struct scene_route **ret, struct err *e)
{
        struct scene_route *r = call_attached(call);
        unsigned port = r ? r->port : 0;
        struct scene_name name;
        struct str label;

        *ret = NULL;
        if (r && loop_now() < r->until && str_eq(call_host(call), str_of(r->host))) {
                r->refs++;
                *ret = r;
                return 0;
        }
        /* By a port to its scene and nowhere else; where scenes have ports, names are not theirs. */
        if (!port &&
            (c->scene_ports || !scene_host_label(c, call_host(call), &label) || !memmem(label.p, label.n, "--", 2)))
                return 0;
        if (!port && !scene_name_parse(label, &name))
                return -ENOENT;
        r = scene_route_at(c, port);
        r->host = xstrndup(call_host(call).p, call_host(call).n);
        int err = port ? resolve_port(r, e) : resolve(r, &name, e);
        if (err < 0) {
                scene_route_unref(r);
                return err;
        }
        r->until = loop_now() + FRESH_MS;
        fill(r, call);
        r->refs++;
        call_attach(call, r, scene_route_detach);
        *ret = r;
        return 0;
}
