#include "boxd/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture yet"
#endif

#define FIELD(name) ((unsigned) offsetof(struct seccomp_data, name))
#define LOW(arg) ((unsigned) offsetof(struct seccomp_data, args) + (arg) *8U) /* little endian */

#define NEW_NAMESPACES                                                                                            \
        ((unsigned) (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
                     CLONE_NEWNET))
/* Socket options that reach what only a network's owner sets: netfilter's tables, multicast routing, IPVS … */
#define IP_TABLES_FROM 64 /* and everything above */
#define IPV6_TABLES_SET 64
#define IPV6_TABLES_COUNTERS 65
#define IPV6_MULTICAST_FROM 200 /* and everything above */
#define SIOC_FIRST 0x8900
#define SIOC_LAST 0x89ff

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, (value), (yes), (no))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (unsigned) (error))

/* Another architecture's calls are answered by the filter below this one. Flags are as wide as 32 bits. */
static struct sock_filter command[] = {
        LOAD(FIELD(arch)),
        IF(BPF_JEQ, NATIVE_ARCH, 1, 0),
        ALLOW,
        LOAD(FIELD(nr)),
        IF(BPF_JEQ, SYS_clone, 1, 0),
        IF(BPF_JEQ, SYS_unshare, 0, 3),
        LOAD(LOW(0)),
        IF(BPF_JSET, NEW_NAMESPACES, 0, 1),
        REFUSE(EPERM),
        ALLOW,
};

static struct sock_filter sandboxed[] = {
        LOAD(FIELD(arch)),
        IF(BPF_JEQ, NATIVE_ARCH, 1, 0),
        ALLOW,
        LOAD(FIELD(nr)),

        /* no netlink: neither links nor queues nor firewalls nor IPsec */
        IF(BPF_JEQ, SYS_socket, 1, 0),
        IF(BPF_JEQ, SYS_socketpair, 0, 4),
        LOAD(LOW(0)),
        IF(BPF_JEQ, AF_NETLINK, 0, 1),
        REFUSE(EAFNOSUPPORT),
        ALLOW,

        IF(BPF_JEQ, SYS_setsockopt, 0, 16),
        LOAD(LOW(1)),
        IF(BPF_JEQ, IPPROTO_IP, 0, 5),
        LOAD(LOW(2)),
        IF(BPF_JGE, IP_TABLES_FROM, 10, 0),
        IF(BPF_JEQ, IP_XFRM_POLICY, 9, 0),
        IF(BPF_JEQ, IP_IPSEC_POLICY, 8, 0),
        ALLOW,
        IF(BPF_JEQ, IPPROTO_IPV6, 0, 7),
        LOAD(LOW(2)),
        IF(BPF_JGE, IPV6_MULTICAST_FROM, 4, 0),
        IF(BPF_JEQ, IPV6_XFRM_POLICY, 3, 0),
        IF(BPF_JEQ, IPV6_IPSEC_POLICY, 2, 0),
        IF(BPF_JEQ, IPV6_TABLES_SET, 1, 0),
        IF(BPF_JEQ, IPV6_TABLES_COUNTERS, 0, 1),
        REFUSE(EPERM),
        ALLOW,

        /* SIOC…: of those for a network's owner none; what ordinary programs read stays */
        IF(BPF_JEQ, SYS_ioctl, 0, 13),
        LOAD(LOW(1)),
        IF(BPF_JGE, SIOC_FIRST, 0, 11),
        IF(BPF_JGT, SIOC_LAST, 10, 0),
        IF(BPF_JEQ, 0x8905, 9, 0), /* SIOCATMARK */
        IF(BPF_JEQ, 0x8906, 8, 0), /* SIOCGSTAMP */
        IF(BPF_JEQ, 0x8910, 7, 0), /* SIOCGIFNAME */
        IF(BPF_JEQ, 0x8912, 6, 0), /* SIOCGIFCONF */
        IF(BPF_JEQ, 0x8913, 5, 0), /* SIOCGIFFLAGS */
        IF(BPF_JEQ, 0x8915, 4, 0), /* SIOCGIFADDR */
        IF(BPF_JEQ, 0x891b, 3, 0), /* SIOCGIFNETMASK */
        IF(BPF_JEQ, 0x8921, 2, 0), /* SIOCGIFMTU */
        IF(BPF_JEQ, 0x8933, 1, 0), /* SIOCGIFINDEX */
        REFUSE(EPERM),
        ALLOW,
};

static const struct sock_fprog command_program = { sizeof(command) / sizeof(command[0]), command };
static const struct sock_fprog sandboxed_program = { sizeof(sandboxed) / sizeof(sandboxed[0]), sandboxed };

const struct sock_fprog *filter_command_program(void)
{
        return &command_program;
}

const struct sock_fprog *filter_sandboxed_program(void)
{
        return &sandboxed_program;
}

static int add(const struct sock_fprog *program)
{
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
                return 0;
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0 ? -errno : 0;
}

int filter_command(void)
{
        return add(&command_program);
}

int filter_sandboxed(void)
{
        return add(&sandboxed_program);
}
