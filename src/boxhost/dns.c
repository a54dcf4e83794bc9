#include "boxhost/dns.h"

#include "boxhost/dns_forward.h"
#include "boxhost/sys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define NOBODY 65534

static int bind_one(int type, uint32_t address, uint16_t port, struct err *e)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address) };
        int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

        /* The gateway address exists only while a box does. */
        if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one)) < 0 ||
            (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0) ||
            bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0 || (type == SOCK_STREAM && listen(fd, 128) < 0)) {
                int r = err_sys(e, -errno, "cannot bind the name forwarder");
                if (fd >= 0)
                        close(fd);
                return r;
        }
        return fd;
}

static int bind_both(uint32_t address, uint16_t port, int *udp, int *tcp, uint16_t *ret_port, struct err *e)
{
        struct sockaddr_in a = { 0 };
        socklen_t n = sizeof(a);

        *udp = bind_one(SOCK_DGRAM, address, port, e);
        if (*udp < 0)
                return *udp;
        if (getsockname(*udp, (struct sockaddr *) &a, &n) < 0)
                return -errno;
        *ret_port = ntohs(a.sin_port);
        *tcp = bind_one(SOCK_STREAM, address, *ret_port, e);
        if (*tcp < 0) {
                close(steal_fd(udp));
                return *tcp;
        }
        return 0;
}

/* Everything but sockets, waiting, memory and reading resolv.conf is answered EPERM. */
static int confine(void)
{
        static const char *const allowed[] = {
                "read",           "write",        "sendto",     "recvfrom",        "sendmsg",       "recvmsg",
                "epoll_wait",     "epoll_pwait",  "epoll_ctl",  "epoll_create1",   "socket",        "connect",
                "accept",         "accept4",      "close",      "openat",          "newfstatat",    "fstat",
                "statx",          "stat",         "fcntl",      "getrandom",       "clock_gettime", "exit_group",
                "exit",           "rt_sigreturn", "mmap",       "munmap",          "brk",           "mremap",
                "mprotect",       "getsockopt",   "setsockopt", "shutdown",        "futex",         "restart_syscall",
                "rt_sigprocmask", "lseek",        "getpid",     "gettid",          "ppoll",         "poll",
                "recvmmsg",       "writev",       "readv",      "clock_nanosleep", "madvise",       "sigaltstack",
        };
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = ctx ? 0 : -ENOMEM;

        for (size_t i = 0; r == 0 && i < ARRAY_LEN(allowed); i++) {
                int nr = seccomp_syscall_resolve_name(allowed[i]);
                if (nr != __NR_SCMP_ERROR && nr >= 0) /* negative: not on this architecture */
                        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
        }
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}

struct child {
        int udp, tcp, names;
        const struct net_range *subnet;
        const char *resolver;
        pid_t parent;
};

static bool take_descriptors(int fds[3])
{
        for (int i = 0; i < 3; i++)
                fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
        for (int i = 0; i < 3; i++)
                if (fds[i] < 0 || dup2(fds[i], 3 + i) < 0)
                        return false;
        return close_range(6, ~0U, 0) == 0;
}

static void child_main(const struct child *c) __attribute__((noreturn));
static void child_main(const struct child *c)
{
        struct rlimit files = { .rlim_cur = DNS_IN_FLIGHT + 4 * DNS_CONNECTIONS + 32,
                                .rlim_max = DNS_IN_FLIGHT + 4 * DNS_CONNECTIONS + 32 };

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != c->parent)
                _exit(0);
        sys_reset_signals();
        if (!take_descriptors((int[]){ c->udp, c->tcp, c->names }))
                _exit(1);
        (void) setrlimit(RLIMIT_NOFILE, &files);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
            setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
            setresuid(NOBODY, NOBODY, NOBODY) < 0) /* leaving uid 0 empties the capabilities */
                _exit(1);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of uid cleared it */
        if (getppid() != c->parent || confine() < 0)
                _exit(1);
        dns_forward(3, 4, 5, c->subnet, c->resolver);
}

static int open_names(int *ours, int *theirs, struct err *e)
{
        struct timeval patience = { .tv_sec = 1 };
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return err_sys(e, -errno, "cannot talk to the name forwarder");
        (void) setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        *ours = pair[0];
        *theirs = pair[1];
        return 0;
}

int dns_start(struct dns *d, const struct net_range *subnet, uint16_t port, const char *resolver, struct err *e)
{
        _cleanup_close_ int udp = -1, tcp = -1, names = -1, theirs = -1;
        uint32_t address = net_gateway(subnet);
        pid_t parent = getpid();
        int r = bind_both(address, port, &udp, &tcp, &d->port, NULL);

        if (r < 0)
                r = bind_both(address, 0, &udp, &tcp, &d->port, e);
        if (r == 0)
                r = open_names(&names, &theirs, e);
        if (r < 0)
                return r;
        d->pid = fork();
        if (d->pid < 0) {
                d->pid = 0;
                return err_sys(e, -errno, "cannot start the name forwarder");
        }
        if (d->pid == 0)
                child_main(&(struct child){ udp, tcp, theirs, subnet, resolver, parent });
        d->pidfd = sys_pidfd_open(d->pid);
        d->names = steal_fd(&names);
        return 0;
}

void dns_stop(struct dns *d)
{
        if (d->pid <= 0)
                return;
        (void) kill(d->pid, SIGKILL);
        (void) waitpid(d->pid, NULL, 0);
        if (d->pidfd >= 0)
                close(steal_fd(&d->pidfd));
        if (d->names >= 0)
                close(steal_fd(&d->names));
        d->pid = 0;
}

void dns_tell(struct dns *d, const void *p, size_t n)
{
        if (d->pid > 0 && send(d->names, p, n, MSG_NOSIGNAL) < 0)
                (void) kill(d->pid, SIGKILL);
}
