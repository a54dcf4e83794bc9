#include "boxd/launch.h"

#include "boxd/conn.h"
#include "boxd/filter.h"
#include "boxd/keeper.h"
#include "boxd/pid1.h"
#include "boxd/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 64
#define DEPTH_MAX 64
#define HEAD_SECONDS 10
#define KILL_MS 5000
#define WORDS_MAX 8192
extern char **environ;

enum { FD_IN, FD_OUT, FD_ERR, FD_CWD, FD_COUNT };

static _Noreturn void launch_main(int fd);

/*
 * ---- in PID 1 and in a keeper ----
 */

int launch_listen(void)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = LAUNCH_SOCKET };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        (void) mkdir("/run/boxd", 0755);
        (void) unlink(LAUNCH_SOCKET);
        if (fd < 0 || bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0 || chmod(LAUNCH_SOCKET, 0600) < 0 ||
            listen(fd, BACKLOG) < 0)
                return -errno;
        return steal_fd(&fd);
}

static pid_t parent_of(pid_t pid)
{
        char path[32], line[512];
        struct proc it = { 0 };

        snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line));
        return n > 0 && proc_parse(line, (size_t) n, &it) ? it.ppid : 0;
}

static struct job *job_of(struct pid1 *p, pid_t pid)
{
        for (int depth = 0; pid > 1 && depth < DEPTH_MAX; depth++, pid = parent_of(pid)) {
                struct job *j = jobs_by_keeper(p, pid);

                if (j)
                        return j;
        }
        return NULL;
}

void launch_accept(struct pid1 *p)
{
        _cleanup_close_ int fd = accept4(p->launch, NULL, NULL, SOCK_CLOEXEC);
        struct ucred who = { 0 };
        socklen_t n = sizeof(who);

        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
                return;
        struct job *j = job_of(p, who.pid);
        if (j) {
                (void) jobs_launch(j, fd);
                return;
        }
        if (pid1_worker(p, &fd, 1) == 0)
                launch_main(FD_FIRST);
}

void launch_fork(int fd)
{
        pid_t pid = fork();

        if (pid == 0) {
                sigset_t none;

                dup3(fd, FD_FIRST, O_CLOEXEC);
                syscall(SYS_close_range, FD_FIRST + 1, ~0u, 0);
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                launch_main(FD_FIRST);
        }
        close(fd);
}

/*
 * ---- the starter ----
 */

struct request {
        char *text;
        char **argv, **env;
        int fds[FD_COUNT];
};

/* False when it is not what launch.h says. */
static bool split(struct request *q, size_t n)
{
        uint32_t argc;
        size_t i = 0;

        if (n < sizeof(argc) + 1 || q->text[n - 1] != '\0')
                return false;
        memcpy(&argc, q->text, sizeof(argc));
        if (argc < 1 || argc > WORDS_MAX)
                return false;
        q->argv = xcalloc(argc + 1, sizeof(*q->argv));
        q->env = xcalloc(WORDS_MAX + 1, sizeof(*q->env));
        for (char *p = q->text + sizeof(argc), *end = q->text + n; p < end; p += strlen(p) + 1, i++) {
                if (i < argc)
                        q->argv[i] = p;
                else if (i - argc < WORDS_MAX)
                        q->env[i - argc] = p;
        }
        return i >= argc;
}

/* The descriptors come with the first byte. */
static bool receive(int fd, struct request *q)
{
        union {
                char raw[CMSG_SPACE(FD_COUNT * sizeof(int))];
                struct cmsghdr align;
        } c = { { 0 } };
        unsigned char raw[GUEST_HEADER_LEN];
        struct iovec iov = { raw, sizeof(raw) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.raw, .msg_controllen = sizeof(c.raw) };
        struct timeval limit = { .tv_sec = HEAD_SECONDS };
        struct guest_header h;

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL);
        struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
        if (n != (ssize_t) sizeof(raw) || guest_decode(raw, &h) < 0 || h.stream != GUEST_DATA || !cm ||
            cm->cmsg_type != SCM_RIGHTS || cm->cmsg_len != CMSG_LEN(sizeof(q->fds)))
                return false;
        memcpy(q->fds, CMSG_DATA(cm), sizeof(q->fds));
        q->text = try_malloc(h.length);
        for (size_t have = 0; q->text && have < h.length; have += (size_t) n) {
                n = recv(fd, q->text + have, h.length - have, 0);
                if (n <= 0)
                        return false;
        }
        return q->text && split(q, h.length);
}

static int put(const char *path, const char *text)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* The filter comes first: from then on nothing here is worth taking over. */
static int enter(const char **ret_what)
{
        char map[32];
        int r;

        snprintf(map, sizeof(map), "%d 0 1", LAUNCH_UID);
        *ret_what = "filter";
        r = filter_sandboxed();
        if (r < 0)
                return r;
        *ret_what = "user namespace";
        if (unshare(CLONE_NEWUSER) < 0)
                return -errno;
        *ret_what = "identity";
        r = put("/proc/self/setgroups", "deny");
        if (r == 0)
                r = put("/proc/self/gid_map", map);
        return r < 0 ? r : put("/proc/self/uid_map", map);
}

static _Noreturn void become(struct request *q)
{
        const char *what = NULL;
        sigset_t none;
        int r;

        (void) setsid();
        for (int i = FD_IN; i <= FD_ERR; i++)
                dup2(q->fds[i], i);
        if (fchdir(q->fds[FD_CWD]) < 0)
                (void) !chdir("/");
        r = enter(&what);
        if (r < 0) {
                dprintf(STDERR_FILENO, "launch: %s: %s\n", what, strerror(-r));
                _exit(125);
        }
        for (int i = 1; i < NSIG; i++)
                signal(i, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        environ = q->env; /* its PATH is the one to look in */
        execvp(q->argv[0], q->argv);
        dprintf(STDERR_FILENO, "launch: %s: %s\n", q->argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
}

static void end_all(void)
{
        struct tree t = { .root = getpid() };

        tree_kill(&t, KILL_MS);
}

/* Signals of the client's go on to the program, until one of the two has ended. */
static void watch(int fd, pid_t pid, int sigfd)
{
        struct pollfd v[2] = { { fd, POLLIN, 0 }, { sigfd, POLLIN, 0 } };
        struct signalfd_siginfo si;

        for (;;) {
                int status;
                unsigned char sig;

                if (poll(v, 2, -1) < 0 && errno != EINTR)
                        return;
                if (v[1].revents)
                        (void) !read(sigfd, &si, sizeof(si));
                for (pid_t gone; (gone = waitpid(-1, &status, WNOHANG)) > 0;)
                        if (gone == pid) {
                                (void) !send(fd, &status, sizeof(status), MSG_NOSIGNAL);
                                return;
                        }
                if (!v[0].revents)
                        continue;
                ssize_t n = recv(fd, &sig, 1, MSG_DONTWAIT);
                if (n == 1 && sig > 0 && sig < NSIG)
                        kill(pid, sig);
                else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                        end_all();
                        return;
                }
        }
}

static _Noreturn void launch_main(int fd)
{
        struct request q = { .fds = { -1, -1, -1, -1 } };
        sigset_t set;

        keeper_oom_score_of_jobs();
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int sigfd = signalfd(-1, &set, SFD_CLOEXEC);
        if (!receive(fd, &q))
                _exit(1);
        pid_t pid = sigfd < 0 ? -1 : fork();
        if (pid == 0)
                become(&q);
        for (int i = 0; i < FD_COUNT; i++)
                closep(&q.fds[i]);
        if (pid > 0)
                watch(fd, pid, sigfd);
        _exit(0);
}
