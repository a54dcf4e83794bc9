#include "control/events.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "control/view.h"
#include "loop/loop.h"

#include <stdio.h>
#include <stdlib.h>

#define KEPT_EVENTS 1024
#define KEPT_BYTES ((size_t) 512 << 10)
#define STREAMS_EACH 64 /* of an account */
#define STREAMS_ALL 4096
#define HEARTBEAT_MS 15000
#define RETRY_MS 1000
#define SWEEP_MS 10000
/* A stream outlives what it was let in with by so much at most: a key or a session that ended meanwhile. */
#define STREAM_MS (5 * 60000)
#define FEED_MS (5 * 60000) /* a feed without watchers is kept for those who come again */

struct event {
        struct list link;
        uint64_t id;
        size_t len;
        const char *name; /* a constant */
        char data[];
};

struct feed {
        struct events *ev;
        char account[16];
        struct list events, watchers;
        size_t n_events, bytes, n_watchers;
        uint64_t last;      /* id of the newest */
        uint64_t forgotten; /* and of the newest that is no longer kept */
        int64_t left_at;    /* loop time at which the last watcher went */
        struct map *agents; /* box -> the conversation's state as last told, a constant */
};

struct watcher {
        struct list link;
        struct feed *feed;
        struct sse *sse;
        int64_t since;
};

struct events {
        struct control *c;
        struct map *feeds; /* account -> struct feed */
        size_t streams;
        struct timer *sweeper;
        struct boxes_watch watch;
};

/* ---- feeds ---- */

static struct feed *feed_new(struct events *ev, const char *account)
{
        struct feed *f = xcalloc(1, sizeof *f);

        f->ev = ev;
        (void) snprintf(f->account, sizeof f->account, "%s", account);
        list_init(&f->events);
        list_init(&f->watchers);
        f->agents = map_new();
        f->left_at = loop_now();
        /* Ids grow from one feed, and one server, to the next; and stay below 2^53, which scripts can count to. */
        f->last = f->forgotten = (uint64_t) wall_ms() << 12;
        (void) map_put(ev->feeds, str_of(f->account), f);
        return f;
}

static void forget_oldest(struct feed *f)
{
        struct event *x = list_entry(f->events.next, struct event, link);

        f->forgotten = x->id;
        f->bytes -= x->len;
        f->n_events--;
        list_remove(&x->link);
        free(x);
}

static void feed_free(struct feed *f)
{
        while (f->n_events)
                forget_oldest(f);
        map_free(f->agents);
        free(f);
}

static void on_close(void *arg)
{
        struct watcher *w = arg;

        list_remove(&w->link);
        w->feed->ev->streams--;
        if (--w->feed->n_watchers == 0)
                w->feed->left_at = loop_now();
        free(w);
}

static int post(struct watcher *w, const struct event *x)
{
        char id[24];

        (void) snprintf(id, sizeof id, "%llu", (unsigned long long) x->id);
        return sse_post(w->sse, x->name, id, str_n(x->data, x->len));
}

static void feed_publish(struct feed *f, const char *name, struct str data)
{
        struct event *x = xmalloc(sizeof *x + data.n);

        *x = (struct event){ .id = ++f->last, .len = data.n, .name = name };
        memcpy(x->data, data.p, data.n);
        list_append(&f->events, &x->link);
        f->n_events++;
        f->bytes += data.n;
        /* Who does not read is ended: it goes on from the last that it got, or from `reset`. */
        list_for_each_safe (it, &f->watchers) {
                struct watcher *w = list_entry(it, struct watcher, link);

                if (post(w, x) < 0)
                        sse_close(w->sse);
        }
        while (f->n_events > KEPT_EVENTS || f->bytes > KEPT_BYTES)
                forget_oldest(f);
}

static struct feed *feed_of(const struct events *ev, const char *account)
{
        return ev ? map_get(ev->feeds, str_of(account)) : NULL;
}

void events_publish(struct events *ev, const char *account, const char *name, struct str data)
{
        struct feed *f = feed_of(ev, account);

        if (f)
                feed_publish(f, name, data);
}

/* ---- conversations ---- */

struct sweep {
        struct feed *feed;
        const char *agent; /* NULL: all */
        bool quiet;        /* only notes what is so */
};

static int look_at_agent(const struct box_row *row, void *arg)
{
        struct sweep *s = arg;
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        struct agent_row agent;
        struct jw w;

        if (s->agent && !cstr_eq(row->agent, s->agent))
                return 0;
        const char *state = agent_state(s->feed->ev->c, row, &agent);
        const char *told = map_put(s->feed->agents, str_of(row->id), (void *) (uintptr_t) state);
        if (s->quiet || cstr_eq(told, state))
                return 0;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "box", row->id);
        jw_kstr(&w, "state", state);
        if (jw_end_all(&w) == 0)
                feed_publish(s->feed, "agent.state", buf_str(&b));
        return 0;
}

static void look_at_agents(struct feed *f, const char *agent, bool quiet)
{
        struct sweep s = { f, agent, quiet };

        (void) boxes_each(f->ev->c->db, f->account, false, 1000, look_at_agent, &s);
}

void events_agent(struct events *ev, const char *account, const char *agent)
{
        struct feed *f = feed_of(ev, account);

        if (f && f->n_watchers)
                look_at_agents(f, agent, false);
}

struct over {
        struct feed *feed;
};

static int sweep_feed(struct str key, void *value, void *arg)
{
        struct feed *f = value;
        struct over *over = arg;

        (void) key;
        if (f->n_watchers)
                look_at_agents(f, NULL, false);
        else if (loop_now() - f->left_at > FEED_MS)
                over->feed = f;
        list_for_each_safe (it, &f->watchers) {
                struct watcher *w = list_entry(it, struct watcher, link);

                if (loop_now() - w->since > STREAM_MS)
                        sse_close(w->sse);
        }
        return over->feed ? 1 : 0;
}

static void sweep(void *arg)
{
        struct events *ev = arg;

        /* The map must not change while it is gone through: one feed that is over at a time. */
        for (;;) {
                struct over over = { NULL };

                (void) map_each(ev->feeds, sweep_feed, &over);
                if (!over.feed)
                        break;
                (void) map_del(ev->feeds, str_of(over.feed->account));
                feed_free(over.feed);
        }
        if (!map_len(ev->feeds))
                timer_stop(&ev->sweeper);
}

/* ---- what the store tells ---- */

static void told_box(const char *account, const char *box, const char *state, void *arg)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        struct feed *f = feed_of(arg, account);
        struct jw w;

        if (!f)
                return;
        if (cstr_eq(state, "deleted"))
                (void) map_del(f->agents, str_of(box));
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "box", box);
        jw_kstr(&w, "status", state);
        if (jw_end_all(&w) == 0)
                feed_publish(f, "box.state", buf_str(&b));
}

static void told_step(const struct step *s, void *arg)
{
        struct events *ev = arg;
        const struct box *box = map_get(ev->c->boxes, str_of(s->box));
        struct feed *f = box ? feed_of(ev, box->account) : NULL;
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        struct jw w;

        if (!f)
                return;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "box", s->box);
        jw_key(&w, "step");
        view_step(&w, s, VIEW_COMMAND_SHORT);
        if (jw_end_all(&w) == 0)
                feed_publish(f, s->ended_at ? "step.end" : "step.begin", buf_str(&b));
        /* A call is what makes an idle conversation a working one. */
        if (!s->ended_at && s->agent && f->n_watchers)
                look_at_agents(f, s->agent, false);
}

/* ---- streams ---- */

/* Where a stream goes on: its id is one of this feed's, and nothing after it is forgotten. */
static bool can_resume(const struct feed *f, struct str since, uint64_t *ret)
{
        return since.n && parse_u64(since, UINT64_MAX, ret) == 0 && *ret >= f->forgotten && *ret <= f->last;
}

/* The first event says where the stream stands: "ready" and "reset" both mean: look at everything now. */
static int begin(struct watcher *w, struct str since)
{
        struct feed *f = w->feed;
        uint64_t from = 0;
        char id[24];

        int r = sse_retry(w->sse, RETRY_MS);
        if (r == 0 && can_resume(f, since, &from)) {
                list_for_each (it, &f->events) {
                        const struct event *x = list_entry(it, struct event, link);

                        if (r == 0 && x->id > from)
                                r = post(w, x);
                }
                return r;
        }
        (void) snprintf(id, sizeof id, "%llu", (unsigned long long) f->last);
        return r < 0 ? r : sse_post(w->sse, since.n ? "reset" : "ready", id, STR("{}"));
}

void coroutine_fn events_serve(struct events *ev, struct call *call, const char *account, struct str since)
{
        struct feed *f = feed_of(ev, account);

        if (ev->streams >= STREAMS_ALL || (f && f->n_watchers >= STREAMS_EACH)) {
                (void) call_add_header(call, "Retry-After", "30");
                (void) call_reply_error(call, f && f->n_watchers >= STREAMS_EACH ? 429 : 503, "too_many",
                                        "too many event streams are open: close some and try again");
                return;
        }
        if (!f)
                f = feed_new(ev, account);
        if (!f->n_watchers) /* what is so now was not told to anybody */
                look_at_agents(f, NULL, f->last == f->forgotten);
        if (!ev->sweeper)
                ev->sweeper = timer_start(SWEEP_MS, SWEEP_MS, sweep, ev);
        struct watcher *w = xcalloc(1, sizeof *w);
        w->feed = f;
        w->since = loop_now();
        list_append(&f->watchers, &w->link);
        f->n_watchers++;
        ev->streams++;
        w->sse = sse_detach(call, HEARTBEAT_MS, on_close, w);
        if (!w->sse)
                on_close(w);
        else if (begin(w, since) < 0)
                sse_close(w->sse);
}

size_t events_streams(const struct events *ev)
{
        return ev->streams;
}

/* ---- life ---- */

struct events *events_new(struct control *c)
{
        struct events *ev = xcalloc(1, sizeof *ev);

        ev->c = c;
        ev->feeds = map_new();
        ev->watch = (struct boxes_watch){ told_box, told_step, ev };
        boxes_watch(c->db, &ev->watch);
        return ev;
}

static int close_feed(struct str key, void *value, void *arg)
{
        struct feed *f = value;

        (void) key;
        (void) arg;
        while (!list_empty(&f->watchers))
                sse_close(list_entry(f->watchers.next, struct watcher, link)->sse);
        return 0;
}

void events_end_all(struct events *ev)
{
        (void) map_each(ev->feeds, close_feed, NULL);
}

static int free_feed(struct str key, void *value, void *arg)
{
        (void) key;
        (void) arg;
        feed_free(value);
        return 0;
}

void events_free(struct events *ev)
{
        if (!ev)
                return;
        boxes_watch(ev->c->db, NULL);
        events_end_all(ev);
        timer_stop(&ev->sweeper);
        (void) map_each(ev->feeds, free_feed, NULL);
        map_free(ev->feeds);
        free(ev);
}
