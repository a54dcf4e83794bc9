/* Small helpers around kernel files, descriptors and helper programs. */
#include "boxhost/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void test_keys(void **state)
{
        static const char text[] = "low 0\noom 3\noom_kill 17\noom_group_kill 1\nbad x\n";
        uint64_t v = 0;

        assert_int_equal(sys_find_key(text, "oom_kill", &v), 0);
        assert_int_equal(v, 17);
        assert_int_equal(sys_find_key(text, "oom", &v), 0);
        assert_int_equal(v, 3);
        assert_int_equal(sys_find_key(text, "kill", &v), -ENOENT);
        assert_int_equal(sys_find_key(text, "bad", &v), -EINVAL);
        assert_int_equal(sys_find_key("", "x", &v), -ENOENT);
}

static void test_beneath(void **state)
{
        char dir[] = "/tmp/psbt-XXXXXX", path[64];
        int fd, r;

        assert_non_null(mkdtemp(dir));
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        assert_int_equal(symlinkat("/etc", fd, "out"), 0);
        assert_int_equal(symlinkat("d", fd, "in"), 0);
        r = sys_open_beneath(fd, "d", O_RDONLY, 0);
        assert_true(r >= 0);
        close(r);
        assert_true(sys_open_beneath(fd, "../", O_RDONLY, 0) < 0);
        assert_true(sys_open_beneath(fd, "/etc", O_RDONLY, 0) < 0);
        assert_true(sys_open_beneath(fd, "out/passwd", O_RDONLY, 0) < 0);
        assert_true(sys_open_beneath(fd, "in", O_RDONLY, 0) < 0);
        unlinkat(fd, "in", 0);
        unlinkat(fd, "out", 0);
        unlinkat(fd, "d", AT_REMOVEDIR);
        close(fd);
        snprintf(path, sizeof(path), "%s", dir);
        rmdir(path);
}

static void test_descriptors_travel(void **state)
{
        int pair[2], sent[3] = { 0, 1, 2 }, got[2] = { -1, -1 };
        char bytes[8];
        size_t n = 0;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(sys_send_fds(pair[0], "hello", 5, sent, 3), 0);
        assert_int_equal(sys_recv_fds(pair[1], bytes, sizeof(bytes), got, 2, &n), 5);
        assert_int_equal(n, 2); /* the one too many was closed */
        assert_true(got[0] > 2 && got[1] > 2);
        assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
        close(got[0]);
        close(got[1]);
        assert_int_equal(sys_send_fds(pair[0], "x", 1, sent, SYS_FDS_MAX + 1), -EINVAL);
        close(pair[0]);
        assert_int_equal(sys_recv_fds(pair[1], bytes, sizeof(bytes), got, 2, &n), 0);
        close(pair[1]);
}

static void test_start_times(void **state)
{
        uint64_t mine = 0, child = 0;
        pid_t pid;

        assert_int_equal(sys_start_time(getpid(), &mine), 0);
        assert_true(mine > 0);
        pid = fork();
        if (pid == 0)
                _exit(0);
        assert_true(pid > 0);
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT), 0);
        assert_int_equal(sys_start_time(pid, &child), -ESRCH); /* a zombie does not count */
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(sys_start_time(pid, &child), -ESRCH);
}

static void test_helpers(void **state)
{
        static const char *const good[] = { "grep", "-q", "needle", NULL };
        static const char *const bad[] = { "ls", "/does/not/exist", NULL };
        static const char *const slow[] = { "sleep", "60", NULL };
        static const char *const none[] = { "no-such-program-here", NULL };
        struct err e = { 0 };

        assert_int_equal(sys_run(good, "a needle in hay\n", 10000, &e), 0);
        assert_int_equal(sys_run(good, "hay\n", 10000, &e), -EIO);
        assert_int_equal(sys_run(bad, NULL, 10000, &e), -EIO);
        assert_non_null(strstr(err_text(&e), "/does/not/exist"));
        assert_int_equal(sys_run(slow, NULL, 50, &e), -ETIMEDOUT);
        assert_int_equal(sys_run(none, NULL, 50, &e), -ENOENT);
        assert_null(sys_program("no-such-program-here"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_keys),
                cmocka_unit_test(test_beneath),
                cmocka_unit_test(test_descriptors_travel),
                cmocka_unit_test(test_start_times),
                cmocka_unit_test(test_helpers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
