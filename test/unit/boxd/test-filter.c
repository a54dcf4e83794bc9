/* What boxd takes away from programs: decisions found by interpreting the BPF, and by the kernel in a child. */
#include "boxd/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE(e) (SECCOMP_RET_ERRNO | (e))

static uint32_t decide(const struct sock_fprog *p, int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
        struct seccomp_data d = { .nr = nr, .arch = ARCH, .args = { a0, a1, a2 } };
        uint32_t a = 0;

        for (unsigned at = 0; at < p->len; at++) {
                const struct sock_filter *f = &p->filter[at];
                bool yes;

                if (BPF_CLASS(f->code) == BPF_RET)
                        return f->k;
                if (BPF_CLASS(f->code) == BPF_LD) {
                        memcpy(&a, (const char *) &d + f->k, sizeof(a));
                        continue;
                }
                assert_int_equal(BPF_CLASS(f->code), BPF_JMP);
                yes = BPF_OP(f->code) == BPF_JEQ   ? a == f->k
                      : BPF_OP(f->code) == BPF_JGT ? a > f->k
                      : BPF_OP(f->code) == BPF_JGE ? a >= f->k
                                                   : (a & f->k) != 0;
                at += yes ? f->jt : f->jf;
        }
        fail_msg("the filter has no end");
        return 0;
}

static void test_a_command_gets_no_namespace(void **state)
{
        const struct sock_fprog *p = filter_command_program();
        static const uint64_t spaces[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                           CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };

        (void) state;
        for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
                assert_int_equal(decide(p, SYS_clone, spaces[i] | 17, 0, 0), REFUSE(EPERM));
                assert_int_equal(decide(p, SYS_unshare, spaces[i] | CLONE_FS, 0, 0), REFUSE(EPERM));
        }
        assert_int_equal(decide(p, SYS_clone, CLONE_VM | CLONE_FILES | CLONE_THREAD | CLONE_SIGHAND | 17, 0, 0), ALLOW);
        for (int nr = 0; nr < 500; nr++)
                if (nr != SYS_clone && nr != SYS_unshare)
                        assert_int_equal(decide(p, nr, ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)), ALLOW);
}

static void test_sandboxed_has_no_netlink(void **state)
{
        const struct sock_fprog *p = filter_sandboxed_program();

        (void) state;
        for (uint64_t family = 0; family < 64; family++) {
                uint32_t want = family == AF_NETLINK ? REFUSE(EAFNOSUPPORT) : (uint32_t) ALLOW;

                assert_int_equal(decide(p, SYS_socket, family, SOCK_RAW, 0), want);
                assert_int_equal(decide(p, SYS_socketpair, family, SOCK_RAW, 0), want);
        }
        assert_int_equal(decide(p, SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | 17, 0, 0), ALLOW);
        assert_int_equal(decide(p, SYS_unshare, CLONE_NEWUSER, 0, 0), ALLOW);
        for (int nr = 0; nr < 500; nr++)
                if (nr != SYS_socket && nr != SYS_socketpair && nr != SYS_setsockopt && nr != SYS_ioctl)
                        assert_int_equal(decide(p, nr, AF_NETLINK, 0x8914, 64), ALLOW);
}

static void test_sandboxed_sets_no_network_up(void **state)
{
        static const unsigned reads[] = { SIOCATMARK,     SIOCGIFNAME, SIOCGIFCONF,  SIOCGIFFLAGS, SIOCGIFADDR,
                                          SIOCGIFNETMASK, SIOCGIFMTU,  SIOCGIFINDEX, 0x8906 /* SIOCGSTAMP */ };
        const struct sock_fprog *p = filter_sandboxed_program();

        (void) state;
        for (uint64_t opt = 0; opt < 2000; opt++) {
                bool ip = opt >= 64 || opt == IP_XFRM_POLICY || opt == IP_IPSEC_POLICY;
                bool ip6 = opt >= 200 || opt == 64 || opt == 65 || opt == IPV6_XFRM_POLICY || opt == IPV6_IPSEC_POLICY;

                assert_int_equal(decide(p, SYS_setsockopt, 3, IPPROTO_IP, opt), ip ? REFUSE(EPERM) : (uint32_t) ALLOW);
                assert_int_equal(decide(p, SYS_setsockopt, 3, IPPROTO_IPV6, opt),
                                 ip6 ? REFUSE(EPERM) : (uint32_t) ALLOW);
                assert_int_equal(decide(p, SYS_setsockopt, 3, SOL_SOCKET, opt), ALLOW);
                assert_int_equal(decide(p, SYS_setsockopt, 3, IPPROTO_TCP, opt), ALLOW);
        }
        for (uint64_t request = 0; request < 0x10000; request++) {
                bool refused = request >= 0x8900 && request <= 0x89ff;

                for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
                        refused = refused && request != reads[i];
                assert_int_equal(decide(p, SYS_ioctl, 3, request, 0), refused ? REFUSE(EPERM) : (uint32_t) ALLOW);
        }
        /* the kernel reads 32 bits of each */
        assert_int_equal(decide(p, SYS_ioctl, 3, 0xffffffff00008914ULL, 0), REFUSE(EPERM));
        assert_int_equal(decide(p, SYS_socket, 0xffffffff00000010ULL, 0, 0), REFUSE(EAFNOSUPPORT));
}

static int in_child(int (*fn)(void))
{
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(fn());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static int as_command(void)
{
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (filter_command() < 0)
                return 1;
        return unshare(CLONE_NEWUSER) < 0 && errno == EPERM ? 0 : 2;
}

static int as_sandboxed(void)
{
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (filter_sandboxed() < 0)
                return 1;
        if (socket(AF_NETLINK, SOCK_RAW, 0) >= 0 || errno != EAFNOSUPPORT)
                return 2;
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (ioctl(fd, SIOCSIFFLAGS, &(char[64]){ 0 }) == 0 || errno != EPERM)
                return 3;
        return setsockopt(fd, IPPROTO_IP, 64, "", 0) < 0 && errno == EPERM ? 0 : 4;
}

static int without_no_new_privs(void)
{
        return filter_command() == 0 && filter_sandboxed() == 0 && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 ? 0 : 1;
}

static void test_the_kernel_takes_them(void **state)
{
        (void) state;
        assert_int_equal(in_child(as_command), 0);
        assert_int_equal(in_child(as_sandboxed), 0);
        assert_int_equal(in_child(without_no_new_privs), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_command_gets_no_namespace),
                cmocka_unit_test(test_sandboxed_has_no_netlink),
                cmocka_unit_test(test_sandboxed_sets_no_network_up),
                cmocka_unit_test(test_the_kernel_takes_them),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
