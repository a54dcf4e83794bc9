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

static void child_main(int udp, int tcp, const char *resolver, pid_t parent) __attribute__((noreturn));
static void child_main(int udp, int tcp, const char *resolver, pid_t parent)
{
        struct rlimit files = { .rlim_cur = DNS_IN_FLIGHT + 4 * DNS_CONNECTIONS + 32,
                                .rlim_max = DNS_IN_FLIGHT + 4 * DNS_CONNECTIONS + 32 };

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(0);
        sys_reset_signals();
        udp = fcntl(udp, F_DUPFD_CLOEXEC, 64);
        tcp = fcntl(tcp, F_DUPFD_CLOEXEC, 64);
        if (udp < 0 || tcp < 0 || dup2(udp, 3) < 0 || dup2(tcp, 4) < 0 || close_range(5, ~0U, 0) < 0)
                _exit(1);
        (void) setrlimit(RLIMIT_NOFILE, &files);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
            setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
            setresuid(NOBODY, NOBODY, NOBODY) < 0) /* leaving uid 0 empties the capabilities */
                _exit(1);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of uid cleared it */
        if (getppid() != parent || confine() < 0)
                _exit(1);
        dns_forward(3, 4, resolver);
}

int dns_start(struct dns *d, uint32_t address, uint16_t port, const char *resolver, struct err *e)
{
        _cleanup_close_ int udp = -1, tcp = -1;
        pid_t parent = getpid();
        int r = bind_both(address, port, &udp, &tcp, &d->port, NULL);

        if (r < 0)
                r = bind_both(address, 0, &udp, &tcp, &d->port, e);
        if (r < 0)
                return r;
        d->pid = fork();
        if (d->pid < 0) {
                d->pid = 0;
                return err_sys(e, -errno, "cannot start the name forwarder");
        }
        if (d->pid == 0)
                child_main(udp, tcp, resolver, parent);
        d->pidfd = sys_pidfd_open(d->pid);
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
        d->pid = 0;
}
