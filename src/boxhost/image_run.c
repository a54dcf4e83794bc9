#include "boxhost/image_run.h"

#include "boxhost/mount.h"
#include "boxhost/sys.h"
#include "base/buf.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LINE_MAX_BYTES 8192

/* PID 1 in there: maintainer scripts leave orphans, which somebody must reap. */
static void init_main(const struct image_run *run) __attribute__((noreturn));
static void init_main(const struct image_run *run)
{
        int status = 0;
        pid_t pid, main = fork();

        if (main == 0) {
                execve(run->program, (char *const *) (uintptr_t) run->argv, (char *const *) (uintptr_t) run->env);
                dprintf(2, "E: cannot execute %s: %s\n", run->program, strerror(errno));
                _exit(127);
        }
        while ((pid = waitpid(-1, &status, 0)) != main) {
                if (pid < 0 && errno != EINTR)
                        _exit(126);
        }
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void child_main(const struct image_run *run, int out, int keep) __attribute__((noreturn));
static void child_main(const struct image_run *run, int out, int keep)
{
        struct pollfd caller = { .fd = keep };

        /* Before anything else: nobody may be left in here when the caller is gone already, its end of the pipe closed.
         */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || poll(&caller, 1, 0) != 0)
                _exit(126);
        if (dup2(run->input, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
                _exit(126);
        (void) close_range(3, ~0U, 0);
        (void) setsid(); /* no terminal: an interrupt is the caller's to handle */
        (void) setpriority(PRIO_PROCESS, 0, 5);
        sys_reset_signals();
        if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
            mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
                dprintf(2, "E: cannot prepare mounts: %s\n", strerror(errno));
                _exit(126);
        }
        init_main(run);
}

/* keep is a pipe whose second end stays with the caller for as long as it lives. */
static int start(const struct image_run *run, int out, const int keep[2], pid_t *ret, int *ret_pidfd, struct err *e)
{
        int pidfd = -1;
        struct sys_clone_args a = {
                .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
                .pidfd = (uint64_t) (uintptr_t) &pidfd,
                .exit_signal = SIGCHLD,
        };
        pid_t pid;

        pid = sys_clone3(&a);
        if (pid == 0) {
                close(keep[1]);
                child_main(run, out, keep[0]);
        }
        if (pid < 0)
                return err_sys(e, -errno, "cannot start a process in namespaces of its own");
        *ret = pid;
        *ret_pidfd = pidfd;
        return 0;
}

/* Hands out whole lines; what is longer than a line should be is cut. */
static int hand_out(const struct image_run *run, struct buf *b, bool end)
{
        for (;;) {
                struct str rest = buf_str(b), line;
                const char *stop = rest.n ? memchr(rest.p, '\n', rest.n) : NULL;
                size_t whole = stop ? (size_t) (stop - rest.p) + 1 : rest.n;
                int r;
                if (!stop && (rest.n == 0 || (!end && rest.n < LINE_MAX_BYTES / 2)))
                        return 0;
                line = str_trim(str_n(rest.p, whole), "\r\n");
                r = run->line(line, run->arg);
                buf_consume(b, whole);
                if (r != 0)
                        return r;
        }
}

static int listen_to(const struct image_run *run, int from)
{
        _cleanup_buf_ struct buf b = BUF_MAX(LINE_MAX_BYTES);

        for (;;) {
                struct pollfd p[2] = { { .fd = from, .events = POLLIN }, { .fd = run->cancel, .events = POLLIN } };
                char *room = buf_room(&b, 2048);
                ssize_t n;
                int r;
                if (poll(p, 2, -1) < 0 && errno != EINTR)
                        return -errno;
                if (run->cancel >= 0 && p[1].revents)
                        return -ECANCELED;
                if (!p[0].revents)
                        continue;
                n = room ? read(from, room, 2048) : -1;
                if (n > 0)
                        buf_grew(&b, (size_t) n);
                r = hand_out(run, &b, n <= 0);
                if (r != 0 || n <= 0)
                        return r;
        }
}

int image_run(const struct image_run *run, struct err *e)
{
        _cleanup_close_ int from = -1, to = -1, pidfd = -1, keep_in = -1, keep_out = -1;
        int p[2], keep[2], status = 0, r;
        pid_t pid = -1;

        if (pipe2(p, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "cannot make a pipe");
        from = p[0];
        to = p[1];
        if (pipe2(keep, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "cannot make a pipe");
        keep_in = keep[0];
        keep_out = keep[1];
        r = start(run, to, (const int[2]){ keep_in, keep_out }, &pid, &pidfd, e);
        if (r < 0)
                return r;
        close(steal_fd(&to));
        r = listen_to(run, from);
        if (r != 0)
                (void) sys_pidfd_kill(pidfd, SIGKILL); /* PID 1: everything in there ends with it */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (r != 0)
                return err_set(e, r, r == -ECANCELED ? "stopped" : "given up");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        return err_set(e, -EIO, "%s ended with %d", run->argv[0],
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
