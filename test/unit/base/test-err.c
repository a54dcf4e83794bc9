#include "base/err.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void set_returns_its_code(void **state)
{
        struct err e = { 0 };

        assert_int_equal(err_set(&e, -ENOENT, "no %s here", "box"), -ENOENT);
        assert_int_equal(e.code, -ENOENT);
        assert_string_equal(e.msg, "no box here");
        assert_int_equal(err_set(&e, -EIO, "again"), -EIO);
        assert_string_equal(e.msg, "again");
}

static void null_is_accepted(void **state)
{
        assert_int_equal(err_set(NULL, -EPERM, "x"), -EPERM);
        assert_int_equal(err_sys(NULL, -EPERM, "x"), -EPERM);
        assert_int_equal(err_wrap(NULL, "x"), -EINVAL);
        assert_string_equal(err_text(NULL), "unknown error");
}

static void long_text_is_cut(void **state)
{
        struct err e = { 0 };
        char big[2 * ERR_MSG_MAX];

        memset(big, 'a', sizeof big - 1);
        big[sizeof big - 1] = '\0';
        assert_int_equal(err_set(&e, -EINVAL, "%s", big), -EINVAL);
        assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
        assert_int_equal(err_sys(&e, -EINVAL, "%s", big), -EINVAL);
        assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
}

static void sys_appends_the_reason(void **state)
{
        struct err e = { 0 };

        assert_int_equal(err_sys(&e, -ENOENT, "cannot open %s", "f"), -ENOENT);
        assert_string_equal(e.msg, "cannot open f: No such file or directory");
}

static void wrap_puts_context_in_front(void **state)
{
        struct err e = { 0 };

        (void) err_set(&e, -EBUSY, "inner %d", 7);
        assert_int_equal(err_wrap(&e, "outer %s", "x"), -EBUSY);
        assert_string_equal(e.msg, "outer x: inner 7");
        assert_int_equal(err_wrap(&e, "top"), -EBUSY);
        assert_string_equal(e.msg, "top: outer x: inner 7");
}

static void wrap_keeps_context_of_a_full_message(void **state)
{
        struct err e = { .code = -EINVAL };

        memset(e.msg, 'a', sizeof e.msg - 1);
        assert_int_equal(err_wrap(&e, "where"), -EINVAL);
        assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
        assert_memory_equal(e.msg, "where: aaa", 10);

        char big[2 * ERR_MSG_MAX];
        memset(big, 'b', sizeof big - 1);
        big[sizeof big - 1] = '\0';
        assert_int_equal(err_wrap(&e, "%s", big), -EINVAL);
        assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
        assert_non_null(strstr(e.msg, "b: where: "));
}

static void text_never_is_null(void **state)
{
        struct err e = { 0 };

        assert_string_equal(err_text(&e), "no error");
        e.code = -ENOENT;
        assert_string_equal(err_text(&e), "No such file or directory");
        (void) err_set(&e, -ENOENT, "mine");
        assert_string_equal(err_text(&e), "mine");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(set_returns_its_code),       cmocka_unit_test(null_is_accepted),
                cmocka_unit_test(long_text_is_cut),           cmocka_unit_test(sys_appends_the_reason),
                cmocka_unit_test(wrap_puts_context_in_front), cmocka_unit_test(wrap_keeps_context_of_a_full_message),
                cmocka_unit_test(text_never_is_null),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
