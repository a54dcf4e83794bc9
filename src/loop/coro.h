/*
 * coro: stackful coroutines on the one loop thread (docs/coroutines.md has the nine rules).
 *
 * A coroutine is created with ucontext and switched by sigsetjmp without mask. Stacks are 64 KiB with a guard page,
 * pooled, and given back to the kernel when idle. The scheduler owns every coroutine; it ends when its function
 * returns. A function that may suspend its caller carries `coroutine_fn` and says so; only coroutine_fn functions call
 * such functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/* Marks a function that may suspend the calling coroutine. */
#define coroutine_fn

struct coro;

#define CORO_STACK_DEFAULT ((size_t) 64 << 10)
#define CORO_STACK_LARGE ((size_t) 256 << 10) /* for regex, full-text search, printf of doubles in depth */

/* Starts fn(arg) at the next turn of the loop. stack: usable bytes, 0 for the default. Never fails for the default up
 * to the configured maximum of live coroutines; NULL beyond it (the caller answers 503). name is for the debugger and
 * must outlive the coroutine. */
struct coro *coro_start(void (*fn)(void *arg), void *arg, size_t stack, const char *name);

struct coro *coro_self(void); /* NULL outside of any */
size_t coro_count(void);
void coro_set_max(size_t n); /* default 20000 */

/* Asks a coroutine to unwind: its present wait, and every later one, returns -ECANCELED. Never frees a stack. A wait
 * whose end was decided before (woken, timed out) ends as decided. c is valid until its function returns: that function
 * tells whoever keeps the pointer. */
void coro_cancel(struct coro *c);
bool coro_cancelled(void); /* of the running one */

/* While shielded, waits are not cancelled: for cleanup that must itself wait. Nests. */
void coro_shield(void);
void coro_unshield(void);

/* Bracket an invariant: a suspension inside aborts. Nests. */
void coro_forbid(void);
void coro_permit(void);

/* Low level, for the waiting primitives in this folder: parks the running coroutine until coro_wake. */
int coroutine_fn coro_park(int64_t timeout_ms); /* 0 woken, -ETIMEDOUT, -ECANCELED; timeout < 0 = none */
void coro_wake(struct coro *c);                 /* no-op unless parked; runs it from the loop, never inline */

bool coro_parked(const struct coro *c); /* false as soon as the end of its wait is decided */

/* Lets everything else that is ready run once, for long computations; 0 or -ECANCELED. */
int coroutine_fn coro_yield(void);
/* For operations that often succeed without waiting: yields now and then, so that a fast peer starves nobody. 0 or
 * -ECANCELED. */
int coroutine_fn coro_spend(void);
/* -ECANCELED when the running coroutine is to unwind now (cancelled and not shielded), else 0. */
int coro_check(void);

/* Gives back the stack pages that coroutines used once but do not need while they wait: of those parked since the last
 * call. The loop does this every few seconds. */
void coro_trim(void);

/* Lists live coroutines for gdb and for the debug log. */
void coro_each(void (*fn)(const struct coro *c, const char *name, bool parked, void *arg), void *arg);
