#include "boxhost/seccomp.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000U
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture yet"
#endif

/* Numbers the build machine's headers may not have; they are the same on every architecture. */
enum {
        NR_MOUNT_SETATTR = 442,
        NR_NUMA_HOME = 450,  /* set_mempolicy_home_node */
        NR_LAST_KNOWN = 466, /* removexattrat; everything above is new to us and answered ENOSYS */
};

/* A box must not reach these: they change mounts, namespaces, the kernel or the machine, or have a history of holes. */
static const unsigned refused_eperm[] = {
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_fsopen,
        SYS_fsmount,
        SYS_fsconfig,
        SYS_fspick,
        SYS_move_mount,
        SYS_open_tree,
        NR_MOUNT_SETATTR,
        SYS_setns,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_userfaultfd,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_kexec_load,
        SYS_kexec_file_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_reboot,
        SYS_swapon,
        SYS_swapoff,
        SYS_acct,
        SYS_quotactl,
        SYS_quotactl_fd,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_adjtimex,
        SYS_clock_adjtime,
        SYS_syslog,
        SYS_open_by_handle_at,
        SYS_vhangup,
        SYS_move_pages,
        SYS_mbind,
        SYS_set_mempolicy,
        SYS_migrate_pages,
        NR_NUMA_HOME,
        SYS_fanotify_init,
        SYS_nfsservctl,
        SYS_lookup_dcookie,
#if defined(__x86_64__)
        SYS_iopl,
        SYS_ioperm,
        SYS_uselib,
        SYS_sysfs,
        SYS_ustat,
#endif
};

/* Flags of clone3 lie in memory where a filter cannot look; ENOSYS makes libc fall back to clone. */
static const unsigned refused_enosys[] = { SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register };

#define ANY_NEW_NAMESPACE                                                                                         \
        ((unsigned) (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
                     CLONE_NEWNET))
/*
 * What a browser's own sandbox makes of namespaces, and no more: this is for boxd alone, which takes it away again from
 * every command (boxd/filter.h) and gives it only to programs that have no netlink. Mounts stay refused in there.
 */
static const unsigned sandbox_clones[] = { 0, CLONE_NEWUSER, CLONE_NEWPID,
                                           CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET };
static const unsigned sandbox_unshares[] = { CLONE_NEWUSER };
/* AF_VSOCK above all: it knows no namespaces and leads to the hypervisor. */
static const unsigned families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
static const unsigned ioctls[] = { TIOCSTI, TIOCLINUX };

#define PROGRAM_MAX 256
struct writer {
        struct sock_filter *code;
        unsigned n;
};

#define FIELD(name) ((unsigned) offsetof(struct seccomp_data, name))
#define LOW(arg) \
        ((unsigned) offsetof(struct seccomp_data, args) + (arg) *8U) /* little endian: the low word comes first */

static void put(struct writer *w, struct sock_filter f)
{
        if (w->n < PROGRAM_MAX)
                w->code[w->n++] = f;
}

static void load(struct writer *w, unsigned offset)
{
        put(w, (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void ret(struct writer *w, unsigned value)
{
        put(w, (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, value));
}

static unsigned refuse(int error)
{
        return SECCOMP_RET_ERRNO | (unsigned) error;
}

/* When the accumulator compares true the next instruction runs, otherwise it is jumped over. */
static void when(struct writer *w, unsigned op, unsigned value)
{
        put(w, (struct sock_filter) BPF_JUMP(BPF_JMP | op | BPF_K, value, 0, 1));
}

static void write_arch(struct writer *w)
{
        load(w, FIELD(arch));
        put(w, (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
        ret(w, refuse(ENOSYS));
        load(w, FIELD(nr));
#ifdef X32_BIT
        when(w, BPF_JGE, X32_BIT);
        ret(w, refuse(ENOSYS));
#endif
}

static void write_clone(struct writer *w)
{
        const unsigned count = sizeof(sandbox_clones) / sizeof(sandbox_clones[0]);

        put(w, (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, (unsigned char) (2 * count + 3)));
        load(w, LOW(0));
        put(w, (struct sock_filter) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ANY_NEW_NAMESPACE));
        for (unsigned i = 0; i < count; i++) {
                when(w, BPF_JEQ, sandbox_clones[i]);
                ret(w, SECCOMP_RET_ALLOW);
        }
        ret(w, refuse(EPERM));
}

/* One system call whose argument must be (or must not be) one of a list. The number is in the accumulator before and,
 * on the way out, after. */
static void write_listed(struct writer *w, unsigned nr, unsigned arg, const unsigned *list, unsigned count,
                         unsigned listed, unsigned others)
{
        put(w, (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, (unsigned char) (2 * count + 2)));
        load(w, LOW(arg));
        for (unsigned i = 0; i < count; i++) {
                when(w, BPF_JEQ, list[i]);
                ret(w, listed);
        }
        ret(w, others);
}

static void write_refusals(struct writer *w)
{
        for (unsigned i = 0; i < sizeof(refused_enosys) / sizeof(refused_enosys[0]); i++) {
                when(w, BPF_JEQ, refused_enosys[i]);
                ret(w, refuse(ENOSYS));
        }
        for (unsigned i = 0; i < sizeof(refused_eperm) / sizeof(refused_eperm[0]); i++) {
                when(w, BPF_JEQ, refused_eperm[i]);
                ret(w, refuse(EPERM));
        }
        when(w, BPF_JGT, NR_LAST_KNOWN);
        ret(w, refuse(ENOSYS));
        ret(w, SECCOMP_RET_ALLOW);
}

const struct sock_fprog *box_filter(void)
{
        static struct sock_filter code[PROGRAM_MAX];
        static struct sock_fprog program;
        struct writer w = { .code = code };

        if (program.len > 0)
                return &program;
        write_arch(&w);
        write_clone(&w);
        write_listed(&w, SYS_unshare, 0, sandbox_unshares, 1, SECCOMP_RET_ALLOW, refuse(EPERM));
        write_listed(&w, SYS_socket, 0, families, 4, SECCOMP_RET_ALLOW, refuse(EAFNOSUPPORT));
        write_listed(&w, SYS_socketpair, 0, families, 4, SECCOMP_RET_ALLOW, refuse(EAFNOSUPPORT));
        write_listed(&w, SYS_ioctl, 1, ioctls, 2, refuse(EPERM), SECCOMP_RET_ALLOW);
        write_refusals(&w);
        program = (struct sock_fprog){ .len = (unsigned short) w.n, .filter = code };
        return &program;
}

int box_filter_load(const struct sock_fprog *program)
{
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0)
                return -errno;
        return 0;
}
