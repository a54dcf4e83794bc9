#include "web/scenes.h"

#include "base/list.h"
#include "base/mem.h"

#include "loop/loop.h"
#include "web/scene_gate.h"
#include "web/scene_listen.h"
#include "web/scene_page.h"
#include "web/scene_route.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TUNNELS_MAX 8192
#define TUNNELS_PER_BOX 1024
#define REQUESTS_PER_BOX 1024
#define TICK_MS 10000 /* how often what moves is told as use */
#define USE_MS 10000  /* a box that was used so lately needs no asking */
#define FORGET_MS 300000

/* What the scenes know of a box. Kept while something runs, and a while longer. */
struct scene_box {
        char id[33], account[16];
        unsigned tunnels, requests;
        int64_t used_ms; /* loop_now() when the box was last told to be in use; 0: never */
        bool telling;    /* a coroutine is about it */
};

/* A request or a tunnel under way. */
struct traffic {
        struct list link;
        struct scenes *scenes;
        struct scene_box *box;
        struct tunnel *tunnel; /* NULL for a request */
        struct box *linked;    /* where a link of the box leads, kept awake; or NULL */
        int64_t moved_ms;      /* of a request */
};

struct scenes {
        struct control *c;
        struct auth *a;
        struct scene_listen *listen; /* where scenes have ports */
        struct map *boxes;           /* id -> struct scene_box */
        struct list traffic;
        size_t tunnels;
        struct timer *tick;
        unsigned telling; /* coroutines under way */
        bool stopped;
};

static struct scene_box *box_of(struct scenes *s, const struct scene_route *r)
{
        struct scene_box *b = map_get(s->boxes, str_of(r->box));

        if (!b) {
                b = xcalloc(1, sizeof *b);
                b->used_ms = 0; /* never told */
                (void) snprintf(b->id, sizeof b->id, "%s", r->box);
                (void) snprintf(b->account, sizeof b->account, "%s", r->account);
                (void) map_put(s->boxes, str_of(b->id), b);
        }
        return b;
}

/* ---- use ---- */

/* Wakes the box when it sleeps and counts as use of it. *ret keeps it awake until it is released. */
static int coroutine_fn use_box(struct scenes *s, struct scene_box *b, struct box **ret, struct err *e)
{
        int r = box_wake(s->c, b->account, b->id, ret, e);

        if (r == 0)
                b->used_ms = loop_now();
        return r;
}

static bool used_lately(const struct scenes *s, const struct scene_box *b)
{
        return b->used_ms && loop_now() - b->used_ms < USE_MS && map_get(s->c->boxes, str_of(b->id));
}

struct telling {
        struct scenes *s;
        struct scene_box *b;
};

static void coroutine_fn tell_main(void *arg)
{
        struct telling *t = arg;
        _cleanup_box_ struct box *box = NULL;
        struct err e = { 0 };

        /* What moves is of a box that runs; one that ended meanwhile is not brought back by its last bytes. */
        if (map_get(t->s->c->boxes, str_of(t->b->id)))
                (void) use_box(t->s, t->b, &box, &e);
        t->b->telling = false;
        t->s->telling--;
        free(t);
}

static void tell(struct scenes *s, struct scene_box *b)
{
        if (b->telling || used_lately(s, b))
                return;
        struct telling *t = xcalloc(1, sizeof *t);
        *t = (struct telling){ s, b };
        b->telling = true;
        s->telling++;
        if (!coro_start(tell_main, t, 0, "scene use")) {
                b->telling = false;
                s->telling--;
                free(t);
        }
}

static int forget_box(struct str key, void *value, void *arg)
{
        struct scenes *s = arg;
        struct scene_box *b = value;

        if (b->tunnels || b->requests || b->telling || (!s->stopped && loop_now() - b->used_ms < FORGET_MS))
                return 0;
        (void) map_del(s->boxes, key);
        free(b);
        return 0;
}

static void tick(void *arg)
{
        struct scenes *s = arg;

        list_for_each (it, &s->traffic) {
                struct traffic *t = list_entry(it, struct traffic, link);
                int64_t moved = t->tunnel ? tunnel_moved(t->tunnel) : t->moved_ms;

                if (loop_now() - moved <= TICK_MS)
                        tell(s, t->box);
        }
        (void) map_each(s->boxes, forget_box, s);
}

/* ---- tunnels ---- */

static void tunnel_ended(void *arg, int r)
{
        struct traffic *t = arg;

        (void) r;
        list_remove(&t->link);
        t->scenes->tunnels--;
        t->box->tunnels--;
        box_release(t->linked);
        free(t);
}

struct request {
        struct scenes *scenes;
        struct scene_route *route;
        struct scene_box *box;
        bool leaves;      /* to externalBaseUrl */
        struct box *held; /* the box, kept awake; or NULL */
        struct traffic traffic;
};

static void upgraded(void *arg, struct stream *client, struct stream *service)
{
        struct request *q = arg;
        struct scenes *s = q->scenes;

        if (s->stopped || s->tunnels >= TUNNELS_MAX || q->box->tunnels >= TUNNELS_PER_BOX) {
                stream_close(client);
                stream_close(service);
                return;
        }
        struct traffic *t = xcalloc(1, sizeof *t);
        t->scenes = s;
        t->box = q->box;
        t->linked = steal_ptr(q->traffic.linked);
        s->tunnels++;
        q->box->tunnels++;
        list_append(&s->traffic, &t->link);
        t->tunnel = tunnel_start(client, service, -1, tunnel_ended, t);
}

size_t scenes_tunnels(const struct scenes *s)
{
        return s->tunnels;
}

/* ---- requests ---- */

/* By the table as it is now: only a connection that is made asks for it. */
static int coroutine_fn connect_service(const struct request *q, struct stream **ret, struct err *e)
{
        struct wire w = q->route->services.wire[q->route->index];
        _cleanup_box_ struct box *used = NULL; /* the request holds it by itself */
        struct box_row row = { 0 };
        int r = boxes_get(q->scenes->c->db, NULL, q->box->id, &row, e);

        if (r < 0)
                return r;
        if (q->leaves && w.mode != WIRE_EXTERNAL)
                w = (struct wire){ .mode = WIRE_EXTERNAL }; /* of scenePaths: no name of the box's */
        r = wire_connect(q->scenes->c, &row, &w, ret, &used, e);
        box_row_done(&row);
        return r;
}

static int coroutine_fn dial(void *arg, struct stream **ret, struct err *e)
{
        struct request *q = arg;
        int r = connect_service(q, ret, e);

        if (r != -ENOENT || q->leaves)
                return r;
        /* It ended since it was last used. */
        box_release(steal_ptr(q->held));
        r = use_box(q->scenes, q->box, &q->held, e);
        return r < 0 ? r : connect_service(q, ret, e);
}

/*
 * Somebody opens a page, and no page that was left open asks by itself. Browsers say the mode (W3C Fetch Metadata)
 * where they trust the address, and not for a WebSocket; elsewhere only a page is asked for as text/html. Other
 * programs do what somebody told them.
 */
static bool opens_a_page(const struct call *call)
{
        struct str mode = call_header(call, "Sec-Fetch-Mode");

        if (call_header(call, "Upgrade").p)
                return false;
        if (mode.p)
                return str_eq(mode, STR("navigate"));
        return !str_starts(call_header(call, "User-Agent"), STR("Mozilla/")) ||
               str_has(call_header(call, "Accept"), STR("text/html"));
}

/*
 * Any request wakes a frozen box, opening a page brings an archived one back. The page that says that nothing answers
 * asks again and again: nobody uses a box by that, and it wakes none.
 */
static int coroutine_fn wake(struct request *q, const struct call *call, struct err *e)
{
        struct control *c = q->scenes->c;
        const struct box *b = map_get(c->boxes, str_of(q->box->id));
        bool asks = call_header(call, "X-Psbx-Scene").p, there = b && !b->ending && !b->stopping;

        if (asks && there && !b->frozen)
                return 0;
        if (asks || (!there && !opens_a_page(call)))
                return err_set(e, -ESTALE, "the box %s sleeps: load the page anew to wake it", q->box->id);
        if (used_lately(q->scenes, q->box) && (q->held = box_hold(c, q->box->id)))
                return 0;
        return use_box(q->scenes, q->box, &q->held, e);
}

/* A box that the service is linked to stays awake for as long as the request runs; whether it runs is for the wire. */
static void coroutine_fn wake_linked(struct request *q)
{
        const struct wire *w = &q->route->services.wire[q->route->index];

        if (w->mode == WIRE_LINK && map_get(q->scenes->c->boxes, str_of(w->from_box)))
                (void) box_wake(q->scenes->c, q->box->account, w->from_box, &q->traffic.linked, NULL);
}

static int coroutine_fn serve_awake(struct request *q, struct call *call, struct err *e)
{
        struct proxy_target target = { .policy = q->leaves ? &q->route->outside->policy : &q->route->policy,
                                       .key = q->leaves ? q->route->outside->key : q->route->key,
                                       .dial = dial,
                                       .upgraded = upgraded,
                                       .moved_ms = &q->traffic.moved_ms,
                                       .arg = q };
        int r = q->leaves ? 0 : wake(q, call, e);

        if (r < 0)
                return r;
        if (!q->leaves)
                wake_linked(q);
        return proxy_serve(call, &target, e);
}

static void coroutine_fn serve(struct request *q, struct call *call)
{
        struct err e = { 0 };

        q->traffic = (struct traffic){ .scenes = q->scenes, .box = q->box, .moved_ms = loop_now() };
        q->box->requests++;
        list_append(&q->scenes->traffic, &q->traffic.link);
        int r = serve_awake(q, call, &e);
        list_remove(&q->traffic.link);
        if (r < 0)
                scene_page_failed(q->scenes->a, call, q->route, q->leaves, r, &e);
        box_release(q->held);
        box_release(q->traffic.linked);
        q->box->requests--;
}

static void coroutine_fn serve_route(struct scenes *s, struct call *call, struct scene_route *route)
{
        struct request q = {
                .scenes = s, .route = route, .box = box_of(s, route), .leaves = scene_route_leaves(route, call)
        };

        if (q.box->requests < REQUESTS_PER_BOX) {
                serve(&q, call);
                return;
        }
        (void) call_add_header(call, "Retry-After", "2");
        (void) call_reply_error(call, 503, "overloaded", "too many requests run in this box");
}

bool coroutine_fn scenes_handle(struct scenes *s, struct call *call)
{
        _cleanup_route_ struct scene_route *route = NULL;
        struct err e = { 0 };
        int r = scene_route_find(s->c, call, &route, &e);

        if (r == 0 && !route)
                return false;
        enum scene_gate gate = route && route->port ? scene_gate(route, call) : SCENE_GATE_OPEN;
        if (gate == SCENE_GATE_ENTERS) {
                scene_gate_enter(route, call);
        } else if (gate == SCENE_GATE_SHUT) {
                scene_page_unknown(s->a, call);
        } else if (route) {
                serve_route(s, call, route);
        } else if (r == -ENOENT) {
                scene_page_unknown(s->a, call);
        } else {
                (void) call_add_header(call, "Retry-After", "2");
                (void) call_reply_error(call, 503, "unavailable", "%s", err_text(&e));
        }
        return true;
}

struct scenes *scenes_new(struct control *c, struct auth *a)
{
        struct scenes *s = xcalloc(1, sizeof *s);

        s->c = c;
        s->a = a;
        s->boxes = map_new();
        list_init(&s->traffic);
        s->tick = timer_start(TICK_MS, TICK_MS, tick, s);
        return s;
}

int scenes_listen(struct scenes *s, struct http_server *http, const char *addr, struct err *e)
{
        return s->c->scene_ports ? scene_listen_new(s->c, http, addr, &s->listen, e) : 0;
}

void scenes_stop(struct scenes *s)
{
        s->stopped = true;
        scene_listen_freep(&s->listen);
        timer_stop(&s->tick);
        list_for_each_safe (it, &s->traffic) {
                struct traffic *t = list_entry(it, struct traffic, link);

                if (!t->tunnel)
                        continue;
                tunnel_close(t->tunnel);
                tunnel_ended(t, -ECANCELED);
        }
}

void scenes_free(struct scenes *s)
{
        if (!s)
                return;
        scenes_stop(s);
        (void) map_each(s->boxes, forget_box, s);
        map_free(s->boxes);
        free(s);
}
