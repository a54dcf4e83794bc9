#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Each test gets an empty folder and a descriptor of it. */
static char top[64];
static int dir;

static int setup(void **state)
{
        (void) snprintf(top, sizeof top, "/tmp/test-file-XXXXXX");
        if (!mkdtemp(top))
                return -1;
        dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
        (void) close(dir);
        return remove_tree(AT_FDCWD, top);
}

static void put(const char *name, const char *text)
{
        assert_int_equal(file_write_atomic(dir, name, text, strlen(text), 0644, NULL), 0);
}

static bool there(const char *name)
{
        struct stat st;

        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static size_t entries(void)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fdopendir(fd);
        size_t n = 0;

        while (readdir(d))
                n++;
        (void) closedir(d);
        return n - 2;
}

static void read_appends(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);
        _cleanup_free_ char *path = xasprintf("%s/f", top);

        put("f", "hello");
        assert_int_equal(buf_adds(&b, "> "), 0);
        assert_int_equal(file_read(dir, "f", &b), 0);
        assert_int_equal(file_read(AT_FDCWD, path, &b), 0);
        assert_string_equal(buf_cstr(&b), "> hellohello");
}

static void read_is_bounded(void **state)
{
        _cleanup_buf_ struct buf exact = BUF_MAX(5), small = BUF_MAX(6), none = BUF_MAX(0);

        put("f", "hello");
        put("empty", "");
        assert_int_equal(file_read(dir, "f", &exact), 0);
        assert_string_equal(buf_cstr(&exact), "hello");
        assert_int_equal(file_read(dir, "empty", &exact), 0);
        assert_int_equal(buf_adds(&small, "12"), 0);
        assert_int_equal(file_read(dir, "f", &small), -ENOBUFS);
        assert_string_equal(buf_cstr(&small), "12");
        assert_int_equal(file_read(dir, "empty", &none), 0);
        assert_int_equal(file_read(dir, "f", &none), -ENOBUFS);
}

static void read_of_big_files(void **state)
{
        size_t n = 300001;
        _cleanup_free_ char *big = xmalloc(n);
        _cleanup_buf_ struct buf b = BUF_MAX(n);

        for (size_t i = 0; i < n; i++)
                big[i] = (char) (i * 31 >> 3);
        assert_int_equal(file_write_atomic(dir, "big", big, n, 0600, NULL), 0);
        mem_fail_after(2);
        assert_int_equal(file_read(dir, "big", &b), -ENOMEM);
        assert_int_equal(b.len, 0);
        mem_fail_after(0);
        assert_int_equal(file_read(dir, "big", &b), 0);
        assert_int_equal(b.len, n);
        assert_memory_equal(b.p, big, n);
}

static void read_errors(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(5);

        assert_int_equal(file_read(dir, "missing", &b), -ENOENT);
        assert_int_equal(file_read(dir, ".", &b), -EISDIR);
}

static void write_replaces_with_the_mode(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);
        struct stat st;

        mode_t old = umask(077);
        put("f", "old and longer");
        assert_int_equal(file_write_atomic(dir, "f", "new", 3, 0640, NULL), 0);
        (void) umask(old);
        assert_int_equal(file_read(dir, "f", &b), 0);
        assert_string_equal(buf_cstr(&b), "new");
        assert_int_equal(fstatat(dir, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0640);
        assert_int_equal(entries(), 1);
}

static void write_replaces_a_link_not_its_target(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        put("target", "keep");
        assert_int_equal(symlinkat("target", dir, "link"), 0);
        put("link", "new");
        assert_int_equal(file_read(dir, "target", &b), 0);
        assert_string_equal(buf_cstr(&b), "keep");
}

static void write_failures_leave_nothing(void **state)
{
        struct err e = { 0 };

        assert_int_equal(file_write_atomic(dir, "no/f", "x", 1, 0644, &e), -ENOENT);
        assert_non_null(strstr(e.msg, "no/f"));
        assert_int_equal(mkdirat(dir, "folder", 0755), 0);
        put("folder/inside", "x");
        assert_int_equal(file_write_atomic(dir, "folder", "x", 1, 0644, &e), -EISDIR);
        assert_non_null(strstr(e.msg, "rename"));
        assert_int_equal(entries(), 1);
}

static void write_by_absolute_path(void **state)
{
        _cleanup_free_ char *path = xasprintf("%s/abs", top);

        assert_int_equal(file_write_atomic(AT_FDCWD, path, "x", 1, 0644, NULL), 0);
        assert_true(there("abs"));
}

static void write_all_through_a_pipe(void **state)
{
        size_t n = 1 << 20; /* more than a pipe holds: several writes */
        _cleanup_free_ char *data = xcalloc(1, n);
        int fds[2], status;

        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void) close(fds[0]);
                _exit(fd_write_all(fds[1], data, n) == 0 ? 0 : 1);
        }
        (void) close(fds[1]);
        size_t total = 0;
        for (ssize_t got; (got = read(fds[0], data, n)) > 0;)
                total += (size_t) got;
        (void) close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(total, n);
        assert_int_equal(fd_write_all(-1, "x", 1), -EBADF);
        assert_int_equal(fd_write_all(-1, "x", 0), 0);
}

static void making_folders(void **state)
{
        _cleanup_free_ char *deep = xasprintf("%s/a/b//c/", top), *file = xasprintf("%s/f/x", top);
        _cleanup_free_ char *last = xasprintf("%s/f", top);

        assert_int_equal(mkdir_all(deep, 0700), 0);
        assert_true(there("a/b/c"));
        assert_int_equal(fchmodat(dir, "a/b", 0711, 0), 0);
        assert_int_equal(mkdir_all(deep, 0700), 0);
        struct stat st;
        assert_int_equal(fstatat(dir, "a/b", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0711);
        put("f", "x");
        assert_int_equal(mkdir_all(file, 0700), -ENOTDIR);
        assert_int_equal(mkdir_all(last, 0700), -ENOTDIR);
        assert_int_equal(mkdir_all("", 0700), -ENOENT);
        assert_int_equal(mkdir_all("/", 0700), 0);
}

static void removing_what_is_no_folder(void **state)
{
        put("f", "x");
        assert_int_equal(remove_tree(dir, "missing"), 0);
        assert_int_equal(remove_tree(dir, "f"), 0);
        assert_false(there("f"));
}

static void removal_follows_no_link(void **state)
{
        assert_int_equal(mkdirat(dir, "outside", 0755), 0);
        put("outside/keep", "x");
        assert_int_equal(mkdirat(dir, "tree", 0755), 0);
        assert_int_equal(mkdirat(dir, "tree/sub", 0755), 0);
        assert_int_equal(symlinkat("../outside", dir, "tree/link"), 0);
        assert_int_equal(symlinkat("../../outside", dir, "tree/sub/link"), 0);
        assert_int_equal(symlinkat("nowhere", dir, "tree/dangling"), 0);
        assert_int_equal(symlinkat("outside", dir, "toplink"), 0);
        put("tree/.hidden", "x");
        assert_int_equal(remove_tree(dir, "tree"), 0);
        assert_false(there("tree"));
        assert_int_equal(remove_tree(dir, "toplink"), 0);
        assert_false(there("toplink"));
        assert_true(there("outside/keep"));
}

/* Deeper than PATH_MAX and than a process has descriptors. */
static void removal_of_a_deep_tree(void **state)
{
        static const char name[] = "a-name-of-some-length";
        const struct rlimit few = { 100, 100 };
        int fd = dup(dir);

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (int i = 0; i < 400; i++) {
                assert_int_equal(mkdirat(fd, name, 0755), 0);
                int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                (void) close(fd);
                fd = next;
                assert_int_equal(symlinkat("..", fd, "up"), 0);
        }
        (void) close(fd);
        assert_int_equal(remove_tree(dir, name), 0);
        assert_int_equal(entries(), 0);
}

static void removal_of_many_entries(void **state)
{
        assert_int_equal(mkdirat(dir, "wide", 0755), 0);
        for (int i = 0; i < 1000; i++) {
                char name[32];

                (void) snprintf(name, sizeof name, "wide/%d", i);
                assert_int_equal(i % 3 ? mkdirat(dir, name, 0755) : symlinkat("x", dir, name), 0);
        }
        assert_int_equal(remove_tree(dir, "wide"), 0);
        assert_false(there("wide"));
}

/* Without root's privileges, as the permission bits mean nothing to it. */
static void removal_of_read_only_folders(void **state)
{
        int status;

        assert_int_equal(fchmod(dir, 0777), 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
                        _exit(2);
                if (mkdirat(dir, "ro", 0755) < 0 || mkdirat(dir, "ro/sub", 0755) < 0 ||
                    mkdirat(dir, "ro/sub/x", 0) < 0 || mkdirat(dir, "ro/shut", 0755) < 0 ||
                    mkdirat(dir, "ro/shut/y", 0755) < 0 || fchmodat(dir, "ro/shut", 0, 0) < 0 ||
                    fchmodat(dir, "ro/sub", 0555, 0) < 0 || fchmodat(dir, "ro", 0555, 0) < 0)
                        _exit(3);
                _exit(remove_tree(dir, "ro") == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_false(there("ro"));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(read_appends),
                T(read_is_bounded),
                T(read_of_big_files),
                T(read_errors),
                T(write_replaces_with_the_mode),
                T(write_replaces_a_link_not_its_target),
                T(write_failures_leave_nothing),
                T(write_by_absolute_path),
                T(write_all_through_a_pipe),
                T(making_folders),
                T(removing_what_is_no_folder),
                T(removal_follows_no_link),
                T(removal_of_a_deep_tree),
                T(removal_of_many_entries),
                T(removal_of_read_only_folders),
        };
#undef T

        return cmocka_run_group_tests(tests, NULL, NULL);
}
