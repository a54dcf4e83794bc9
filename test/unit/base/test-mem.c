#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static bool is_open(int fd)
{
        return fcntl(fd, F_GETFD) >= 0;
}

static void cleanup_closes_and_keeps_errno(void **state)
{
        int seen;

        {
                _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
                _cleanup_close_ int none = -1;
                _cleanup_close_ int stale = 1000000; /* close fails with EBADF */

                assert_true(fd >= 0 && none < 0 && stale > 0);
                seen = fd;
                errno = ENOTTY;
        }
        assert_int_equal(errno, ENOTTY);
        assert_false(is_open(seen));
}

static void steal_takes_out_of_the_scope(void **state)
{
        char *kept;
        int kept_fd;

        {
                _cleanup_free_ char *s = xstrdup("kept");
                _cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                kept = steal_ptr(s);
                kept_fd = steal_fd(&fd);
                assert_null(s);
                assert_int_equal(fd, -1);
        }
        assert_string_equal(kept, "kept");
        assert_true(is_open(kept_fd));
        free(kept);
        (void) close(kept_fd);
}

static void copies(void **state)
{
        _cleanup_free_ char *a = xstrndup("abcdef", 3);
        _cleanup_free_ char *b = xmemdup("a\0b", 3);
        _cleanup_free_ char *c = xasprintf("%d-%s", 42, "x");
        _cleanup_free_ char *empty = xmemdup(NULL, 0);
        _cleanup_free_ char *none = xstrdup(NULL);

        assert_string_equal(a, "abc");
        assert_memory_equal(b, "a\0b", 3);
        assert_string_equal(c, "42-x");
        assert_non_null(empty);
        assert_null(none);
}

static void zero_sizes_give_memory(void **state)
{
        _cleanup_free_ void *a = xmalloc(0);
        _cleanup_free_ void *b = xcalloc(0, 8);
        _cleanup_free_ void *c = try_malloc(0);
        void *d = xrealloc(NULL, 0);

        d = xrealloc(d, 0);
        assert_non_null(a);
        assert_non_null(b);
        assert_non_null(c);
        assert_non_null(d);
        free(d);
}

static void calloc_zeroes(void **state)
{
        static const char zero[64];
        _cleanup_free_ char *p = xcalloc(8, 8);

        assert_memory_equal(p, zero, sizeof zero);
}

static void only_the_nth_try_fails(void **state)
{
        for (unsigned n = 1; n <= 5; n++) {
                mem_fail_after(n);
                for (unsigned i = 1; i <= 6; i++) {
                        _cleanup_free_ void *p = i % 2 ? try_malloc(8) : try_realloc(NULL, 8);

                        assert_int_equal(p == NULL, i == n);
                }
        }
        mem_fail_after(1);
        mem_fail_after(0);
        _cleanup_free_ void *p = try_malloc(8);
        assert_non_null(p);
}

static void failed_realloc_keeps_the_old_block(void **state)
{
        _cleanup_free_ char *p = xstrdup("old");

        mem_fail_after(1);
        assert_null(try_realloc(p, 1000));
        assert_string_equal(p, "old");
}

static void running_out_ends_the_process(void **state)
{
        volatile size_t huge = SIZE_MAX / 4;
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                const struct rlimit none = { 0, 0 };
                int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

                (void) setrlimit(RLIMIT_CORE, &none);
                (void) dup2(null, STDERR_FILENO);
                (void) xmalloc(huge);
                _exit(0);
        }
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void containers(void **state)
{
        struct outer {
                int a;
                char inner[3];
        } o;

        assert_ptr_equal(container_of(&o.inner, struct outer, inner), &o);
        assert_int_equal(ARRAY_LEN(o.inner), 3);
        assert_int_equal(min_size(3, SIZE_MAX), 3);
        assert_int_equal(max_size(3, 2), 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(cleanup_closes_and_keeps_errno),
                cmocka_unit_test(steal_takes_out_of_the_scope),
                cmocka_unit_test(copies),
                cmocka_unit_test(zero_sizes_give_memory),
                cmocka_unit_test(calloc_zeroes),
                cmocka_unit_test(only_the_nth_try_fails),
                cmocka_unit_test(failed_realloc_keeps_the_old_block),
                cmocka_unit_test(running_out_ends_the_process),
                cmocka_unit_test(containers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
