/*
 * out: the one way to stdout. Messages are queued whole and written by one coroutine, so they never interleave; nothing
 * else in the program writes there. When the host is gone, out is dead and everything is dropped.
 */
#pragma once

#include "base/err.h"
#include "base/buf.h"
#include "loop/wait.h"

/* Beyond it progress is dropped and answers wait: a host that does not read must not cost memory without end. */
#define OUT_HIGH_WATER ((size_t) 1 << 20)

struct out {
        struct stream *s;
        struct buf queue;
        bool writing, dead;
        struct waitq room;
        void (*on_dead)(void *arg);
        void *arg;
};

int out_init(struct out *o, int fd, void (*on_dead)(void *arg), void *arg, struct err *e);
/* Queues one message (a line without its end). Never suspends. */
void out_post(struct out *o, struct str line);
bool out_busy(const struct out *o);
/* Suspends while the queue is over the high water mark. */
void coroutine_fn out_room(struct out *o);
/* Waits until the kernel has everything, at most timeout_ms. */
void coroutine_fn out_flush(struct out *o, int64_t timeout_ms);
