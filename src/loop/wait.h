/*
 * wait: what coroutines wait on. A waitq is a condition: wakers change state first, waiters re-check it (rule 4).
 * A waitq may be destroyed when nobody waits on it.
 */
#pragma once

#include "loop/coro.h"

struct waitq {
        struct list waiters;
};

void waitq_init(struct waitq *q);
/* 0 when woken, -ETIMEDOUT, -ECANCELED. timeout_ms < 0 waits for ever. */
int coroutine_fn waitq_wait(struct waitq *q, int64_t timeout_ms);
void waitq_wake(struct waitq *q); /* the first waiter */
void waitq_wake_all(struct waitq *q);
bool waitq_empty(const struct waitq *q);

int coroutine_fn coro_sleep(int64_t ms); /* 0 or -ECANCELED */

/* A counting semaphore, fair in arrival order. */
struct sem {
        size_t free;
        struct waitq q;
};
void sem_init_n(struct sem *s, size_t n);
int coroutine_fn sem_take(struct sem *s, int64_t timeout_ms);
void sem_give(struct sem *s);
