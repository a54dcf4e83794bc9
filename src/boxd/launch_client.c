#include "boxd/launch.h"

#include "base/buf.h"
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int complain(const char *what, int error)
{
        fprintf(stderr, "launch: %s: %s\n", what, strerror(error));
        return 125;
}

static int write_request(struct buf *b, char **argv)
{
        uint32_t argc = 0;
        int r = 0;

        while (argv[argc])
                argc++;
        r = buf_add(b, &argc, sizeof(argc));
        for (char **v = argv; r == 0 && *v; v++)
                r = buf_add(b, *v, strlen(*v) + 1);
        for (char **v = environ; r == 0 && v && *v; v++)
                r = buf_add(b, *v, strlen(*v) + 1);
        return r;
}

static int send_request(int fd, const struct buf *b)
{
        union {
                char raw[CMSG_SPACE(4 * sizeof(int))];
                struct cmsghdr align;
        } c = { { 0 } };
        unsigned char raw[GUEST_HEADER_LEN];
        struct iovec iov = { raw, sizeof(raw) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.raw, .msg_controllen = sizeof(c.raw) };
        _cleanup_close_ int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fds[4] = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, cwd };

        if (cwd < 0)
                return -errno;
        guest_encode(&(struct guest_header){ GUEST_DATA, 0, (uint32_t) b->len }, raw);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(h), fds, sizeof(fds));
        if (sendmsg(fd, &m, MSG_NOSIGNAL) != (ssize_t) sizeof(raw))
                return -errno;
        for (size_t at = 0; at < b->len;) {
                ssize_t n = send(fd, b->p + at, b->len - at, MSG_NOSIGNAL);

                if (n < 0 && errno != EINTR)
                        return -errno;
                at += n > 0 ? (size_t) n : 0;
        }
        return 0;
}

/* As the program ended. */
static int end_like(int status)
{
        struct rlimit no_core = { 0 };
        sigset_t none;

        if (!WIFSIGNALED(status))
                return WEXITSTATUS(status);
        setrlimit(RLIMIT_CORE, &no_core);
        signal(WTERMSIG(status), SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        raise(WTERMSIG(status));
        return 128 + WTERMSIG(status);
}

static int follow(int fd, int sigfd)
{
        struct pollfd v[2] = { { fd, POLLIN, 0 }, { sigfd, POLLIN, 0 } };

        for (;;) {
                struct signalfd_siginfo si;
                int status;

                if (poll(v, 2, -1) < 0)
                        continue;
                if (v[1].revents && read(sigfd, &si, sizeof(si)) == sizeof(si)) {
                        unsigned char sig = (unsigned char) si.ssi_signo;

                        (void) !send(fd, &sig, 1, MSG_NOSIGNAL);
                }
                if (!v[0].revents)
                        continue;
                if (recv(fd, &status, sizeof(status), MSG_WAITALL) == (ssize_t) sizeof(status))
                        return end_like(status);
                fputs("launch: ended from outside: its starter is gone, or could not be had\n", stderr);
                return 128 + SIGKILL;
        }
}

int launch_client(char **argv)
{
        static const int forwarded[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH };
        struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = LAUNCH_SOCKET };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _cleanup_buf_ struct buf b = BUF_MAX(GUEST_FRAME_MAX);
        sigset_t set;

        if (!argv[0]) {
                fputs("usage: launch PROGRAM [ARGUMENT]...\nruns a program that brings a sandbox of its own\n", stderr);
                return 2;
        }
        if (fd < 0 || connect(fd, (struct sockaddr *) &a, sizeof(a)) < 0)
                return complain(LAUNCH_SOCKET, errno);
        if (write_request(&b, argv) < 0)
                return complain("arguments and environment", E2BIG);
        sigemptyset(&set);
        for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
                sigaddset(&set, forwarded[i]);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int sigfd = signalfd(-1, &set, SFD_CLOEXEC);
        int r = sigfd < 0 ? -errno : send_request(fd, &b);
        return r < 0 ? complain("request", -r) : follow(fd, sigfd);
}
