#include "loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "loop/loop_impl.h"

/* How long loop_done lets shielded coroutines, blocking work and killed children come to their end. */
#define DONE_PATIENCE_MS 5000
#define TRIM_EACH_MS 5000

/* The loop: one per program. Tasks run after timers (prepare) and after polling (check). */
static struct {
        uv_loop_t uv;
        uv_prepare_t prepare;
        uv_check_t check;
        uv_idle_t idle; /* active while tasks wait: polling does not block then */
        struct list tasks;
        struct list signals;
        char *scratch;
        int64_t trimmed_ms;
        pthread_t thread;
        bool up, idle_on;
} loop;

struct deferred {
        struct task task;
        void (*fn)(void *arg);
        void *arg;
};

struct signal_watch {
        uv_signal_t uv;
        struct list node;
        void (*fn)(int signum, void *arg);
        void *arg;
};

struct timer {
        struct tmo tmo;
        int64_t repeat_ms;
        void (*fn)(void *arg);
        void *arg;
};

uv_loop_t *loop_uv(void)
{
        return &loop.uv;
}

bool loop_is_up(void)
{
        return loop.up;
}

char *loop_scratch(void)
{
        if (!loop.scratch)
                loop.scratch = xmalloc(LOOP_SCRATCH);
        return loop.scratch;
}

_Noreturn void loop_broken(const char *what, const char *who)
{
        log_error("%s (%s)", what, who ? who : "?");
        abort();
}

static void on_idle(uv_idle_t *h)
{
        (void) h;
}

void task_queue(struct task *t)
{
        /* Everything ends here: one check finds every call from a thread of the pool. */
        if (loop.up && !pthread_equal(loop.thread, pthread_self()))
                loop_broken("the loop was used from another thread", "?");
        if (list_linked(&t->node))
                return;
        list_append(&loop.tasks, &t->node);
        if (!loop.idle_on && loop.up) {
                uv_idle_start(&loop.idle, on_idle);
                loop.idle_on = true;
        }
}

void task_cancel(struct task *t)
{
        list_remove(&t->node);
}

/* Runs what is queued now; what is queued meanwhile waits until descriptors and timers have had their turn. */
static void run_tasks(void)
{
        struct list batch;

        if (list_empty(&loop.tasks)) {
                if (loop.idle_on)
                        uv_idle_stop(&loop.idle);
                loop.idle_on = false;
                return;
        }
        batch = loop.tasks;
        batch.next->prev = batch.prev->next = &batch;
        list_init(&loop.tasks);
        while (!list_empty(&batch)) {
                struct task *t = list_entry(batch.next, struct task, node);

                list_remove(&t->node);
                t->fn(t);
        }
        if (list_empty(&loop.tasks) && loop.idle_on) {
                uv_idle_stop(&loop.idle);
                loop.idle_on = false;
        }
}

static void on_prepare(uv_prepare_t *h)
{
        (void) h;
        run_tasks();
        /* No timer for this: a program in which nothing happens at all is not woken to save memory. */
        if (loop_now() - loop.trimmed_ms >= TRIM_EACH_MS) {
                loop.trimmed_ms = loop_now();
                coro_trim();
        }
        tmo_sync();
}

static void on_check(uv_check_t *h)
{
        (void) h;
        run_tasks();
}

int loop_init(struct err *e)
{
        struct sigaction sa = { .sa_handler = SIG_IGN };
        int r;

        if (loop.up)
                return err_set(e, -EALREADY, "the loop exists already");
        r = uv_loop_init(&loop.uv);
        if (r < 0)
                return err_sys(e, r, "cannot make the event loop");
        /* Writing to a vanished peer is an error code. A SIGCHLD that was inherited ignored would lose exit statuses.
         */
        sigaction(SIGPIPE, &sa, NULL);
        if (sigaction(SIGCHLD, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN) {
                sa.sa_handler = SIG_DFL;
                sigaction(SIGCHLD, &sa, NULL);
        }
        list_init(&loop.tasks);
        list_init(&loop.signals);
        uv_prepare_init(&loop.uv, &loop.prepare);
        uv_check_init(&loop.uv, &loop.check);
        uv_idle_init(&loop.uv, &loop.idle);
        tmo_init();
        uv_prepare_start(&loop.prepare, on_prepare);
        uv_check_start(&loop.check, on_check);
        uv_unref((uv_handle_t *) &loop.prepare);
        uv_unref((uv_handle_t *) &loop.check);
        loop.thread = pthread_self();
        loop.up = true;
        return 0;
}

void loop_run(void)
{
        tmo_sync(); /* deadlines set since the last run keep it alive */
        uv_run(&loop.uv, UV_RUN_DEFAULT);
}

void loop_stop(void)
{
        uv_stop(&loop.uv);
}

int64_t loop_now(void)
{
        return (int64_t) uv_now(&loop.uv);
}

int64_t deadline_in(int64_t timeout_ms)
{
        /* Like tmo_start: counted from now, not from the start of the turn. */
        uv_update_time(&loop.uv);
        int64_t now = loop_now();

        return timeout_ms < 0 || timeout_ms >= INT64_MAX - now ? INT64_MAX : now + timeout_ms;
}

int64_t deadline_left(int64_t until)
{
        int64_t left = until - loop_now();

        return until == INT64_MAX ? -1 : left > 0 ? left : 0;
}

static void done_impatient(struct tmo *t)
{
        (void) t;
}

/* Lets everything that was told to end come to its end, within limits. */
static void wind_down(void)
{
        struct tmo limit = { .fn = done_impatient };

        tmo_start(&limit, DONE_PATIENCE_MS);
        for (;;) {
                coro_cancel_all();
                linger_end_all();
                if (!limit.pos || (coro_count() == 0 && child_orphans() == 0 && list_empty(&loop.tasks)))
                        break;
                tmo_sync();
                uv_run(&loop.uv, UV_RUN_ONCE);
        }
        tmo_stop(&limit);
        tmo_sync();
}

static void close_handle(uv_handle_t *h, void *arg)
{
        (void) arg;
        if (!uv_is_closing(h))
                uv_close(h, NULL);
}

static void run_deferred(struct task *t);

void loop_done(void)
{
        if (!loop.up)
                return;
        if (coro_self())
                loop_broken("loop_done inside a coroutine", "?");
        wind_down();
        loop.up = false;
        uv_walk(&loop.uv, close_handle, NULL);
        while (uv_loop_close(&loop.uv) == UV_EBUSY)
                uv_run(&loop.uv, UV_RUN_ONCE);
        list_for_each_safe (it, &loop.signals) {
                list_remove(it);
                free(list_entry(it, struct signal_watch, node));
        }
        list_for_each_safe (it, &loop.tasks) {
                struct task *t = list_entry(it, struct task, node);

                list_remove(it);
                if (t->fn == run_deferred)
                        free(container_of(t, struct deferred, task));
        }
        tmo_done();
        coro_pool_done();
        free(loop.scratch);
        loop.scratch = NULL;
        loop.idle_on = false;
}

static void run_deferred(struct task *t)
{
        struct deferred *d = container_of(t, struct deferred, task);
        void (*fn)(void *arg) = d->fn;
        void *arg = d->arg;

        free(d);
        fn(arg);
}

void loop_defer(void (*fn)(void *arg), void *arg)
{
        struct deferred *d = xmalloc(sizeof(*d));

        *d = (struct deferred){ .task.fn = run_deferred, .fn = fn, .arg = arg };
        task_queue(&d->task);
}

static void on_signal(uv_signal_t *h, int signum)
{
        struct signal_watch *w = container_of(h, struct signal_watch, uv);

        w->fn(signum, w->arg);
}

static void signal_closed(uv_handle_t *h)
{
        free(container_of(h, struct signal_watch, uv));
}

int loop_on_signal(int signum, void (*fn)(int signum, void *arg), void *arg)
{
        list_for_each_safe (it, &loop.signals) {
                struct signal_watch *w = list_entry(it, struct signal_watch, node);

                if (w->uv.signum != signum)
                        continue;
                list_remove(it);
                uv_close((uv_handle_t *) &w->uv, signal_closed);
        }
        if (!fn)
                return 0;
        struct signal_watch *w = xcalloc(1, sizeof(*w));
        w->fn = fn;
        w->arg = arg;
        int r = uv_signal_init(&loop.uv, &w->uv);
        if (r < 0) {
                free(w);
                return r;
        }
        r = uv_signal_start(&w->uv, on_signal, signum);
        if (r < 0) {
                uv_close((uv_handle_t *) &w->uv, signal_closed);
                return r;
        }
        /* Waiting for a signal alone keeps no program running. */
        uv_unref((uv_handle_t *) &w->uv);
        list_append(&loop.signals, &w->node);
        return 0;
}

static void timer_fired(struct tmo *t)
{
        struct timer *x = container_of(t, struct timer, tmo);

        /* Set before the call: the callback may stop, and thereby free, its own timer. */
        if (x->repeat_ms > 0)
                tmo_start(t, x->repeat_ms);
        x->fn(x->arg);
}

struct timer *timer_start(int64_t after_ms, int64_t repeat_ms, void (*fn)(void *arg), void *arg)
{
        struct timer *t = xmalloc(sizeof(*t));

        *t = (struct timer){ .tmo.fn = timer_fired, .repeat_ms = repeat_ms, .fn = fn, .arg = arg };
        tmo_start(&t->tmo, after_ms);
        return t;
}

void timer_reset(struct timer *t, int64_t after_ms)
{
        tmo_start(&t->tmo, after_ms);
}

void timer_stop(struct timer **t)
{
        if (!*t)
                return;
        tmo_stop(&(*t)->tmo);
        free(*t);
        *t = NULL;
}

int fd_prepare(int fd)
{
        int fdfl = fcntl(fd, F_GETFD), fl = fcntl(fd, F_GETFL);

        if (fdfl < 0 || fl < 0)
                return -errno;
        if (!(fdfl & FD_CLOEXEC) && fcntl(fd, F_SETFD, fdfl | FD_CLOEXEC) < 0)
                return -errno;
        if (!(fl & O_NONBLOCK) && fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
                return -errno;
        return 0;
}

int socket_prepared(int family, int type)
{
#if defined(SOCK_CLOEXEC) && defined(SOCK_NONBLOCK)
        int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        return fd < 0 ? -errno : fd;
#else
        int fd = socket(family, type, 0);

        if (fd < 0)
                return -errno;
        int r = fd_prepare(fd);
        if (r < 0) {
                closep(&fd);
                return r;
        }
        return fd;
#endif
}
