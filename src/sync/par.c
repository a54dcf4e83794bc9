#include "sync/par.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#define SMALL_WORK 512

void par_init(struct par *p)
{
        *p = (struct par){ 0 };
        waitq_init(&p->done);
}

static void coroutine_fn run_task(void *arg)
{
        struct par_task *t = arg;

        t->fn(t->arg);
        t->coro = NULL;
        if (--t->owner->running == 0)
                waitq_wake_all(&t->owner->done);
}

void coroutine_fn par_start(struct par *p, void (*fn)(void *arg), void *arg)
{
        assert(p->started < PAR_MAX);
        struct par_task *t = &p->task[p->started++];

        *t = (struct par_task){ .owner = p, .fn = fn, .arg = arg };
        p->running++;
        t->coro = coro_start(run_task, t, 0, "par");
        if (!t->coro)
                run_task(t);
}

int coroutine_fn par_join(struct par *p)
{
        int result = 0;

        while (p->running) {
                if (result == 0 && waitq_wait(&p->done, -1) != -ECANCELED)
                        continue;
                if (result == 0) {
                        result = -ECANCELED;
                        __atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
                        for (size_t i = 0; i < p->started; i++)
                                if (p->task[i].coro)
                                        coro_cancel(p->task[i].coro);
                        coro_shield();
                        continue;
                }
                (void) waitq_wait(&p->done, -1);
        }
        if (result)
                coro_unshield();
        return result;
}

unsigned par_width(size_t n)
{
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);

        if (n < SMALL_WORK || cpus < 2)
                return 1;
        return cpus > 4 ? 4 : (unsigned) cpus;
}
