#include <errno.h>

#include "loop/loop_impl.h"
#include "loop/stream_impl.h"
#include "loop/wait.h"

/* What both directions of a tunnel share. */
struct both {
        int64_t moved_ms; /* a tunnel is idle when neither direction moves */
        int64_t idle_ms;
        struct stream *a, *b;
        struct coro *waiting[2]; /* parked below, to be told to stop */
        bool stop;
        bool other_done;
        int other_result;
        struct waitq ended;
};

static int64_t idle_left(const struct both *t)
{
        int64_t idle = loop_now() - t->moved_ms;

        return t->idle_ms < 0 ? -1 : idle < t->idle_ms ? t->idle_ms - idle : 0;
}

/* 0: go on; the streams' own waits may also end because the other direction told this one to stop. */
static int coroutine_fn await_both(struct both *t, int side, struct stream *from, struct stream *to)
{
        for (;;) {
                int r;

                if (t->stop || from->closed || to->closed)
                        return -ECANCELED;
                t->waiting[side] = coro_self();
                if (to->out.len > STREAM_HIGH_WATER || to->out_err)
                        r = stream_wait_room(to, STREAM_HIGH_WATER, idle_left(t));
                else
                        r = stream_wait_readable(from, idle_left(t));
                t->waiting[side] = NULL;
                if (r == -ETIMEDOUT && (t->idle_ms < 0 || idle_left(t) > 0))
                        continue;
                if (r < 0)
                        return r;
                if (!t->stop && to->out.len <= STREAM_HIGH_WATER)
                        return 0;
        }
}

/* Bytes go through one buffer of the loop's: between reading into it and queueing from it nothing can suspend. */
static int64_t coroutine_fn pump_loop(struct both *t, int side, struct stream *from, struct stream *to)
{
        int64_t total = 0;

        for (;;) {
                int r = await_both(t, side, from, to);
                char *scratch = loop_scratch();

                if (r < 0)
                        return r;
                ssize_t n = stream_try_read(from, scratch, LOOP_SCRATCH);
                if (n == -EAGAIN)
                        continue;
                if (n < 0)
                        return n;
                t->moved_ms = loop_now();
                if (n == 0) {
                        r = stream_shutdown(to);
                        return r < 0 ? r : total;
                }
                r = stream_put(to, scratch, (size_t) n);
                if (r < 0)
                        return r;
                total += n;
                r = coro_spend();
                if (r < 0)
                        return r;
        }
}

static int64_t coroutine_fn pump_side(struct both *t, int side, struct stream *from, struct stream *to)
{
        stream_ref(from);
        stream_ref(to);
        int64_t r = pump_loop(t, side, from, to);
        stream_unref(from);
        stream_unref(to);
        return r;
}

int64_t coroutine_fn pump(struct stream *from, struct stream *to, int64_t idle_ms)
{
        struct both t = { .moved_ms = loop_now(), .idle_ms = idle_ms };

        return pump_side(&t, 0, from, to);
}

static void tunnel_stop(struct both *t)
{
        t->stop = true;
        for (int i = 0; i < 2; i++)
                if (t->waiting[i])
                        coro_wake(t->waiting[i]);
}

static void coroutine_fn second_side(void *arg)
{
        struct both *t = arg;
        int64_t r = pump_side(t, 1, t->b, t->a);

        t->other_result = r < 0 ? (int) r : 0;
        t->other_done = true;
        if (r < 0)
                tunnel_stop(t);
        waitq_wake_all(&t->ended);
}

int coroutine_fn pump_both(struct stream *a, struct stream *b, int64_t idle_ms)
{
        struct both t = { .moved_ms = loop_now(), .idle_ms = idle_ms, .a = a, .b = b };
        int r;

        waitq_init(&t.ended);
        if (!coro_start(second_side, &t, 0, "pump"))
                return -EAGAIN;
        int64_t n = pump_side(&t, 0, a, b);
        r = n < 0 ? (int) n : 0;
        if (r < 0)
                tunnel_stop(&t);
        while (!t.other_done) {
                int w = waitq_wait(&t.ended, -1);

                if (w == 0)
                        continue;
                /* Cancelled: the other side borrows this stack and must leave first. */
                r = w;
                tunnel_stop(&t);
                coro_shield();
                while (!t.other_done)
                        (void) waitq_wait(&t.ended, -1);
                coro_unshield();
        }
        /* The side that was told to stop only says so; the reason is the other's. */
        if (t.other_result < 0 && (r == 0 || (r == -ECANCELED && coro_check() == 0)))
                r = t.other_result;
        return r;
}
