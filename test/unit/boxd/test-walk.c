#include "boxd/walk.h"

#include "base/file.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void put(int dir, const char *path, const char *text)
{
        _cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static int scratch(char *name)
{
        assert_non_null(mkdtemp(name));
        int dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(dir >= 0);
        return dir;
}

static bool has(const struct walk *w, const char *path)
{
        return walk_find(w, path, strlen(path)) != NULL;
}

static void finds_files_and_links(void **state)
{
        char name[] = "/tmp/walk-XXXXXX";
        _cleanup_close_ int dir = scratch(name);
        struct walk w;
        struct stat st, seen;

        (void) state;
        assert_int_equal(mkdirat(dir, "a", 0755), 0);
        assert_int_equal(mkdirat(dir, "a/b", 0755), 0);
        assert_int_equal(mkdirat(dir, ".git", 0755), 0);
        assert_int_equal(mkdirat(dir, "a/node_modules", 0755), 0);
        put(dir, "top", "1");
        put(dir, "a/b/deep", "four");
        put(dir, ".git/config", "x");
        put(dir, "a/node_modules/m", "x");
        assert_int_equal(symlinkat("nowhere", dir, "a/link"), 0);
        assert_int_equal(symlinkat("a", dir, "folder-link"), 0);

        walk_run(&w, dir);
        assert_int_equal(w.n, 4);
        assert_false(w.partial);
        assert_true(has(&w, "top") && has(&w, "a/b/deep") && has(&w, "a/link") && has(&w, "folder-link"));
        assert_false(has(&w, "a") || has(&w, "a/b") || has(&w, ".git/config") || has(&w, "a/node_modules/m"));
        assert_false(has(&w, "folder-link/b/deep")); /* links are not followed */
        assert_false(has(&w, "") || has(&w, "tope") || has(&w, "to"));
        assert_int_equal(fstatat(dir, "a/b/deep", &st, AT_SYMLINK_NOFOLLOW), 0);
        walk_stat(walk_find(&w, "a/b/deep", 8), &seen);
        assert_int_equal(seen.st_ino, st.st_ino);
        assert_int_equal(seen.st_dev, st.st_dev);
        assert_int_equal(seen.st_size, 4);
        assert_int_equal(seen.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
        assert_int_equal(seen.st_ctim.tv_nsec, st.st_ctim.tv_nsec);
        walk_done(&w);
        assert_int_equal(remove_tree(AT_FDCWD, name), 0);
}

/* The table grows several times; names that are no UTF-8 are names. */
static void many_names(void **state)
{
        char name[] = "/tmp/walk-XXXXXX", path[64];
        _cleanup_close_ int dir = scratch(name);
        struct walk w;

        (void) state;
        for (int i = 0; i < 9000; i++) {
                (void) snprintf(path, sizeof path, "f%d\xff", i);
                _cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

                assert_true(fd >= 0);
        }
        walk_run(&w, dir);
        assert_int_equal(w.n, 9000);
        for (int i = 0; i < 9000; i++) {
                (void) snprintf(path, sizeof path, "f%d\xff", i);
                assert_true(has(&w, path));
        }
        assert_false(has(&w, "f9000\xff"));
        walk_done(&w);
        assert_int_equal(remove_tree(AT_FDCWD, name), 0);
}

static void an_empty_folder(void **state)
{
        char name[] = "/tmp/walk-XXXXXX";
        _cleanup_close_ int dir = scratch(name);
        struct walk w;

        (void) state;
        walk_run(&w, dir);
        assert_int_equal(w.n, 0);
        assert_false(has(&w, "x"));
        walk_done(&w);
        assert_int_equal(rmdir(name), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(finds_files_and_links), cmocka_unit_test(many_names),
                                            cmocka_unit_test(an_empty_folder) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
