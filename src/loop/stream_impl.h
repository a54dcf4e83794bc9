/*
 * stream_impl: the inside of a stream, for back ends: sockets and pipes here, TLS in http/ as a filter above another
 * stream. Free of uv.h. Nothing declared here suspends unless marked.
 *
 * The core (stream.c) owns queues, waiting coroutines, watching, passive reading, deadlines and lifetime. A back end
 * only moves bytes without blocking and tells when moving them is worth a try:
 *
 *   - struct mine { struct stream s; ... }: allocated with xcalloc, the stream first; stream_setup(&m->s, &ops). The
 * core frees it.
 *   - ops->want(s, events) says which events matter from now on; the back end then calls stream_ready(s, events) from
 * the loop, again and again while the condition holds (level-triggered). Bytes the back end has already (decrypted,
 * say) count as readable: stream_kick(s, STREAM_READABLE) in want() does that, since descriptors know nothing of them.
 *   - ops->close(s) gives up everything but the memory of the object. If something asynchronous still needs the memory,
 *     stream_ref before and stream_unref when it is over.
 *
 * A filter keeps its inner stream and listens to it:
 *
 *   stream_set_ready(inner, fn, arg): fn(arg, events) instead of coroutines and callbacks on the inner stream;
 *   stream_want(inner, events): what fn is called for;
 *   stream_try_read/try_write(inner, ...): what a BIO calls. -EAGAIN means: ask with stream_want.
 *   stream_set_ready(inner, NULL, NULL) before stream_close(inner).
 */
#pragma once

#include "loop/fifo.h"
#include "loop/stream.h"
#include "loop/task.h"

#define STREAM_READABLE 1u
#define STREAM_WRITABLE 2u
#define STREAM_HANGUP 4u /* the peer has gone, though unread bytes may be left; back ends may be unable to tell */

#define STREAM_EOF 1 /* value of in_err: the end was read */

struct lingering;

struct stream_ops {
        ssize_t (*try_read)(struct stream *s, void *p, size_t n); /* > 0, 0 at the end, -EAGAIN, -errno */
        ssize_t (*try_write)(struct stream *s, const void *p, size_t n);
        void (*want)(struct stream *s, unsigned events);
        int (*shutdown)(struct stream *s); /* everything queued is written; -EAGAIN: again when writable */
        void (*close)(struct stream *s);
        int (*fd)(const struct stream *s);
        const char *(*peer)(struct stream *s);
        bool lingers; /* closing with unread input makes the kernel drop output: read it away first (TCP) */
};

struct stream {
        const struct stream_ops *ops;
        struct task kick;
        struct fifo in;  /* put back, or read while only watched */
        struct fifo out; /* not yet taken by the kernel */
        struct coro *reader, *writer;
        size_t writer_mark; /* the writer waits for out.len <= this */
        void (*on_data)(void *arg, const void *p, size_t n);
        void (*on_end)(void *arg, int r);
        void *passive_arg;
        void (*on_hangup)(void *arg);
        void *watch_arg;
        void (*on_ready)(void *arg, unsigned events); /* of a filter above */
        void *ready_arg;
        struct lingering *linger;
        int64_t moved_ms;    /* when bytes last went out */
        int in_err, out_err; /* 0, STREAM_EOF or -errno: final */
        unsigned refs;
        unsigned kicked; /* events to report at the next turn */
        unsigned filter_wants;
        bool maybe_readable; /* a read is worth a try before waiting */
        bool closed;
        bool paused;
        bool ended; /* on_end was called */
        bool hung_up;
        bool connecting; /* writable means connected */
        bool shut_wanted, shut_done;
};

void stream_setup(struct stream *s, const struct stream_ops *ops);
void stream_ref(struct stream *s);
void stream_unref(struct stream *s);

void stream_ready(struct stream *s, unsigned events); /* from the loop */
void stream_kick(struct stream *s, unsigned events);  /* stream_ready at the next turn */
void stream_update(struct stream *s);                 /* tells the back end what matters now */

ssize_t stream_try_read(struct stream *s, void *p, size_t n);
ssize_t stream_try_write(struct stream *s, const void *p, size_t n);
void stream_set_ready(struct stream *s, void (*fn)(void *arg, unsigned events), void *arg);
void stream_want(struct stream *s, unsigned events);

/* Waiting without a buffer: until a read is worth a try, until at most mark bytes are queued. A wake by others returns
 * 0 too. */
int coroutine_fn stream_wait_readable(struct stream *s, int64_t timeout_ms);
int coroutine_fn stream_wait_room(struct stream *s, size_t mark, int64_t timeout_ms);
/* Writes what the kernel takes and queues a copy of the rest, without limit. */
int stream_put(struct stream *s, const void *p, size_t n);

/* linger.c: the life of a stream between stream_close_after_flush and its end. */
void linger_begin(struct stream *s, int64_t timeout_ms);
void linger_step(struct stream *s);
void linger_cancel(struct stream *s);
void stream_close_now(struct stream *s); /* of a closed, lingering stream */
