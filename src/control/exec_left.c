#include "control/exec_left.h"

#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KEEP_MS 600000 /* a result, after the command's end */
#define KEEP_COUNT 200

struct running {
        struct list link; /* in left->all, once its caller has left */
        struct control *c;
        char *key;
        struct identity who;
        struct box *box;
        struct exec_request q; /* with texts of its own */
        struct exec_result res;
        struct err e;
        struct coro *coro;
        struct waitq ended;
        int64_t started, until;
        unsigned refs; /* the coroutine, the table, who waits */
        int r;
        bool done;
};

struct left_runs {
        struct map *by_key;
        struct list all; /* in the order of ending, those that run at the end */
        struct timer *timer;
        size_t count;
};

static struct running *running_new(struct control *c, const struct identity *who, struct box *b,
                                   const struct exec_request *q)
{
        struct running *x = xcalloc(1, sizeof *x);

        x->c = c;
        x->who = *who;
        x->box = b;
        b->refs++;
        x->key = xasprintf("%s/%s", b->id, q->id);
        x->q = *q;
        x->q.cmd = xstrdup(q->cmd);
        x->q.cwd = xstrdup(q->cwd);
        x->q.note = xstrdup(q->note);
        x->q.stdin_text = q->stdin_text ? xstrdup(q->stdin_text) : NULL;
        x->q.env = q->env ? json_ref((struct json *) (uintptr_t) q->env) : NULL;
        exec_result_init(&x->res, c->objects);
        waitq_init(&x->ended);
        x->started = loop_now();
        x->refs = 1;
        return x;
}

static void running_unref(struct running *x)
{
        if (--x->refs > 0)
                return;
        free((char *) (uintptr_t) x->q.cmd);
        free((char *) (uintptr_t) x->q.cwd);
        free((char *) (uintptr_t) x->q.note);
        free((char *) (uintptr_t) x->q.stdin_text);
        json_unref((struct json *) (uintptr_t) x->q.env);
        exec_result_done(&x->res);
        box_release(x->box);
        free(x->key);
        free(x);
}

static void running_unrefp(struct running **x)
{
        if (*x)
                running_unref(*x);
}

/* ---- those whose callers have left ---- */

static struct left_runs *table(struct control *c)
{
        if (!c->left) {
                c->left = xcalloc(1, sizeof *c->left);
                c->left->by_key = map_new();
                list_init(&c->left->all);
        }
        return c->left;
}

static void forget(struct left_runs *t, struct running *x)
{
        if (map_get(t->by_key, str_of(x->key)) == x)
                (void) map_del(t->by_key, str_of(x->key));
        list_remove(&x->link);
        t->count--;
        running_unref(x);
}

/* The first that has ended, which is the one that ended first. */
static struct running *oldest(struct left_runs *t)
{
        struct running *x = list_empty(&t->all) ? NULL : list_entry(t->all.next, struct running, link);

        return x && x->done ? x : NULL;
}

static void on_timer(void *arg)
{
        struct control *c = arg;
        struct left_runs *t = c->left;
        struct running *x;

        while ((x = oldest(t)) && (x->until <= loop_now() || t->count > KEEP_COUNT))
                forget(t, x);
        if (x)
                timer_reset(t->timer, x->until - loop_now());
        else
                timer_stop(&t->timer);
}

static void enter(struct control *c, struct running *x)
{
        struct left_runs *t = table(c);

        x->refs++;
        t->count++;
        list_append(&t->all, &x->link);
        (void) map_put(t->by_key, str_of(x->key), x);
}

/* Behind the others that have ended, before those that run. */
static void move_to_ended(struct left_runs *t, struct running *x)
{
        list_remove(&x->link);
        list_for_each (it, &t->all) {
                if (!list_entry(it, struct running, link)->done) {
                        list_append(it, &x->link); /* just before it */
                        return;
                }
        }
        list_append(&t->all, &x->link);
}

static void ended(struct control *c, struct running *x)
{
        struct left_runs *t = c->left;

        x->until = loop_now() + KEEP_MS;
        move_to_ended(t, x);
        x->done = true;
        waitq_wake_all(&x->ended);
        if (x->r < 0) /* what the box's daemon says is then all there is */
                forget(t, x);
        else if (!t->timer)
                t->timer = timer_start(KEEP_MS, 0, on_timer, c);
        else if (t->count > KEEP_COUNT)
                timer_reset(t->timer, 0);
}

/* ---- running ---- */

static void coroutine_fn run(void *arg)
{
        struct running *x = arg;

        x->r = exec_run(x->c, &x->who, x->box, &x->q, &x->res, &x->e);
        x->coro = NULL;
        if (list_linked(&x->link)) {
                ended(x->c, x);
        } else {
                x->done = true;
                waitq_wake_all(&x->ended);
        }
        running_unref(x);
}

static void so_far(struct running *x, struct exec_result *ret)
{
        output_snapshot(&ret->out, &x->res.out);
        output_snapshot(&ret->err, &x->res.err);
        ret->out.why_omitted = ret->err.why_omitted = "the command still runs";
        ret->duration_ms = loop_now() - x->started;
}

/* 0 once it has ended, -ETIMEDOUT, -ECANCELED. */
static int coroutine_fn wait_for(struct running *x, int64_t limit_ms)
{
        int64_t until = deadline_in(limit_ms);

        while (!x->done) {
                int r = waitq_wait(&x->ended, deadline_left(until));

                if (r < 0)
                        return x->done ? 0 : r;
        }
        return 0;
}

static int coroutine_fn take_result(struct running *x, struct exec_result *ret, struct err *e)
{
        exec_result_done(ret);
        *ret = x->res;
        exec_result_init(&x->res, x->c->objects);
        if (e)
                *e = x->e;
        return x->r;
}

int coroutine_fn exec_run_within(struct control *c, const struct identity *who, struct box *b,
                                 const struct exec_request *q, int64_t limit_ms, struct exec_result *ret, struct err *e)
{
        _cleanup_(running_unrefp) struct running *x = NULL;

        if (q->background || limit_ms < 0 || limit_ms > q->timeout_ms)
                return exec_run(c, who, b, q, ret, e);
        x = running_new(c, who, b, q);
        x->refs++;
        x->coro = coro_start(run, x, CORO_STACK_DEFAULT, "exec");
        if (!x->coro) {
                x->refs--;
                return err_set(e, -EAGAIN, "the server is at its limit of running calls; nothing was run");
        }
        int r = wait_for(x, limit_ms);
        if (r == -ETIMEDOUT) {
                so_far(x, ret);
                enter(c, x);
                return -EINPROGRESS;
        }
        if (r < 0) {
                coro_cancel(x->coro);
                coro_shield();
                (void) wait_for(x, -1);
                coro_unshield();
        }
        return take_result(x, ret, e);
}

int coroutine_fn exec_left_wait(struct control *c, const char *box, const char *id, int64_t limit_ms,
                                struct exec_result *ret_so_far, struct exec_result **ret)
{
        _cleanup_free_ char *key = xasprintf("%s/%s", box, id);
        struct running *found = c->left ? map_get(c->left->by_key, str_of(key)) : NULL;
        _cleanup_(running_unrefp) struct running *x = found;

        if (!x)
                return -ENOENT;
        x->refs++;
        int r = wait_for(x, limit_ms);
        if (r == -ETIMEDOUT) {
                so_far(x, ret_so_far);
                return -EINPROGRESS;
        }
        if (r < 0)
                return r;
        if (x->r < 0 || x->refs == 1) /* failed, or dropped while it was waited for */
                return -ENOENT;
        *ret = &x->res;
        return 0;
}

void coroutine_fn exec_left_stop(struct control *c)
{
        struct left_runs *t = c->left;

        if (!t)
                return;
        coro_shield();
        while (!list_empty(&t->all)) {
                struct running *x = list_entry(t->all.next, struct running, link);

                x->refs++;
                if (x->coro)
                        coro_cancel(x->coro);
                (void) wait_for(x, -1);
                if (list_linked(&x->link))
                        forget(t, x);
                running_unref(x);
        }
        coro_unshield();
        timer_stop(&t->timer);
        map_free(t->by_key);
        free(t);
        c->left = NULL;
}
