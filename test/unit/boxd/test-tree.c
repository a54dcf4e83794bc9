#include "boxd/tree.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void stat_lines(void **state)
{
        static const char good[] =
                "42 (a) b) (c) S 7 42 41 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 99999 1000000 25 184467440737095";
        struct proc p;

        assert_true(proc_parse(good, sizeof(good) - 1, &p));
        assert_int_equal(p.ppid, 7);
        assert_int_equal(p.pgrp, 42);
        assert_int_equal(p.state, 'S');
        assert_true(p.start == 99999 && p.rss == 25 * (uint64_t) sysconf(_SC_PAGESIZE));
        for (size_t n = 0; n < 60; n++)
                assert_false(proc_parse(good, n, &p));
        assert_false(proc_parse("", 0, &p));
        assert_false(proc_parse("no parenthesis at all", 21, &p));
        assert_false(proc_parse("1 (x) S abc 1 1", 15, &p));
}

/* A child that forks twice, leaves its session, ignores every signal it can and forks once more. */
static void daemon_tree(int depth)
{
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        if (fork() == 0) {
                setsid();
                if (fork() == 0) {
                        setsid();
                        if (depth)
                                daemon_tree(depth - 1);
                        for (;;)
                                pause();
                }
                _exit(0);
        }
        if (depth != 3)
                return;
        for (;;)
                pause();
}

static void reap(void *arg)
{
        (void) arg;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
}

static bool is_other(pid_t pid, void *arg)
{
        return pid == *(pid_t *) arg;
}

static void everything_goes_and_nothing_else(void **state)
{
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        pid_t other = fork();
        if (other == 0)
                for (;;)
                        pause();
        pid_t leader = fork();
        if (leader == 0)
                daemon_tree(3);
        struct tree t = { .root = getpid(), .outside = is_other, .reap = reap, .arg = &other };
        for (int i = 0; i < 500 && tree_count(&t) < 5; i++)
                usleep(2000);
        usleep(50000);
        assert_true(tree_count(&t) >= 5);
        tree_signal(&t, SIGTERM);
        assert_true(tree_count(&t) >= 5);
        int64_t start = clock_ms();
        assert_int_equal(tree_kill(&t, 5000), 0);
        assert_true(clock_ms() - start < 2000);
        reap(NULL);
        assert_int_equal(tree_count(&t), 0);
        assert_int_equal(kill(other, 0), 0);
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
        assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
        assert_int_equal(tree_kill(&t, 100), 0);
}

static void ancestry(void **state)
{
        struct proc v[] = { { .pid = 2, .ppid = 1 },
                            { .pid = 5, .ppid = 2 },
                            { .pid = 9, .ppid = 5 },
                            { .pid = 10, .ppid = 11 },
                            { .pid = 11, .ppid = 10 } };
        struct proc_table t = { v, 5, 5 };

        assert_true(proc_below(&t, 9, 2));
        assert_true(proc_below(&t, 9, 1));
        assert_false(proc_below(&t, 2, 2));
        assert_false(proc_below(&t, 2, 5));
        assert_false(proc_below(&t, 77, 1));
        assert_false(proc_below(&t, 10, 1)); /* a circle, as a torn look may show */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(stat_lines),
                cmocka_unit_test(ancestry),
                cmocka_unit_test(everything_goes_and_nothing_else),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
