#include "adapter/out.h"
#include "base/clock.h"
#include "loop/stream.h"

#define QUEUE_MAX ((size_t) 1 << 30)

int out_init(struct out *o, int fd, void (*on_dead)(void *arg), void *arg, struct err *e)
{
        *o = (struct out){ .queue = BUF_MAX(QUEUE_MAX), .on_dead = on_dead, .arg = arg };
        waitq_init(&o->room);
        return stream_from_fd(fd, &o->s, e);
}

bool out_busy(const struct out *o)
{
        return o->queue.len > OUT_HIGH_WATER;
}

static void coroutine_fn write_queue(void *arg)
{
        struct out *o = arg;

        while (o->queue.len && !o->dead) {
                struct buf now = o->queue;

                o->queue = BUF_MAX(QUEUE_MAX);
                int r = stream_write(o->s, now.p, now.len, -1);
                if (r == 0)
                        r = stream_flush(o->s, -1);
                buf_done(&now);
                if (r < 0)
                        o->dead = true;
                waitq_wake_all(&o->room);
        }
        o->writing = false;
        waitq_wake_all(&o->room);
        if (o->dead) {
                buf_done(&o->queue);
                o->on_dead(o->arg);
        }
}

void out_post(struct out *o, struct str line)
{
        size_t before = o->queue.len;

        if (o->dead)
                return;
        if (buf_addstr(&o->queue, line) < 0 || buf_addc(&o->queue, '\n') < 0) {
                o->queue.len = before;
                return;
        }
        if (o->writing)
                return;
        o->writing = true;
        if (!coro_start(write_queue, o, 0, "stdout"))
                o->writing = false; /* the next message tries again */
}

void coroutine_fn out_room(struct out *o)
{
        while (out_busy(o) && !o->dead)
                if (waitq_wait(&o->room, -1) < 0)
                        return;
}

void coroutine_fn out_flush(struct out *o, int64_t timeout_ms)
{
        int64_t until = clock_ms() + timeout_ms;

        while (o->writing && !o->dead) {
                int64_t left = until - clock_ms();

                if (left <= 0 || waitq_wait(&o->room, left) < 0)
                        return;
        }
}
