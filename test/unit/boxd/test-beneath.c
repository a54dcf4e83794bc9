#include "boxd/beneath.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static int make_tree(char *dir)
{
        assert_non_null(mkdtemp(dir));
        int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(mkdirat(fd, "in", 0755), 0);
        assert_int_equal(mkdirat(fd, "in/sub", 0755), 0);
        assert_int_equal(mkdirat(fd, "out", 0755), 0);
        assert_int_equal(symlinkat("../out", fd, "in/up"), 0);
        assert_int_equal(symlinkat("/etc", fd, "in/abs"), 0);
        assert_int_equal(symlinkat("sub", fd, "in/here"), 0);
        assert_int_equal(symlinkat("loop", fd, "in/loop"), 0);
        return fd;
}

static int try_open(int dir, const char *path, unsigned long long resolve)
{
        int fd = beneath_open(dir, path, O_PATH, 0, resolve);

        if (fd >= 0)
                close(fd);
        return fd < 0 ? fd : 0;
}

static void nothing_leads_out(void **state)
{
        char dir[] = "/tmp/beneath-XXXXXX";
        _cleanup_close_ int top = make_tree(dir);
        _cleanup_close_ int in = beneath_open(top, "in", O_PATH | O_DIRECTORY, 0, BENEATH_FOLLOW);

        assert_int_equal(try_open(in, "", BENEATH_FOLLOW), 0);
        assert_int_equal(try_open(in, "sub", BENEATH_FOLLOW), 0);
        assert_int_equal(try_open(in, "here", BENEATH_FOLLOW), 0);
        assert_int_equal(try_open(in, "here", BENEATH_STRICT), -ELOOP);
        assert_int_equal(try_open(in, "up", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "abs", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "abs/passwd", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "abs/passwd", BENEATH_STRICT), -ELOOP);
        assert_int_equal(try_open(in, "..", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "sub/../../out", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "/etc", BENEATH_FOLLOW), -EXDEV);
        assert_int_equal(try_open(in, "loop", BENEATH_FOLLOW), -ELOOP);
        assert_int_equal(try_open(in, "none", BENEATH_FOLLOW), -ENOENT);
        remove_tree(AT_FDCWD, dir);
}

static void a_cache_of_one_folder(void **state)
{
        char dir[] = "/tmp/beneath-XXXXXX";
        _cleanup_close_ int top = make_tree(dir);
        struct dircache d;

        dircache_init(&d, top);
        assert_int_equal(dircache_get(&d, "x", 0), top);
        int fd = dircache_get(&d, "in/sub/file", 6);
        assert_true(fd >= 0);
        assert_int_equal(dircache_get(&d, "in/sub/other", 6), fd);
        assert_true(dircache_get(&d, "in/here/f", 7) < 0);
        assert_true(dircache_get(&d, "in/none/f", 7) == -ENOENT);
        assert_true(dircache_get(&d, "in/f", 2) >= 0);
        dircache_drop(&d);
        remove_tree(AT_FDCWD, dir);
}

static void splitting(void **state)
{
        size_t n;

        assert_string_equal(path_split("a/b/c", 5, &n), "c");
        assert_int_equal(n, 3);
        assert_string_equal(path_split("a", 1, &n), "a");
        assert_int_equal(n, 0);
        assert_memory_equal(path_split("a/b/c", 3, &n), "b", 1);
        assert_int_equal(n, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_leads_out),
                cmocka_unit_test(a_cache_of_one_folder),
                cmocka_unit_test(splitting),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
