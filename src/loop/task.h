/*
 * task: what the loop runs next, and when. Internal to loop/ and to stream filters (stream_impl.h); free of uv.h.
 *
 * A task is a node its owner embeds; it runs once per task_queue, in the order of queueing, on the loop and never
 * inline. A tmo is a deadline its owner embeds: no allocation, no close callback; it is out of the heap when fn is
 * called. Zeroed objects with fn set are ready for use. Nothing here suspends.
 */
#pragma once

#include "base/list.h"

#include <stdint.h>

struct task {
        struct list node;
        void (*fn)(struct task *t);
};

void task_queue(struct task *t); /* no-op while it is queued */
void task_cancel(struct task *t);

struct tmo {
        size_t pos; /* place in the heap, 1-based; 0 = not running */
        int64_t due;
        uint64_t seq; /* equal deadlines fire in the order they were set */
        void (*fn)(struct tmo *t);
};

/* A buffer for one read whose bytes are consumed before anything else can run: no suspension between filling and use.
 */
#define LOOP_SCRATCH ((size_t) 64 << 10)
char *loop_scratch(void);

void tmo_start(struct tmo *t, int64_t after_ms); /* also restarts a running one */
void tmo_stop(struct tmo *t);
