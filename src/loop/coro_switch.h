/*
 * coro_switch: the one place that changes stacks. ucontext makes a context, sigsetjmp/siglongjmp without signal mask
 * switch (39 ns against 600 for swapcontext, which asks the kernel twice), and the sanitizers are told of each switch.
 * Asymmetric: the scheduler enters a coroutine, the coroutine leaves to the scheduler.
 */
#pragma once

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

struct coro_ctx {
        sigjmp_buf env;
        void *lo; /* lowest usable byte of the stack */
        size_t size;
        void (*entry)(void *arg); /* must end in ctx_leave(c, true) */
        void *arg;
        void *fake_stack; /* of ASan */
        void *sp;         /* of the last leave; everything a little below is unused */
        bool begun;
};

void ctx_enter(struct coro_ctx *c);
void ctx_leave(struct coro_ctx *c, bool last);

/* Stacks with a guard area below, pooled. */
struct cstack {
        void *map;
        size_t map_size;
        void *lo;
        size_t size;
};

int cstack_get(struct cstack *s, size_t usable); /* -ENOMEM */
void cstack_put(struct cstack *s);
void cstack_trim(const struct cstack *s, const void *sp); /* gives back the pages below sp */
void cstack_pool_done(void);
