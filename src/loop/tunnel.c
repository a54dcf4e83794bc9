/* A tunnel as a passive object: each side is read only while the other has room. */
#include "loop/loop.h"
#include "loop/stream_impl.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define ROUNDS 4      /* reads per event: the others wait */
#define DRAIN_MS 5000 /* for the last bytes to a side that the other has left */

struct side {
        struct tunnel *t;
        struct stream *s;
        bool ended; /* its end was read and passed on */
};

struct tunnel {
        struct side side[2];
        struct tmo idle;
        struct task dead;
        int64_t moved_ms, idle_ms;
        void (*on_end)(void *arg, int r);
        void *arg;
        int result;
        bool over;
};

static struct side *other(struct side *x)
{
        return &x->t->side[x == &x->t->side[0]];
}

static void run_dead(struct task *task)
{
        struct tunnel *t = container_of(task, struct tunnel, dead);
        void (*on_end)(void *arg, int r) = t->on_end;
        void *arg = t->arg;
        int r = t->result;

        free(t);
        if (on_end)
                on_end(arg, r);
}

/* The streams go at once; the object with the next turn, since this may run inside of one of its callbacks. */
static void finish(struct tunnel *t, int r)
{
        if (t->over)
                return;
        t->over = true;
        t->result = r;
        tmo_stop(&t->idle);
        for (int i = 0; i < 2; i++) {
                struct stream *s = steal_ptr(t->side[i].s);

                stream_set_ready(s, NULL, NULL);
                if (stream_queued(s) && !stream_dead(s))
                        stream_close_after_flush(s, DRAIN_MS);
                else
                        stream_close(s);
        }
        task_queue(&t->dead);
}

/* What each side is to be woken for. */
static void update(struct tunnel *t)
{
        for (int i = 0; i < 2 && !t->over; i++) {
                struct side *from = &t->side[i];
                bool room = stream_queued(other(from)->s) <= STREAM_HIGH_WATER;

                stream_want(from->s, (!from->ended && room ? STREAM_READABLE : 0u) |
                                             (stream_queued(from->s) ? STREAM_WRITABLE : 0u));
        }
}

/* Passes on what there is: 0, or why the tunnel ends. */
static int copy(struct side *from)
{
        struct stream *to = other(from)->s;
        char *scratch = loop_scratch();

        for (int i = 0; i < ROUNDS && !from->ended && stream_queued(to) <= STREAM_HIGH_WATER; i++) {
                ssize_t n = stream_try_read(from->s, scratch, LOOP_SCRATCH);

                if (n == -EAGAIN)
                        return 0;
                if (n < 0)
                        return (int) n;
                from->t->moved_ms = loop_now();
                from->ended = n == 0;
                int r = n ? stream_put(to, scratch, (size_t) n) : stream_shutdown(to);
                if (r < 0)
                        return r;
                if ((size_t) n < LOOP_SCRATCH && !from->s->maybe_readable)
                        return 0;
        }
        return 0;
}

static void ready(void *arg, unsigned events)
{
        struct side *x = arg;
        struct tunnel *t = x->t;
        int r = 0;

        if (x->s->out_err)
                r = x->s->out_err;
        if (r == 0 && (events & STREAM_READABLE))
                r = copy(x);
        if (r == 0 && (events & STREAM_WRITABLE)) /* there is room again */
                r = copy(other(x));
        if (r < 0)
                finish(t, r);
        else if (t->side[0].ended && t->side[1].ended && !stream_queued(t->side[0].s) && !stream_queued(t->side[1].s))
                finish(t, 0);
        else
                update(t);
}

static void idle_check(struct tmo *tmo)
{
        struct tunnel *t = container_of(tmo, struct tunnel, idle);
        int64_t left = t->moved_ms + t->idle_ms - loop_now();

        if (left > 0)
                tmo_start(&t->idle, left);
        else
                finish(t, -ETIMEDOUT);
}

struct tunnel *tunnel_start(struct stream *a, struct stream *b, int64_t idle_ms, void (*on_end)(void *arg, int r),
                            void *arg)
{
        struct tunnel *t = xcalloc(1, sizeof *t);

        t->side[0] = (struct side){ .t = t, .s = a };
        t->side[1] = (struct side){ .t = t, .s = b };
        t->moved_ms = loop_now();
        t->idle_ms = idle_ms;
        t->idle.fn = idle_check;
        t->dead.fn = run_dead;
        t->on_end = on_end;
        t->arg = arg;
        for (int i = 0; i < 2; i++) {
                stream_set_ready(t->side[i].s, ready, &t->side[i]);
                /* Bytes may be there that no descriptor will tell of. */
                stream_kick(t->side[i].s, STREAM_READABLE);
        }
        if (idle_ms >= 0)
                tmo_start(&t->idle, idle_ms);
        update(t);
        return t;
}

void tunnel_close(struct tunnel *t)
{
        if (!t)
                return;
        t->on_end = NULL;
        finish(t, -ECANCELED);
}

int64_t tunnel_moved(const struct tunnel *t)
{
        return t->moved_ms;
}
