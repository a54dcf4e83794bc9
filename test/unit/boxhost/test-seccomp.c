/* The filter's decisions, found by interpreting its BPF; and that the kernel takes it, in a child. */
#include "boxhost/seccomp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE(e) (SECCOMP_RET_ERRNO | (e))

static uint32_t jump(const struct sock_filter *f, uint32_t a)
{
        switch (BPF_OP(f->code)) {
        case BPF_JEQ:
                return a == f->k ? f->jt : f->jf;
        case BPF_JGT:
                return a > f->k ? f->jt : f->jf;
        case BPF_JGE:
                return a >= f->k ? f->jt : f->jf;
        case BPF_JSET:
                return (a & f->k) ? f->jt : f->jf;
        default:
                fail_msg("an unknown jump");
                return 0;
        }
}

static uint32_t decide(const struct seccomp_data *d)
{
        const struct sock_fprog *p = box_filter();
        uint32_t a = 0;

        for (unsigned at = 0; at < p->len; at++) {
                const struct sock_filter *f = &p->filter[at];
                if (BPF_CLASS(f->code) == BPF_RET)
                        return f->k;
                if (BPF_CLASS(f->code) == BPF_JMP)
                        at += jump(f, a);
                else if (f->code == (BPF_ALU | BPF_AND | BPF_K))
                        a &= f->k;
                else
                        memcpy(&a, (const char *) d + f->k, sizeof(a));
        }
        fail_msg("the filter has no end");
        return 0;
}

static uint32_t call(int nr, uint64_t a0, uint64_t a1)
{
        struct seccomp_data d = { .nr = nr, .arch = ARCH, .args = { a0, a1 } };

        return decide(&d);
}

static void test_nothing_ever_kills(void **state)
{
        for (int nr = -1; nr < 1000; nr++) {
                uint32_t action = call(nr, 0, 0) & SECCOMP_RET_ACTION_FULL;
                assert_true(action == ALLOW || action == SECCOMP_RET_ERRNO);
        }
}

static void test_everyday_calls_pass(void **state)
{
        static const int calls[] = { SYS_read,      SYS_write, SYS_openat, SYS_execve,  SYS_mmap,   SYS_futex,
                                     SYS_clone,     SYS_wait4, SYS_kill,   SYS_ptrace,  SYS_chroot, SYS_setuid,
                                     SYS_epoll_ctl, SYS_prctl, SYS_getpid, SYS_openat2, SYS_seccomp };

        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
                assert_int_equal(call(calls[i], 0, 0), ALLOW);
}

static void test_refused(void **state)
{
        static const int eperm[] = {
                SYS_mount,        SYS_umount2, SYS_pivot_root, SYS_setns,           SYS_unshare,
                SYS_bpf,          SYS_fsopen,  SYS_move_mount, SYS_open_tree,       442,
                SYS_keyctl,       SYS_add_key, SYS_reboot,     SYS_perf_event_open, SYS_userfaultfd,
                SYS_kexec_load,   SYS_syslog,  SYS_swapon,     SYS_init_module,     SYS_open_by_handle_at,
                SYS_settimeofday, SYS_quotactl
        };
        static const int enosys[] = { SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, 467,
                                      500 };

        for (size_t i = 0; i < sizeof(eperm) / sizeof(eperm[0]); i++)
                assert_int_equal(call(eperm[i], 0, 0), REFUSE(EPERM));
        for (size_t i = 0; i < sizeof(enosys) / sizeof(enosys[0]); i++)
                assert_int_equal(call(enosys[i], 0, 0), REFUSE(ENOSYS));
}

static void test_arguments(void **state)
{
        static const uint64_t spaces[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                           CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };

        /* Of all combinations those alone that a browser's sandbox makes; commands lose these as well (boxd/filter.c).
         */
        for (unsigned set = 0; set < 1u << (sizeof(spaces) / sizeof(spaces[0])); set++) {
                uint64_t flags = 0;

                for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
                        flags |= set >> i & 1 ? spaces[i] : 0;
                bool sandbox = flags == CLONE_NEWUSER || flags == CLONE_NEWPID ||
                               flags == (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET);
                assert_int_equal(call(SYS_clone, flags | 17, 0),
                                 flags == 0 || sandbox ? (uint32_t) ALLOW : REFUSE(EPERM));
                assert_int_equal(call(SYS_unshare, flags, 0),
                                 flags == CLONE_NEWUSER ? (uint32_t) ALLOW : REFUSE(EPERM));
        }
        assert_int_equal(call(SYS_unshare, CLONE_NEWUSER | CLONE_FS, 0), REFUSE(EPERM));
        assert_int_equal(call(SYS_clone, 17 | CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_THREAD | CLONE_SIGHAND, 0),
                         ALLOW);
        for (int family = 0; family < 64; family++) {
                uint32_t want = family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK
                                        ? (uint32_t) ALLOW
                                        : REFUSE(EAFNOSUPPORT);
                assert_int_equal(call(SYS_socket, (uint64_t) family, 0), want);
                assert_int_equal(call(SYS_socketpair, (uint64_t) family, 0), want);
        }
        assert_int_equal(call(SYS_ioctl, 0, TIOCSTI), REFUSE(EPERM));
        assert_int_equal(call(SYS_ioctl, 0, TIOCLINUX), REFUSE(EPERM));
        assert_int_equal(call(SYS_ioctl, 0, TIOCSTI | 0xffffffff00000000ULL),
                         REFUSE(EPERM)); /* the kernel reads 32 bits too */
        assert_int_equal(call(SYS_ioctl, 0, TIOCGWINSZ), ALLOW);
}

static void test_other_ways_in(void **state)
{
        struct seccomp_data d = { .nr = SYS_read, .arch = AUDIT_ARCH_I386 };

        assert_int_equal(decide(&d), REFUSE(ENOSYS));
#if defined(__x86_64__)
        assert_int_equal(call(0x40000000 | SYS_read, 0, 0), REFUSE(ENOSYS));
        assert_int_equal(call(0x40000000 | 520, 0, 0), REFUSE(ENOSYS));
#endif
}

static void test_the_kernel_takes_it(void **state)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                if (box_filter_load(box_filter()) < 0)
                        _exit(10);
                if (unshare(CLONE_NEWUTS) == 0 || errno != EPERM)
                        _exit(11);
                if (socket(40, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
                        _exit(12);
                _exit(getppid() > 0 ? 0 : 13);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_nothing_ever_kills),
                cmocka_unit_test(test_everyday_calls_pass),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_arguments),
                cmocka_unit_test(test_other_ways_in),
                cmocka_unit_test(test_the_kernel_takes_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
