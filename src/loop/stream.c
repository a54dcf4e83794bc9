#include "loop/stream.h"

#include <errno.h>
#include <stdlib.h>

#include "loop/loop_impl.h"
#include "loop/stream_impl.h"

#define WATCH_MAX ((size_t) 64 << 10)  /* bytes kept while only watched */
#define UNREAD_MAX ((size_t) 64 << 10) /* bytes put back at once */
#define SLICE STREAM_HIGH_WATER        /* of a large write: bounds the queue to twice the high water */
#define ROUNDS 4                       /* reads or writes per event: the others wait */

static void run_kick(struct task *t)
{
        struct stream *s = container_of(t, struct stream, kick);
        unsigned events = s->kicked;

        s->kicked = 0;
        stream_ready(s, events);
}

void stream_setup(struct stream *s, const struct stream_ops *ops)
{
        s->ops = ops;
        s->refs = 1;
        s->kick.fn = run_kick;
        s->maybe_readable = true;
}

void stream_ref(struct stream *s)
{
        s->refs++;
}

void stream_unref(struct stream *s)
{
        if (--s->refs == 0)
                free(s);
}

void stream_kick(struct stream *s, unsigned events)
{
        if (s->closed && !s->linger)
                return;
        s->kicked |= events;
        task_queue(&s->kick);
}

static unsigned wanted(const struct stream *s)
{
        unsigned events = 0;

        if (s->closed && !s->linger)
                return 0;
        if (s->connecting)
                return STREAM_WRITABLE;
        if (s->on_ready)
                events |= s->filter_wants;
        if (s->in_err == 0) {
                if (s->reader || s->linger)
                        events |= STREAM_READABLE;
                else if (s->on_data)
                        events |= s->paused ? 0 : STREAM_READABLE;
                else if (s->on_hangup)
                        events |= s->in.len < WATCH_MAX ? STREAM_READABLE : STREAM_HANGUP;
        }
        if (s->out_err == 0 && (s->out.len > 0 || (s->shut_wanted && !s->shut_done)))
                events |= STREAM_WRITABLE;
        return events;
}

void stream_update(struct stream *s)
{
        if (!s->closed || s->linger)
                s->ops->want(s, wanted(s));
}

bool stream_dead(const struct stream *s)
{
        return s->in_err != 0 || s->out_err != 0 || s->hung_up;
}

/* Final states are reported to the watcher from the loop, never inside the call that found them. */
static void in_failed(struct stream *s, int err)
{
        s->in_err = err;
        if (s->on_hangup)
                stream_kick(s, STREAM_HANGUP);
}

static void out_failed(struct stream *s, int err)
{
        s->out_err = err;
        fifo_done(&s->out);
        if (s->writer)
                coro_wake(s->writer);
        stream_kick(s, STREAM_HANGUP);
}

/* Reading */

ssize_t stream_try_read(struct stream *s, void *p, size_t n)
{
        if (s->in.len > 0)
                return (ssize_t) fifo_take(&s->in, p, n);
        if (s->in_err)
                return s->in_err == STREAM_EOF ? 0 : s->in_err;
        ssize_t r = s->ops->try_read(s, p, n);
        if (r == -EAGAIN)
                s->maybe_readable = false;
        else if (r <= 0)
                in_failed(s, r == 0 ? STREAM_EOF : (int) r);
        return r;
}

int coroutine_fn stream_wait_readable(struct stream *s, int64_t timeout_ms)
{
        int r;

        if (s->in.len > 0 || s->in_err || s->maybe_readable)
                return coro_check();
        if (s->reader)
                return -EBUSY;
        stream_ref(s);
        s->reader = coro_self();
        stream_update(s);
        r = coro_park(timeout_ms);
        s->reader = NULL;
        if (s->closed)
                r = -ECANCELED;
        else
                stream_update(s);
        stream_unref(s);
        return r;
}

ssize_t coroutine_fn stream_read(struct stream *s, void *p, size_t n, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        bool late = false;

        if (n == 0)
                return -EINVAL;
        int r = coro_check();
        if (r < 0)
                return r;
        for (;;) {
                if (s->in.len > 0 || s->in_err || s->maybe_readable) {
                        ssize_t got = stream_try_read(s, p, n);

                        if (got != -EAGAIN) {
                                if (got > 0 && s->on_hangup)
                                        stream_update(s); /* room in the side buffer */
                                stream_ref(s);
                                (void) coro_spend(); /* the bytes are read: they are told, cancelled or not */
                                stream_unref(s);
                                return got;
                        }
                }
                if (late)
                        return -ETIMEDOUT;
                r = stream_wait_readable(s, deadline_left(until));
                /* After the deadline one last look: with a timeout of 0 the descriptor may never have been polled. */
                if (r == -ETIMEDOUT)
                        late = s->maybe_readable = true;
                else if (r < 0)
                        return r;
        }
}

int coroutine_fn stream_read_full(struct stream *s, void *p, size_t n, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);

        for (size_t have = 0; have < n;) {
                ssize_t r = stream_read(s, (char *) p + have, n - have, deadline_left(until));

                if (r <= 0)
                        return r == 0 ? -ENODATA : (int) r;
                have += (size_t) r;
        }
        return 0;
}

int stream_unread(struct stream *s, const void *p, size_t n)
{
        if (n > UNREAD_MAX || s->in.len + n > WATCH_MAX + UNREAD_MAX)
                return -ENOBUFS;
        int r = fifo_prepend(&s->in, p, n);
        if (r == 0 && s->on_data)
                stream_kick(s, STREAM_READABLE);
        return r;
}

/* Callbacks may close the stream, stop or replace passive reading, or pause it. */
static bool passive_on(const struct stream *s)
{
        return s->on_data && !s->paused && !s->closed;
}

static void passive_read(struct stream *s)
{
        char *scratch = loop_scratch();

        for (int i = 0; i < ROUNDS && passive_on(s); i++) {
                ssize_t r = stream_try_read(s, scratch, LOOP_SCRATCH);

                if (r == -EAGAIN)
                        return;
                if (r > 0) {
                        s->on_data(s->passive_arg, scratch, (size_t) r);
                        if (s->in.len == 0 && !s->maybe_readable)
                                return;
                        continue;
                }
                void (*on_end)(void *arg, int r) = s->on_end;
                s->on_data = NULL;
                s->on_end = NULL;
                if (on_end)
                        on_end(s->passive_arg, (int) r);
                return;
        }
        if (passive_on(s) && (s->in.len > 0 || s->in_err))
                stream_kick(s, STREAM_READABLE);
}

static void watch_read(struct stream *s)
{
        size_t room = WATCH_MAX - min_size(s->in.len, WATCH_MAX);
        char *scratch = loop_scratch();

        if (room == 0 || s->in_err)
                return;
        /* Not stream_try_read: that would give the side buffer back first. */
        ssize_t r = s->ops->try_read(s, scratch, min_size(room, LOOP_SCRATCH));
        if (r > 0) {
                int err = fifo_add(&s->in, scratch, (size_t) r);

                if (err < 0)
                        in_failed(s, err);
        } else if (r != -EAGAIN) {
                in_failed(s, r == 0 ? STREAM_EOF : (int) r);
        }
}

void stream_passive(struct stream *s, void (*on_data)(void *arg, const void *p, size_t n),
                    void (*on_end)(void *arg, int r), void *arg)
{
        s->on_data = on_data;
        s->on_end = on_data ? on_end : NULL;
        s->passive_arg = arg;
        s->paused = false;
        if (on_data && (s->in.len > 0 || s->in_err))
                stream_kick(s, STREAM_READABLE);
        stream_update(s);
}

void stream_pause(struct stream *s, bool pause)
{
        s->paused = pause;
        if (!pause && s->on_data && (s->in.len > 0 || s->in_err))
                stream_kick(s, STREAM_READABLE);
        stream_update(s);
}

void stream_watch(struct stream *s, void (*fn)(void *arg), void *arg)
{
        s->on_hangup = fn;
        s->watch_arg = arg;
        if (fn && stream_dead(s))
                stream_kick(s, STREAM_HANGUP);
        stream_update(s);
}

/* Writing */

ssize_t stream_try_write(struct stream *s, const void *p, size_t n)
{
        if (s->out_err)
                return s->out_err;
        if (s->shut_wanted)
                return -EPIPE;
        if (s->out.len > 0)
                return -EAGAIN;
        ssize_t r = s->ops->try_write(s, p, n);
        if (r < 0 && r != -EAGAIN)
                out_failed(s, (int) r);
        else if (r > 0)
                s->moved_ms = loop_now();
        return r;
}

int stream_put(struct stream *s, const void *p, size_t n)
{
        ssize_t r = stream_try_write(s, p, n);

        if (r < 0 && r != -EAGAIN)
                return (int) r;
        size_t done = r > 0 ? (size_t) r : 0;
        if (done == n)
                return 0;
        if (s->out.len == 0)
                s->moved_ms = loop_now();
        r = fifo_add(&s->out, (const char *) p + done, n - done);
        if (r < 0) {
                out_failed(s, (int) r); /* half a message is out: nothing sensible can follow */
                return (int) r;
        }
        stream_update(s);
        return 0;
}

int coroutine_fn stream_wait_room(struct stream *s, size_t mark, int64_t timeout_ms)
{
        int r = coro_check();

        if (r == 0 && (s->out.len <= mark || s->out_err))
                return s->out_err;
        if (r == 0 && s->writer)
                r = -EBUSY;
        if (r < 0)
                return r;
        stream_ref(s);
        s->writer = coro_self();
        s->writer_mark = mark;
        int64_t since = loop_now();
        int64_t until = deadline_in(timeout_ms);
        for (;;) {
                r = coro_park(deadline_left(until));
                if (s->closed)
                        r = -ECANCELED;
                if (r == -ETIMEDOUT && s->moved_ms > since) {
                        since = s->moved_ms; /* slow is not stuck */
                        until = since + timeout_ms;
                        continue;
                }
                break;
        }
        s->writer = NULL;
        if (r == 0)
                r = s->out_err;
        stream_unref(s);
        return r;
}

int coroutine_fn stream_write(struct stream *s, const void *p, size_t n, int64_t timeout_ms)
{
        const char *at = p;
        int r = 0;

        while (n > 0 && r == 0) {
                size_t slice = min_size(n, SLICE);

                r = stream_wait_room(s, STREAM_HIGH_WATER, timeout_ms);
                /* A wake from elsewhere is no room. */
                if (r < 0 || s->out.len > STREAM_HIGH_WATER)
                        continue;
                r = stream_put(s, at, slice);
                if (r < 0)
                        break;
                at += slice;
                n -= slice;
                stream_ref(s);
                r = coro_spend();
                if (r == 0 && s->closed && n > 0)
                        r = -ECANCELED;
                /* What is queued in full is written: cancellation is told by the next call. */
                if (n == 0)
                        r = 0;
                stream_unref(s);
        }
        return r;
}

int coroutine_fn stream_flush(struct stream *s, int64_t timeout_ms)
{
        int r = 0;

        while (r == 0 && s->out.len > 0)
                r = stream_wait_room(s, 0, timeout_ms);
        return r < 0 ? r : s->out_err;
}

int stream_post(struct stream *s, const void *p, size_t n, size_t limit)
{
        if (s->out_err || s->shut_wanted)
                return s->out_err ? s->out_err : -EPIPE;
        if (n > limit || s->out.len > limit - n)
                return -EAGAIN;
        return stream_put(s, p, n);
}

size_t stream_queued(const struct stream *s)
{
        return s->out.len;
}

static void finish_writing(struct stream *s)
{
        if (!s->shut_wanted || s->shut_done || s->out.len > 0 || s->out_err)
                return;
        int r = s->ops->shutdown(s);
        if (r == -EAGAIN)
                return;
        s->shut_done = true;
        if (r < 0)
                out_failed(s, r);
}

int stream_shutdown(struct stream *s)
{
        if (s->out_err)
                return s->out_err;
        s->shut_wanted = true;
        finish_writing(s);
        stream_update(s);
        return s->out_err;
}

static void write_out(struct stream *s)
{
        for (int i = 0; i < ROUNDS && s->out.len > 0; i++) {
                ssize_t r = s->ops->try_write(s, s->out.p + s->out.off, s->out.len);

                if (r == -EAGAIN)
                        break;
                if (r < 0) {
                        out_failed(s, (int) r);
                        return;
                }
                s->moved_ms = loop_now();
                fifo_drop(&s->out, (size_t) r);
        }
        finish_writing(s);
        if (s->writer && s->out.len <= s->writer_mark)
                coro_wake(s->writer);
}

/* Events */

static void readable(struct stream *s)
{
        s->maybe_readable = true;
        if (s->reader)
                coro_wake(s->reader);
        else if (s->on_data)
                passive_read(s);
        else if (s->on_hangup)
                watch_read(s);
}

static void hung_up(struct stream *s)
{
        void (*fn)(void *arg) = s->on_hangup;

        s->on_hangup = NULL;
        if (fn)
                fn(s->watch_arg);
}

void stream_ready(struct stream *s, unsigned events)
{
        stream_ref(s);
        if (s->connecting && (events & STREAM_WRITABLE)) {
                if (s->writer)
                        coro_wake(s->writer);
                events = 0;
        }
        if ((events & STREAM_WRITABLE) && (!s->closed || s->linger))
                write_out(s);
        if (s->linger)
                linger_step(s);
        if ((events & STREAM_READABLE) && !s->closed && !s->on_ready)
                readable(s);
        if (events & STREAM_HANGUP) {
                /* Without a final error behind it this is the back end's word that the peer has left. */
                if (!stream_dead(s))
                        s->hung_up = true;
                if (!s->closed)
                        hung_up(s);
        }
        if (s->on_ready && !s->closed)
                s->on_ready(s->ready_arg, events);
        stream_update(s);
        stream_unref(s);
}

void stream_set_ready(struct stream *s, void (*fn)(void *arg, unsigned events), void *arg)
{
        s->on_ready = fn;
        s->ready_arg = arg;
        s->filter_wants = 0;
        stream_update(s);
}

void stream_want(struct stream *s, unsigned events)
{
        s->filter_wants = events;
        if ((events & STREAM_READABLE) && (s->in.len > 0 || s->in_err))
                stream_kick(s, STREAM_READABLE);
        if ((events & STREAM_WRITABLE) && s->out_err)
                stream_kick(s, STREAM_WRITABLE);
        stream_update(s);
}

/* The end */

void stream_close_now(struct stream *s)
{
        linger_cancel(s);
        task_cancel(&s->kick);
        fifo_done(&s->in);
        fifo_done(&s->out);
        s->ops->close(s);
        stream_unref(s);
}

static void detach(struct stream *s)
{
        s->closed = true;
        s->on_data = NULL;
        s->on_end = NULL;
        s->on_hangup = NULL;
        s->on_ready = NULL;
        if (s->reader)
                coro_wake(s->reader);
        if (s->writer)
                coro_wake(s->writer);
}

void stream_close(struct stream *s)
{
        if (!s)
                return;
        detach(s);
        stream_close_now(s);
}

void stream_closep(struct stream **s)
{
        stream_close(*s);
        *s = NULL;
}

void stream_close_after_flush(struct stream *s, int64_t timeout_ms)
{
        if (!s)
                return;
        detach(s);
        fifo_done(&s->in);
        linger_begin(s, timeout_ms);
}

int stream_fd(const struct stream *s)
{
        return s->ops->fd(s);
}

const char *stream_peer(const struct stream *s)
{
        /* The text is made on first use. */
        return s->ops->peer((struct stream *) (uintptr_t) s);
}
