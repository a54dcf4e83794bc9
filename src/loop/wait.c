#include "loop/wait.h"

#include <errno.h>

/* Lives on the stack of the waiting coroutine. */
struct waiter {
        struct list node;
        struct coro *c;
};

void waitq_init(struct waitq *q)
{
        list_init(&q->waiters);
}

int coroutine_fn waitq_wait(struct waitq *q, int64_t timeout_ms)
{
        struct waiter w = { .c = coro_self() };

        list_append(&q->waiters, &w.node);
        int r = coro_park(timeout_ms);
        list_remove(&w.node);
        return r;
}

/* Waiters whose wait has already ended otherwise (deadline, cancellation) are passed over: a wake is never lost on
 * them. */
static bool wake_first(struct waitq *q)
{
        list_for_each (it, &q->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);

                if (!coro_parked(w->c))
                        continue;
                list_remove(&w->node);
                coro_wake(w->c);
                return true;
        }
        return false;
}

void waitq_wake(struct waitq *q)
{
        (void) wake_first(q);
}

void waitq_wake_all(struct waitq *q)
{
        while (wake_first(q))
                ;
}

bool waitq_empty(const struct waitq *q)
{
        return list_empty(&q->waiters);
}

int coroutine_fn coro_sleep(int64_t ms)
{
        int r = coro_park(ms < 0 ? 0 : ms);

        return r == -ETIMEDOUT ? 0 : r;
}

void sem_init_n(struct sem *s, size_t n)
{
        s->free = n;
        waitq_init(&s->q);
}

int coroutine_fn sem_take(struct sem *s, int64_t timeout_ms)
{
        int r = coro_check();

        if (r < 0)
                return r;
        /* Overtakes nobody: a unit is free only when no one was there to be handed it. */
        if (s->free > 0) {
                s->free--;
                return 0;
        }
        /* 0: sem_give handed its unit to this waiter without counting it as free. */
        return waitq_wait(&s->q, timeout_ms);
}

void sem_give(struct sem *s)
{
        if (!wake_first(&s->q))
                s->free++;
}
