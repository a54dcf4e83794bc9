/*
 * par: a few coroutines or blocking jobs side by side, joined by their owner. Cancelling the owner cancels the
 * coroutines and still waits for them: what they work on lies on the owner's stack.
 */
#pragma once

#include "loop/wait.h"

#define PAR_MAX 8

struct par_task {
        struct par *owner;
        struct coro *coro; /* NULL once ended */
        void (*fn)(void *arg);
        void *arg;
};

struct par {
        struct par_task task[PAR_MAX];
        size_t started, running;
        int stop; /* set when the owner was cancelled: blocking jobs may look at it (atomically) and end early */
        struct waitq done;
};

void par_init(struct par *p);
/* Starts fn(arg) in a coroutine; when none can be had it runs in the caller. */
void coroutine_fn par_start(struct par *p, void (*fn)(void *arg), void *arg);
/* 0, or -ECANCELED when the owner was cancelled while it waited; every task has ended either way. */
int coroutine_fn par_join(struct par *p);

/* Threads worth using for n items of blocking work: 1 to 4. */
unsigned par_width(size_t n);
