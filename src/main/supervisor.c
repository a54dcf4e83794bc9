#include "supervisor.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int send_fd(int to, int fd)
{
        char byte = 'b';
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { { 0 } };
        struct iovec iov = { &byte, 1 };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        return sendmsg(to, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static pid_t start_boxhost(char *const *argv, int fd)
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        if (fd == 3)
                (void) fcntl(fd, F_SETFD, 0);
        else if (dup2(fd, 3) < 0)
                _exit(127);
        execv(argv[0], argv);
        log_error("%s: %s", argv[0], strerror(errno));
        _exit(127);
}

/* The server is gone when its end of the feed is closed. */
static bool server_gone(int feed)
{
        struct pollfd p = { .fd = feed, .events = POLLIN };

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLIN | POLLHUP | POLLERR));
}

static _Noreturn void supervise(char *const *argv, int feed)
{
        struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };

        (void) setsid();
        (void) prctl(PR_SET_NAME, "psbx-supervisor", 0, 0, 0);
        (void) signal(SIGPIPE, SIG_IGN);
        while (!server_gone(feed)) {
                int pair[2], status = 0;

                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
                        log_error("socketpair: %s", strerror(errno));
                        _exit(1);
                }
                pid_t pid = start_boxhost(argv, pair[1]);
                (void) close(pair[1]);
                int r = pid < 0 ? -errno : send_fd(feed, pair[0]);
                (void) close(pair[0]);
                if (pid > 0)
                        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                                ;
                if (r < 0 || server_gone(feed))
                        break;
                log_warning("boxhost ended (%s %d); starting it again", WIFSIGNALED(status) ? "signal" : "status",
                            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                (void) nanosleep(&pause, NULL);
        }
        _exit(0);
}

int supervisor_start(char *const *argv, int *ret_feed, struct err *e)
{
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return err_sys(e, -errno, "socketpair");
        pid_t pid = fork();
        if (pid < 0) {
                int r = err_sys(e, -errno, "fork");

                (void) close(pair[0]);
                (void) close(pair[1]);
                return r;
        }
        if (pid == 0) {
                (void) close(pair[0]);
                supervise(argv, pair[1]);
        }
        (void) close(pair[1]);
        *ret_feed = pair[0];
        return 0;
}
