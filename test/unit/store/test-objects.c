#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "scratch.h"
#include "store/accounts.h"
#include "store/objects.h"

#include "base/clock.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int files_in(const char *folder)
{
        DIR *d = opendir(folder);
        int n = -2; /* . and .. */

        assert_non_null(d);
        while (readdir(d))
                n++;
        (void) closedir(d);
        return n;
}

static void test_write_read_expire(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir), *account = NULL;
        struct objects *o = NULL;
        struct object_writer w;
        struct object_row row;
        char text[16] = "";

        assert_int_equal(accounts_first(s->db, &account, NULL), 0);
        assert_int_equal(objects_open(folder, s->db, &o, NULL), 0);
        assert_int_equal(object_begin(o, &w, NULL), 0);
        assert_int_equal(object_write(&w, "hello", 5), 0);
        assert_int_equal(object_read(o, w.id, &row, NULL), -ENOENT); /* not before the commit */
        assert_int_equal(object_commit(&w, account, "box", "a.txt", "text/plain", 1000, NULL), 0);
        int fd = object_read(o, w.id, &row, NULL);
        assert_true(fd >= 0);
        assert_int_equal(row.bytes, 5);
        assert_string_equal(row.name, "a.txt");
        assert_int_equal(read(fd, text, sizeof text), 5);
        assert_memory_equal(text, "hello", 5);
        (void) close(fd);
        assert_int_equal(objects_bytes(o), 5);
        assert_int_equal(objects_expire(o, wall_ms()), 0);
        assert_int_equal(objects_expire(o, wall_ms() + 2000), 1);
        assert_int_equal(object_read(o, w.id, &row, NULL), -ENOENT);
        assert_int_equal(files_in(folder), 0);
        objects_free(o);
}

static void test_abort_and_crash_leave_nothing(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir);
        struct objects *o = NULL;
        struct object_writer w, crashed;

        assert_int_equal(objects_open(folder, s->db, &o, NULL), 0);
        assert_int_equal(object_begin(o, &w, NULL), 0);
        object_abort(&w);
        object_abort(&w); /* twice is harmless */
        assert_int_equal(files_in(folder), 0);
        assert_int_equal(object_begin(o, &crashed, NULL), 0);
        (void) close(crashed.fd);
        assert_int_equal(files_in(folder), 1);
        objects_free(o);
        assert_int_equal(objects_open(folder, s->db, &o, NULL), 0);
        assert_int_equal(files_in(folder), 0);
        objects_free(o);
}

static void test_write_error_is_kept(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir);
        struct objects *o = NULL;
        struct object_writer w;
        struct err e = { 0 };

        assert_int_equal(objects_open(folder, s->db, &o, NULL), 0);
        assert_int_equal(object_begin(o, &w, NULL), 0);
        int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        assert_true(dup2(full, w.fd) >= 0);
        (void) close(full);
        assert_int_equal(object_write(&w, "x", 1), -ENOSPC);
        assert_int_equal(object_write(&w, "y", 1), -ENOSPC);
        assert_int_equal(object_commit(&w, "a", NULL, "n", "t", 1, &e), -ENOSPC);
        assert_int_equal(files_in(folder), 0);
        objects_free(o);
}

static void test_what_must_stay_free_stays_free(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir);
        struct objects *o = NULL;
        struct object_writer w;
        struct err e = { 0 };

        assert_int_equal(objects_open(folder, s->db, &o, NULL), 0);
        objects_keep_free(o, INT64_MAX); /* no disk has that */
        assert_int_equal(object_begin(o, &w, NULL), 0);
        assert_int_equal(object_write(&w, "hello", 5), -ENOSPC);
        assert_int_equal(object_commit(&w, "a", "box", "a.txt", "text/plain", 1000, &e), -ENOSPC);
        assert_int_equal(files_in(folder), 0);
        objects_free(o);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_write_read_expire, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_abort_and_crash_leave_nothing, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_what_must_stay_free_stays_free, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_write_error_is_kept, scratch_setup, scratch_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
