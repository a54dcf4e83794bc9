/*
 * External names: what a box sends to name:port goes to externalBaseUrl as HTTP, request by request. The connection is
 * the HTTP server's, the exchange is the proxy's (http/proxy.h); here is where it leads and what is rewritten.
 */
#include "control/wire_hub.h"

#include "control/external.h"
#include "http/proxy.h"

#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define STOP_MS 2000

/* One request: the wire as it is now, since it may lead elsewhere since the last one of this connection. */
struct forward {
        struct wire_conn *x;
        struct box_row row;
        struct wires all;
        struct url base;
        char host[300];   /* of externalBaseUrl, as Host says it */
        char origin[320]; /* of externalBaseUrl */
        char here[300];   /* host and port as the box knows it */
        char key[96];     /* of where it leads, among the connections kept for this one */
        const struct wire *wire;
        struct proxy_policy policy;
        bool dial_failed; /* and was counted */
};

static void print_host(const char *host, unsigned port, unsigned standard, char *out, size_t n)
{
        const char *open = strchr(host, ':') ? "[" : "", *close = open[0] ? "]" : "";

        if (port == standard)
                (void) snprintf(out, n, "%s%s%s", open, host, close);
        else
                (void) snprintf(out, n, "%s%s%s:%u", open, host, close, port);
}

/* The box's own view of the name is what a page in it says in Origin; outside it is that of externalBaseUrl. */
static int inward(void *arg, struct str origin, struct buf *out)
{
        const struct forward *f = arg;

        if (!str_starts(origin, STR("http://")) || !str_ieq(str_n(origin.p + 7, origin.n - 7), str_of(f->here)))
                return 0;
        return buf_adds(out, f->origin) < 0 ? -1 : 1;
}

static int outward(void *arg, struct str origin, struct buf *out)
{
        const struct forward *f = arg;

        if (!str_ieq(origin, str_of(f->origin)))
                return 0;
        return buf_addf(out, "http://%s", f->here) < 0 ? -1 : 1;
}

static int open_external(struct forward *f, const struct wire *w, struct err *e)
{
        int r = f->all.external_base_url ? url_parse(f->all.external_base_url, &f->base, e)
                                         : err_set(e, -EINVAL, "the box has no externalBaseUrl");

        if (r < 0)
                return r;
        print_host(f->base.host, f->base.port, f->base.https ? 443 : 80, f->host, sizeof f->host);
        (void) snprintf(f->origin, sizeof f->origin, "%s://%s", f->base.https ? "https" : "http", f->host);
        print_host(w->name, w->port, 80, f->here, sizeof f->here);
        if (cstr_eq(f->base.path, "/"))
                f->base.path[0] = '\0';
        f->policy = (struct proxy_policy){
                .host = f->host, .base = f->base.path, .inward = inward, .outward = outward, .arg = f
        };
        (void) snprintf(f->key, sizeof f->key, "%.90s", f->origin);
        return 0;
}

/* The name was led back to a box since this connection was made: its requests go there as they are. */
static int open_plain(struct forward *f, const struct wire *w, struct call *call)
{
        struct str host = call_host(call);

        (void) snprintf(f->host, sizeof f->host, "%.*s", (int) min_size(host.n, sizeof f->host - 1), host.p);
        f->policy = (struct proxy_policy){ .host = f->host, .arg = f };
        (void) snprintf(f->key, sizeof f->key, "%s %s %u", wire_mode_name(w->mode), w->from_box, w->target_port);
        return 0;
}

static int forward_open(struct forward *f, struct call *call, struct err *e)
{
        struct control *c = f->x->hub->c;
        int r = boxes_get(c->db, NULL, f->x->box->id, &f->row, e);

        if (r < 0)
                return r;
        wires_read(&f->row, &f->all);
        f->wire = f->x->place < f->all.count ? &f->all.wire[f->x->place] : NULL;
        if (!f->wire || f->wire->port != f->x->port)
                return err_set(e, -ESTALE, "the name has another port now: connect to that");
        return f->wire->mode == WIRE_EXTERNAL ? open_external(f, f->wire, e) : open_plain(f, f->wire, call);
}

static void forward_done(struct forward *f)
{
        box_row_done(&f->row);
        wires_done(&f->all);
}

static int coroutine_fn dial(void *arg, struct stream **ret, struct err *e)
{
        struct forward *f = arg;

        _cleanup_box_ struct box *used = NULL;
        int r = wire_connect(f->x->hub->c, &f->row, f->wire, ret, &used, e);

        if (!f->x->used) /* a name that was led to another box meanwhile */
                f->x->used = steal_ptr(used);
        f->dial_failed = r < 0;
        return r;
}

static void tunnel_over(void *arg, int r)
{
        struct wire_conn *x = arg;

        (void) r;
        x->tunnel = NULL;
        wire_conn_unref(x);
}

static void upgraded(void *arg, struct stream *client, struct stream *service)
{
        struct wire_conn *x = ((struct forward *) arg)->x;

        if (x->box->gone) {
                stream_close(client);
                stream_close(service);
                return;
        }
        x->refs++;
        x->tunnel = tunnel_start(client, service, -1, tunnel_over, x);
}

static void coroutine_fn refuse(struct call *call, const struct forward *f, int code, const struct err *e)
{
        if (call_started(call))
                return;
        (void) call_reply_error(
                call, code == -ETIMEDOUT ? 504 : 502, "external",
                "the service \"%s\" of this box leads to %s, and that failed: %s", f->x->service,
                f->wire && f->wire->mode == WIRE_EXTERNAL ? f->all.external_base_url : "a port of a box", err_text(e));
}

static void coroutine_fn handle(struct call *call, void *arg)
{
        struct wire_conn *x = call_attached(call);
        struct forward f = { .x = x };
        struct err e = { 0 };

        (void) arg;
        x->refs++;
        int r = forward_open(&f, call, &e);
        if (r == 0) {
                struct proxy_target target = {
                        .policy = &f.policy, .key = f.key, .dial = dial, .upgraded = upgraded, .arg = &f
                };

                r = proxy_serve(call, &target, &e);
                if (r < 0 && r != -ECANCELED && !f.dial_failed)
                        wired_failed(x->box, x->place, &e);
        }
        if (r < 0)
                refuse(call, &f, r, &e);
        forward_done(&f);
        wire_conn_unref(x);
}

static void connection_over(void *p)
{
        wire_conn_unref(p);
}

void wire_http_take(struct wire_conn *x)
{
        struct wire_hub *h = x->hub;

        if (!h->http) {
                struct http_limits limits = { .connections = WIRE_CONNS_MAX,
                                              .per_address = WIRE_CONNS_BOX,
                                              .requests_running = WIRE_CONNS_MAX };

                h->http = http_server_new(&limits, handle, h);
        }
        http_server_take(h->http, steal_ptr(x->s), x, connection_over);
}

void coroutine_fn wire_http_stop(struct wire_hub *h)
{
        if (h->http)
                http_server_stop(h->http, STOP_MS);
}
