/*
 * Children by posix_spawn: the C library's vfork path costs the same for a large parent as for a small one and reports
 * a failed exec. The end of a child is told by its pidfd on Linux, by SIGCHLD elsewhere. Only this file reaps, and only
 * its own children.
 */
#include "loop/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop_impl.h"
#include "loop/wait.h"

#ifdef __linux__
#include <sys/syscall.h>
#endif

extern char **environ;

struct child {
        uv_poll_t poll; /* of the pidfd */
        struct list node;
        struct waitq ended;
        struct stream *io[3];
        pid_t pid;
        int pidfd;
        int status; /* as the shell has it */
        unsigned refs;
        bool exited, session, polled, orphan;
};

static struct list children = { &children, &children }; /* not yet reaped */

static void child_unref(struct child *c)
{
        if (--c->refs == 0)
                free(c);
}

static void pidfd_closed(uv_handle_t *h)
{
        child_unref(container_of((uv_poll_t *) h, struct child, poll));
}

static void stop_polling(struct child *c)
{
        if (!c->polled)
                return;
        c->polled = false;
        if (uv_is_closing((uv_handle_t *) &c->poll))
                child_unref(c);
        else
                uv_close((uv_handle_t *) &c->poll, pidfd_closed);
        closep(&c->pidfd);
        c->pidfd = -1;
}

/* Asks the kernel whether c has ended; if so everyone who waits is told. */
static void reap(struct child *c, int how)
{
        int st = 0;
        pid_t r;

        do
                r = waitpid(c->pid, &st, how);
        while (r < 0 && errno == EINTR);
        if (r == 0)
                return;
        if (r < 0)
                c->status = 255; /* somebody else reaped it: its status is lost */
        else
                c->status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
        c->exited = true;
        list_remove(&c->node);
        stop_polling(c);
        waitq_wake_all(&c->ended);
        child_unref(c);
}

static void on_pidfd(uv_poll_t *h, int status, int events)
{
        (void) status;
        (void) events;
        reap(container_of(h, struct child, poll), WNOHANG);
}

static void on_sigchld(int signum, void *arg)
{
        (void) signum;
        (void) arg;
        list_for_each_safe (it, &children) {
                struct child *c = list_entry(it, struct child, node);

                if (!c->polled)
                        reap(c, WNOHANG);
        }
}

/* Not yet reaped, the pid cannot have been given to another process: no race here. */
static int watch_end(struct child *c)
{
#if defined(__linux__) && defined(SYS_pidfd_open)
        c->pidfd = (int) syscall(SYS_pidfd_open, c->pid, 0); /* close-on-exec by definition */
        if (c->pidfd >= 0) {
                if (uv_poll_init(loop_uv(), &c->poll, c->pidfd) == 0) {
                        c->polled = true;
                        c->refs++;
                        return uv_poll_start(&c->poll, UV_READABLE, on_pidfd);
                }
                closep(&c->pidfd);
                c->pidfd = -1;
        }
#endif
        int r = loop_on_signal(SIGCHLD, on_sigchld, NULL);
        /* It may have ended before the handler was there. */
        if (r == 0)
                kill(getpid(), SIGCHLD);
        return r;
}

struct plan {
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attr;
        int ours[3];                     /* our ends of the pipes */
        int theirs[3 + CHILD_EXTRA_MAX]; /* what becomes 0.. in the child, all above the range they go to */
};

static void plan_done(struct plan *p)
{
        for (size_t i = 0; i < ARRAY_LEN(p->ours); i++)
                closep(&p->ours[i]);
        for (size_t i = 0; i < ARRAY_LEN(p->theirs); i++)
                closep(&p->theirs[i]);
        posix_spawn_file_actions_destroy(&p->actions);
        posix_spawnattr_destroy(&p->attr);
}

static int pipe_cloexec(int fds[2])
{
#ifdef __linux__
        return pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
#else
        if (pipe(fds) < 0)
                return -errno;
        fcntl(fds[0], F_SETFD, FD_CLOEXEC);
        fcntl(fds[1], F_SETFD, FD_CLOEXEC);
        return 0;
#endif
}

/* A copy high enough that no later dup2 in the child can overwrite it. */
static int dup_high(int fd)
{
        int r = fcntl(fd, F_DUPFD_CLOEXEC, 3 + CHILD_EXTRA_MAX);

        return r < 0 ? -errno : r;
}

static int plan_stdio(struct plan *p, const struct child_spec *spec, int i)
{
        _cleanup_close_ int a = -1;
        _cleanup_close_ int b = -1;
        int fds[2], r;

        if (spec->io[i] == CHILD_NULL)
                return -posix_spawn_file_actions_addopen(&p->actions, i, "/dev/null", i == 0 ? O_RDONLY : O_WRONLY, 0);
        if (spec->io[i] == CHILD_INHERIT) {
#ifdef POSIX_SPAWN_CLOEXEC_DEFAULT
                return -posix_spawn_file_actions_addinherit_np(&p->actions, i);
#else
                return -posix_spawn_file_actions_adddup2(&p->actions, i, i);
#endif
        }
        r = pipe_cloexec(fds);
        if (r < 0)
                return r;
        a = fds[i == 0 ? 1 : 0];
        b = fds[i == 0 ? 0 : 1];
        p->theirs[i] = dup_high(b);
        if (p->theirs[i] < 0)
                return p->theirs[i];
        p->ours[i] = steal_fd(&a);
        return -posix_spawn_file_actions_adddup2(&p->actions, p->theirs[i], i);
}

static int plan_fds(struct plan *p, const struct child_spec *spec)
{
        int r = 0;

        if (spec->extra_n > CHILD_EXTRA_MAX)
                return -E2BIG;
        for (int i = 0; i < 3 && r == 0; i++)
                r = plan_stdio(p, spec, i);
        for (size_t i = 0; i < spec->extra_n && r == 0; i++) {
                p->theirs[3 + i] = dup_high(spec->extra[i]);
                r = p->theirs[3 + i] < 0
                            ? p->theirs[3 + i]
                            : -posix_spawn_file_actions_adddup2(&p->actions, p->theirs[3 + i], 3 + (int) i);
        }
        if (r == 0 && spec->cwd)
                r = -posix_spawn_file_actions_addchdir_np(&p->actions, spec->cwd);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
        /* Ours are close-on-exec; what this program itself inherited may not be. */
        if (r == 0)
                r = -posix_spawn_file_actions_addclosefrom_np(&p->actions, 3 + (int) spec->extra_n);
#endif
        return r;
}

/* Signals as a fresh program expects them: nothing blocked, nothing ignored. */
static int plan_attr(struct plan *p, const struct child_spec *spec)
{
        short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
        sigset_t all, none;

#ifdef POSIX_SPAWN_CLOEXEC_DEFAULT
        flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
#ifdef POSIX_SPAWN_SETSID
        if (spec->new_session)
                flags |= POSIX_SPAWN_SETSID;
#endif
        sigfillset(&all);
        sigemptyset(&none);
        posix_spawnattr_setsigdefault(&p->attr, &all);
        posix_spawnattr_setsigmask(&p->attr, &none);
        return -posix_spawnattr_setflags(&p->attr, flags);
}

static int open_streams(struct child *c, struct plan *p, struct err *e)
{
        for (int i = 0; i < 3; i++) {
                if (p->ours[i] < 0)
                        continue;
                int r = stream_from_fd(p->ours[i], &c->io[i], e);
                if (r < 0)
                        return r;
                p->ours[i] = -1;
        }
        return 0;
}

int child_spawn(const struct child_spec *spec, struct child **ret, struct err *e)
{
        struct plan p = { .ours = { -1, -1, -1 } };
        struct child *c = NULL;
        int r;

        for (size_t i = 0; i < ARRAY_LEN(p.theirs); i++)
                p.theirs[i] = -1;
        posix_spawn_file_actions_init(&p.actions);
        posix_spawnattr_init(&p.attr);
        c = xcalloc(1, sizeof(*c));
        c->pidfd = -1;
        c->refs = 1;
        waitq_init(&c->ended);
        r = plan_fds(&p, spec);
        if (r == 0)
                r = plan_attr(&p, spec);
        /* Before the child exists: afterwards only its end could be reported. */
        if (r == 0)
                r = open_streams(c, &p, e);
        if (r == 0)
                r = -posix_spawnp(&c->pid, spec->argv[0], &p.actions, &p.attr, (char *const *) (uintptr_t) spec->argv,
                                  spec->env ? (char *const *) (uintptr_t) spec->env : environ);
        plan_done(&p);
        if (r < 0) {
                for (int i = 0; i < 3; i++)
                        stream_closep(&c->io[i]);
                free(c);
                return err_sys(e, r, "cannot run %s", spec->argv[0]);
        }
        c->session = spec->new_session;
        c->refs++; /* until reaped */
        list_append(&children, &c->node);
        r = watch_end(c);
        if (r < 0) {
                child_free(c);
                return err_sys(e, r, "cannot watch %s", spec->argv[0]);
        }
        *ret = c;
        return 0;
}

pid_t child_pid(const struct child *c)
{
        return c->pid;
}

struct stream *child_stdio(struct child *c, int i)
{
        return c->io[i];
}

struct stream *child_take_stdio(struct child *c, int i)
{
        return steal_ptr(c->io[i]);
}

int coroutine_fn child_wait(struct child *c, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        int r = coro_check();

        c->refs++;
        while (r == 0 && !c->exited && !c->orphan) {
                r = waitq_wait(&c->ended, deadline_left(until));
        }
        if (r == 0)
                r = c->orphan ? -ECANCELED : c->status;
        child_unref(c);
        return r;
}

int child_kill(struct child *c, int signum)
{
        if (c->exited)
                return -ESRCH;
        return kill(c->session ? -c->pid : c->pid, signum) < 0 ? -errno : 0;
}

void child_free(struct child *c)
{
        if (!c)
                return;
        for (int i = 0; i < 3; i++)
                stream_closep(&c->io[i]);
        c->orphan = true;
        if (!c->exited)
                (void) child_kill(c, SIGKILL);
        /* After loop_done nobody tells; a killed child ends at once. */
        if (!c->exited && !loop_is_up())
                reap(c, 0);
        waitq_wake_all(&c->ended);
        child_unref(c);
}

void child_freep(struct child **c)
{
        child_free(*c);
        *c = NULL;
}

size_t child_orphans(void)
{
        size_t n = 0;

        list_for_each (it, &children)
                if (list_entry(it, struct child, node)->orphan)
                        n++;
        return n;
}
