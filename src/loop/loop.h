/*
 * loop: the one event loop of a program, timers, signals and blocking work. The only folder that includes uv.h.
 * Everything runs on the thread that called loop_init; nothing here is thread-safe except where it says so.
 */
#pragma once

#include "base/err.h"
#include "loop/coro.h"

#include <stdint.h>

int loop_init(struct err *e);
void loop_run(void);    /* returns after loop_stop, or when nothing is left to wait for */
void loop_stop(void);   /* idempotent */
void loop_done(void);   /* closes every handle and waits for it; after loop_run */
int64_t loop_now(void); /* monotonic ms, cached per turn */

/* One timeout for several waits: until = deadline_in(timeout_ms), then deadline_left(until) for each. Negative: none.
 */
int64_t deadline_in(int64_t timeout_ms);
int64_t deadline_left(int64_t until);

/* Timers call back on the loop, outside of any coroutine. A fired one-shot timer may be started again. The owner embeds
 * the handle pointer and calls timer_stop before it goes away; timer_stop frees and sets the pointer to NULL. */
struct timer;
struct timer *timer_start(int64_t after_ms, int64_t repeat_ms, void (*fn)(void *arg), void *arg);
void timer_reset(struct timer *t, int64_t after_ms);
void timer_stop(struct timer **t);

/* Calls fn on the loop at the next turn. */
void loop_defer(void (*fn)(void *arg), void *arg);

/* Signals: fn runs on the loop, and replaces what was there for signum; NULL gives the signal back. A handler alone
 * keeps no loop running. */
int loop_on_signal(int signum, void (*fn)(int signum, void *arg), void *arg);

/* Runs fn(arg) on the thread pool and suspends the caller until it is done, even when cancelled (the result is needed
 * to free arg); returns fn's value. fn must not touch loop state. */
int coroutine_fn offload(int (*fn)(void *arg), void *arg);

/* getaddrinfo on the pool: the first usable address as text, or -errno with e set. */
int coroutine_fn resolve_host(const char *host, char *ret_addr, size_t n, struct err *e);
