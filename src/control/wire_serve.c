/* Connections of boxes to their names: whose they are, where they lead, and what is told about them. */
#include "control/wire_hub.h"

#include "control/dial.h"
#include "control/external.h"
#include "control/guest_client.h"
#include "control/secrets.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define DRAIN_MS 2000
#define SETTLE_MS 10000 /* how long a connection waits for a server that has just started */

/* ---- who is known ---- */

static struct wired *wired_of(struct wire_hub *h, const char *box)
{
        struct wired *b = map_get(h->boxes, str_of(box));

        if (b)
                return b;
        b = xcalloc(1, sizeof *b);
        (void) snprintf(b->id, sizeof b->id, "%s", box);
        b->refs = 1; /* the map's */
        list_init(&b->conns);
        waitq_init(&b->applied);
        external_name_init(&b->outside);
        (void) map_put(h->boxes, str_of(b->id), b);
        return b;
}

static void wired_release(struct wired *b)
{
        if (--b->refs == 0)
                free(b);
}

void wired_failed(struct wired *b, size_t place, const struct err *e)
{
        struct wire_count *n = &b->count[place];

        n->failed++;
        n->error_at = wall_ms();
        (void) snprintf(n->error, sizeof n->error, "%s", err_text(e));
}

const struct wire_count *wire_counted(const struct control *c, const char *box, size_t place)
{
        const struct wired *b = c->wires ? map_get(c->wires->boxes, str_of(box)) : NULL;

        return b && place < WIRES_MAX ? &b->count[place] : NULL;
}

/* ---- where a wire leads ---- */

uint16_t wire_link_port(const struct control *c, const char *account, const struct wire *w)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_wires_ struct wires other = { .count = 0 };

        if (w->target_given || boxes_get(c->db, account, w->from_box, &row, NULL) < 0)
                return w->target_port;
        wires_read(&row, &other);
        const struct wire *same = wire_find(&other, w->name);
        return same && same->port == w->port && same->mode == WIRE_BOX ? same->target_port : w->target_port;
}

static int coroutine_fn connect_link(struct control *c, const struct box_row *row, const struct wire *w,
                                     struct stream **ret, struct box **ret_used, struct err *e)
{
        _cleanup_(box_row_done) struct box_row to = { 0 };
        _cleanup_box_ struct box *used = NULL;
        int r = boxes_get(c->db, row->account, w->from_box, &to, NULL);

        if (r < 0)
                return err_set(e, r, "the linked box %s is gone", w->from_box);
        if (!map_get(c->boxes, str_of(w->from_box)))
                return err_set(e, -ESTALE, "the linked box %s does not run (%s)", w->from_box, to.state);
        r = box_wake(c, row->account, w->from_box, &used, e);
        if (r == 0)
                r = guest_dial(c, w->from_box, wire_link_port(c, row->account, w), ret, e);
        if (r == 0)
                *ret_used = steal_ptr(used);
        return r < 0 ? err_wrap(e, "box %s", w->from_box) : 0;
}

static int coroutine_fn connect_wire(struct control *c, struct wired *b, const struct box_row *row,
                                     const struct wire *w, struct stream **ret, struct box **ret_used, struct err *e)
{
        _cleanup_wires_ struct wires all = { .count = 0 };
        struct url to;

        if (w->mode == WIRE_LINK)
                return connect_link(c, row, w, ret, ret_used, e);
        if (w->mode == WIRE_BOX)
                return guest_dial(c, row->id, w->target_port, ret, e);
        wires_read(row, &all);
        if (!all.external_base_url)
                return err_set(e, -EINVAL, "the box has no externalBaseUrl");
        int r = url_parse(all.external_base_url, &to, e);
        return r < 0 ? r : external_connect(c, &to, &b->outside, &c->wires->tls, ret, e);
}

/* What a box's daemon says may hold what the box was given; links[] are shown in answers about other boxes too. */
static void hide_secrets(struct control *c, const char *box, int code, struct err *e)
{
        _cleanup_mask_ struct mask *mask = NULL;

        if (box_mask(c, box, &mask, NULL) < 0)
                (void) err_set(e, code, "it failed, and the reason cannot be told from a secret of box %s", box);
        if (!mask)
                return;
        _cleanup_free_ char *text = mask_cstr(mask, err_text(e));
        (void) err_set(e, code, "%s", text);
}

static size_t place_of(const struct box_row *row, const struct wire *w)
{
        _cleanup_wires_ struct wires all;

        wires_read(row, &all);
        const struct wire *one = wire_find(&all, w->name);
        return one ? (size_t) (one - all.wire) : WIRES_MAX;
}

int coroutine_fn wire_connect(struct control *c, const struct box_row *row, const struct wire *w, struct stream **ret,
                              struct box **ret_used, struct err *e)
{
        struct wired *b = wired_of(c->wires, row->id);
        size_t place = place_of(row, w);
        struct err why = { 0 };

        *ret_used = NULL;
        b->refs++;
        int r = connect_wire(c, b, row, w, ret, ret_used, &why);
        if (r < 0)
                hide_secrets(c, w->mode == WIRE_LINK ? w->from_box : row->id, r, &why);
        if (place < WIRES_MAX && r == 0)
                b->count[place].total++;
        else if (place < WIRES_MAX && r != -ECANCELED)
                wired_failed(b, place, &why);
        wired_release(b);
        return r < 0 ? err_set(e, r, "%s", err_text(&why)) : 0;
}

/* ---- connections ---- */

void wire_reset(struct stream *s)
{
        struct linger now = { .l_onoff = 1 };

        if (s)
                (void) setsockopt(stream_fd(s), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        stream_close(s);
}

void wire_conn_unref(struct wire_conn *x)
{
        if (--x->refs > 0)
                return;
        list_remove(&x->link);
        x->box->open--;
        x->hub->open--;
        if (x->counted)
                x->box->count[x->place].open--;
        waitq_wake_all(&x->hub->drained);
        box_release(x->used);
        wired_release(x->box);
        free(x);
}

static void tunnel_over(void *arg, int r)
{
        struct wire_conn *x = arg;

        (void) r; /* ends of connections are the peers' affair */
        x->tunnel = NULL;
        wire_conn_unref(x);
}

/* The row and wire that a connection is about; -ENOENT when it is about none. */
static int coroutine_fn find_wire(struct wire_conn *x, struct box_row *row, struct wires *all)
{
        struct control *c = x->hub->c;
        int64_t until = deadline_in(SETTLE_MS);

        while (!c->reconciled) {
                int r = waitq_wait(&c->capacity, deadline_left(until));

                if (r < 0)
                        return r;
        }
        if (!map_get(c->boxes, str_of(x->box->id)) || boxes_get(c->db, NULL, x->box->id, row, NULL) < 0)
                return -ENOENT;
        wires_read(row, all);
        if (x->place >= all->count || all->wire[x->place].port != x->port)
                return -ENOENT;
        (void) snprintf(x->service, sizeof x->service, "%s", all->wire[x->place].name);
        return 0;
}

static void count_open(struct wire_conn *x)
{
        x->counted = true;
        x->box->count[x->place].open++;
}

static int coroutine_fn lead(struct wire_conn *x)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_wires_ struct wires all = { .count = 0 };
        struct stream *to = NULL;
        int r = find_wire(x, &row, &all);

        if (r < 0)
                return r;
        if (all.wire[x->place].mode == WIRE_EXTERNAL) {
                count_open(x);
                x->refs++;
                wire_http_take(x);
                return 0;
        }
        r = wire_connect(x->hub->c, &row, &all.wire[x->place], &to, &x->used, NULL);
        if (r == 0 && x->box->gone) {
                stream_close(to);
                r = -ECANCELED;
        }
        if (r < 0)
                return r;
        count_open(x);
        x->refs++;
        x->tunnel = tunnel_start(steal_ptr(x->s), to, -1, tunnel_over, x);
        return 0;
}

static void coroutine_fn conn_main(void *arg)
{
        struct wire_conn *x = arg;
        int r = lead(x);

        if (r < 0)
                wire_reset(steal_ptr(x->s));
        x->coro = NULL;
        wire_conn_unref(x); /* a tunnel or the HTTP side has its own */
}

/* The driver's: a box connected to its place-th name. */
static void arrived(struct stream *s, const char *box, size_t place, unsigned port, void *arg)
{
        struct control *c = arg;
        struct wire_hub *h = c->wires;
        struct wired *b = wired_of(h, box);
        struct err full = { 0 };

        if (place >= WIRES_MAX || c->stopping) {
                wire_reset(s);
                return;
        }
        if (b->open >= WIRE_CONNS_BOX || h->open >= h->conns_max) {
                (void) err_set(&full, -EMFILE, "too many connections at the same time: %zu of this box, %zu in all",
                               b->open, h->open);
                wired_failed(b, place, &full);
                wire_reset(s);
                return;
        }
        struct wire_conn *x = xcalloc(1, sizeof *x);
        *x = (struct wire_conn){ .refs = 1, .hub = h, .box = b, .place = place, .port = port, .s = s };
        x->coro = coro_start(conn_main, x, CORO_STACK_DEFAULT, "wire");
        if (!x->coro) {
                wire_reset(s);
                free(x);
                return;
        }
        b->refs++;
        b->open++;
        h->open++;
        list_append(&b->conns, &x->link);
}

void wires_forget(struct control *c, const char *box)
{
        struct wired *b = c->wires ? map_del(c->wires->boxes, str_of(box)) : NULL;

        if (!b)
                return;
        b->gone = true;
        waitq_wake_all(&b->applied);
        list_for_each_safe (it, &b->conns) {
                struct wire_conn *x = list_entry(it, struct wire_conn, link);

                if (x->tunnel) {
                        tunnel_close(steal_ptr(x->tunnel));
                        wire_conn_unref(x);
                } else if (x->coro) {
                        coro_cancel(x->coro);
                } /* the HTTP side notices by itself: the peer is gone */
        }
        wired_release(b);
}

/* ---- names ---- */

/* Can the box itself answer at the name's address, with nothing in between? */
static bool direct(const struct wire *w)
{
        return w->mode == WIRE_BOX && w->target_port == w->port;
}

static int coroutine_fn write_hosts(struct control *c, const char *box, const struct wires *all,
                                    char (*addresses)[DRIVER_ADDRESS_MAX], struct err *e)
{
        struct json *head = json_obj(), *entries = json_arr();

        json_set_str(head, "op", "hosts");
        for (size_t i = 0; i < all->count; i++) {
                struct json *entry = json_obj();

                json_set_str(entry, "name", all->wire[i].name);
                json_set_str(entry, "address", direct(&all->wire[i]) ? "127.0.0.1" : addresses[i]);
                json_push(entries, entry);
        }
        json_set(head, "entries", entries);
        return guest_ask(c, box, head, NULL, e);
}

/* all: /etc/hosts too, by the word of the box's daemon; else only what the driver has to know. */
static int coroutine_fn apply(struct control *c, const char *box, bool all_of_it, struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_wires_ struct wires all = { .count = 0 };
        char addresses[WIRES_MAX][DRIVER_ADDRESS_MAX];
        const char *names[WIRES_MAX];
        int r = boxes_get(c->db, NULL, box, &row, e);

        if (r < 0)
                return r;
        wires_read(&row, &all);
        if (all.count == 0)
                return 0;
        for (size_t i = 0; i < all.count; i++)
                names[i] = all.wire[i].name;
        r = c->driver->ops->names(c->driver, box, names, all.count, addresses, e);
        for (size_t i = 0; r == -EOPNOTSUPP && i < all.count; i++)
                if (!direct(&all.wire[i]))
                        return err_wrap(e, "the service \"%s\" cannot lead elsewhere than to its own port",
                                        all.wire[i].name);
        if (r < 0 && r != -EOPNOTSUPP)
                return r;
        return all_of_it ? write_hosts(c, box, &all, addresses, e) : 0;
}

static int coroutine_fn apply_in_turn(struct control *c, const char *box, bool all_of_it, struct err *e)
{
        struct wired *b = wired_of(c->wires, box);
        int r = 0;

        b->refs++;
        while (b->applying && r == 0)
                r = waitq_wait(&b->applied, -1);
        if (r == 0 && b->gone)
                r = err_set(e, -ESTALE, "the box %s was stopped meanwhile", box);
        if (r == 0) {
                b->applying = true;
                r = apply(c, box, all_of_it, e);
                b->applying = false;
                waitq_wake_all(&b->applied);
        }
        wired_release(b);
        return r;
}

int coroutine_fn wires_apply(struct control *c, const char *box, struct err *e)
{
        return apply_in_turn(c, box, true, e);
}

struct applying {
        char (*ids)[33];
        size_t n;
};

static int collect(const struct box_row *row, void *arg)
{
        struct applying *all = arg;

        if ((!cstr_eq(row->state, "running") && !cstr_eq(row->state, "frozen")) || cstr_eq(row->services, "[]"))
                return 0;
        all->ids = xrealloc(all->ids, (all->n + 1) * sizeof *all->ids);
        (void) snprintf(all->ids[all->n++], sizeof *all->ids, "%s", row->id);
        return 0;
}

static void coroutine_fn apply_each(struct control *c, const struct applying *all, bool all_of_it)
{
        struct err e = { 0 };

        for (size_t i = 0; i < all->n && !coro_cancelled() && !c->stopping; i++) {
                const struct box *b = map_get(c->boxes, str_of(all->ids[i]));

                /* The daemon of a frozen box answers nobody, and its hosts file is as it was. */
                if (b && !(all_of_it && b->frozen) && apply_in_turn(c, all->ids[i], all_of_it, &e) < 0)
                        log_warning("the names of box %s: %s", all->ids[i], err_text(&e));
        }
}

void coroutine_fn wires_apply_all(struct control *c)
{
        struct applying all = { 0 };

        (void) boxes_each(c->db, NULL, false, -1, collect, &all);
        /* A box whose daemon hangs holds up the hosts files of others, not what the driver has to know. */
        apply_each(c, &all, false);
        apply_each(c, &all, true);
        free(all.ids);
}

/* ---- the whole ---- */

/* A quarter of the files that this process may open. */
static size_t conns_max(void)
{
        struct rlimit files;

        if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 8 > WIRE_CONNS_MAX)
                return WIRE_CONNS_MAX;
        return (size_t) files.rlim_cur / 8;
}

void wires_open(struct control *c)
{
        struct wire_hub *h = xcalloc(1, sizeof *h);

        h->c = c;
        h->boxes = map_new();
        h->conns_max = conns_max();
        waitq_init(&h->drained);
        c->wires = h;
        c->driver->on_wire = arrived;
}

static int forget_one(struct str key, void *value, void *arg)
{
        struct control *c = arg;
        const struct wired *b = value;

        (void) key;
        wires_forget(c, b->id);
        return 0;
}

void coroutine_fn wires_stop(struct control *c)
{
        c->driver->on_wire = NULL;
        (void) map_each(c->wires->boxes, forget_one, c);
        wire_http_stop(c->wires);
        while (c->wires->open && waitq_wait(&c->wires->drained, DRAIN_MS) == 0)
                ;
}

void wires_close(struct control *c)
{
        struct wire_hub *h = steal_ptr(c->wires);

        if (!h)
                return;
        c->driver->on_wire = NULL;
        http_server_free(h->http);
        tls_ctx_unref(h->tls);
        map_free(h->boxes);
        free(h);
}
