#include "loop/coro.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "loop/coro_switch.h"
#include "loop/loop_impl.h"

/* Operations that succeed without waiting, between two suspensions: beyond it the others get a turn. */
#define CORO_BUDGET 64

struct coro {
        struct task resume; /* queued = will run */
        struct tmo deadline;
        struct list all;
        void (*fn)(void *arg);
        void *arg;
        const char *name;
        struct cstack stack;
        int result; /* of the present park */
        unsigned shield;
        unsigned spent;
        bool long_parked; /* was parked already when coro_trim last came by */
        bool trimmed;
        bool parked; /* waits for coro_wake; false again as soon as its end is decided */
        bool cancelled;
        bool done;
        struct coro_ctx ctx;
};

/* The scheduler: one per process, as there is one loop. */
static struct {
        struct coro *running;
        struct list all;
        size_t count;
        size_t max;
        unsigned forbid;
} sched = { .all = { &sched.all, &sched.all }, .max = 20000 };

static void coro_end(struct coro *c)
{
        list_remove(&c->all);
        sched.count--;
        cstack_put(&c->stack);
        free(c);
}

static void coro_main(void *arg)
{
        struct coro *c = arg;

        c->fn(c->arg);
        if (sched.forbid)
                loop_broken("a coroutine ended between coro_forbid and coro_permit", c->name);
        c->done = true;
        ctx_leave(&c->ctx, true);
}

static void resume(struct task *t)
{
        struct coro *c = container_of(t, struct coro, resume);

        c->spent = 0;
        c->long_parked = c->trimmed = false;
        sched.running = c;
        ctx_enter(&c->ctx);
        sched.running = NULL;
        if (c->done)
                coro_end(c);
}

/* Decides how the present wait ends; whoever comes first wins, so neither a wake nor a cancellation is lost. */
static void unpark(struct coro *c, int result)
{
        c->parked = false;
        c->result = result;
        tmo_stop(&c->deadline);
        task_queue(&c->resume);
}

static void deadline_passed(struct tmo *t)
{
        unpark(container_of(t, struct coro, deadline), -ETIMEDOUT);
}

struct coro *coro_start(void (*fn)(void *arg), void *arg, size_t stack, const char *name)
{
        if (!loop_is_up())
                loop_broken("coro_start before loop_init", name);
        if (sched.count >= sched.max)
                return NULL;
        struct coro *c = try_malloc(sizeof(*c));
        if (!c)
                return NULL;
        *c = (struct coro){ .resume.fn = resume, .deadline.fn = deadline_passed, .fn = fn, .arg = arg, .name = name };
        if (cstack_get(&c->stack, stack ? stack : CORO_STACK_DEFAULT) < 0) {
                free(c);
                return NULL;
        }
        c->ctx.lo = c->stack.lo;
        c->ctx.size = c->stack.size;
        c->ctx.entry = coro_main;
        c->ctx.arg = c;
        list_append(&sched.all, &c->all);
        sched.count++;
        task_queue(&c->resume);
        return c;
}

struct coro *coro_self(void)
{
        return sched.running;
}

size_t coro_count(void)
{
        return sched.count;
}

void coro_set_max(size_t n)
{
        sched.max = n;
}

static bool must_unwind(const struct coro *c)
{
        return c->cancelled && c->shield == 0;
}

void coro_cancel(struct coro *c)
{
        c->cancelled = true;
        if (c->parked && must_unwind(c))
                unpark(c, -ECANCELED);
}

bool coro_cancelled(void)
{
        return sched.running && sched.running->cancelled;
}

int coro_check(void)
{
        return sched.running && must_unwind(sched.running) ? -ECANCELED : 0;
}

static struct coro *running_or_die(const char *what)
{
        if (!sched.running)
                loop_broken(what, "outside of any coroutine");
        return sched.running;
}

void coro_shield(void)
{
        running_or_die("coro_shield")->shield++;
}

void coro_unshield(void)
{
        struct coro *c = running_or_die("coro_unshield");

        if (c->shield == 0)
                loop_broken("coro_unshield without coro_shield", c->name);
        c->shield--;
}

void coro_forbid(void)
{
        sched.forbid++;
}

void coro_permit(void)
{
        if (sched.forbid == 0)
                loop_broken("coro_permit without coro_forbid", sched.running ? sched.running->name : "the loop");
        sched.forbid--;
}

static struct coro *suspendable(void)
{
        struct coro *c = running_or_die("suspension");

        if (sched.forbid)
                loop_broken("suspension between coro_forbid and coro_permit", c->name);
        return c;
}

int coroutine_fn coro_park(int64_t timeout_ms)
{
        struct coro *c = suspendable();

        if (must_unwind(c))
                return -ECANCELED;
        c->parked = true;
        c->result = 0;
        if (timeout_ms >= 0)
                tmo_start(&c->deadline, timeout_ms);
        ctx_leave(&c->ctx, false);
        return c->result;
}

void coro_wake(struct coro *c)
{
        if (c->parked)
                unpark(c, 0);
}

bool coro_parked(const struct coro *c)
{
        return c->parked;
}

int coroutine_fn coro_yield(void)
{
        struct coro *c = suspendable();

        if (must_unwind(c))
                return -ECANCELED;
        task_queue(&c->resume);
        ctx_leave(&c->ctx, false);
        return must_unwind(c) ? -ECANCELED : 0;
}

int coroutine_fn coro_spend(void)
{
        struct coro *c = suspendable();

        return ++c->spent >= CORO_BUDGET ? coro_yield() : coro_check();
}

void coro_trim(void)
{
        list_for_each (it, &sched.all) {
                struct coro *c = list_entry(it, struct coro, all);

                if (!c->parked || c->trimmed)
                        continue;
                if (c->long_parked) {
                        cstack_trim(&c->stack, c->ctx.sp);
                        c->trimmed = true;
                }
                c->long_parked = true;
        }
}

void coro_each(void (*fn)(const struct coro *c, const char *name, bool parked, void *arg), void *arg)
{
        list_for_each_safe (it, &sched.all) {
                struct coro *c = list_entry(it, struct coro, all);

                fn(c, c->name, c->parked, arg);
        }
}

void coro_cancel_all(void)
{
        list_for_each (it, &sched.all)
                coro_cancel(list_entry(it, struct coro, all));
}

void coro_pool_done(void)
{
        if (sched.count > 0)
                log_warning("%zu coroutines still wait at the end of the loop", sched.count);
        cstack_pool_done();
}
