#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void adds_in_every_form(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1000);

        assert_int_equal(buf_add(&b, "a\0", 2), 0);
        assert_int_equal(buf_adds(&b, "bc"), 0);
        assert_int_equal(buf_addstr(&b, STR("de")), 0);
        assert_int_equal(buf_addc(&b, 'f'), 0);
        assert_int_equal(buf_addf(&b, "%d", 12), 0);
        assert_int_equal(buf_add(&b, NULL, 0), 0);
        assert_true(str_eq(buf_str(&b), STR("a\0bcdef12")));
}

static void the_maximum_is_exact(void **state)
{
        for (size_t max = 0; max < 200; max++) {
                _cleanup_buf_ struct buf b = BUF_MAX(max);

                for (size_t i = 0; i < max; i++)
                        assert_int_equal(buf_addc(&b, 'x'), 0);
                assert_int_equal(buf_addc(&b, 'y'), -ENOBUFS);
                assert_int_equal(b.len, max);
                assert_int_equal(strlen(buf_cstr(&b)), max);
        }
}

static void a_refused_growth_changes_nothing(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(10);

        assert_int_equal(buf_adds(&b, "12345678"), 0);
        assert_int_equal(buf_adds(&b, "abc"), -ENOBUFS);
        assert_int_equal(buf_addf(&b, "%s", "abc"), -ENOBUFS);
        assert_null(buf_room(&b, 3));
        assert_null(buf_room(&b, SIZE_MAX));
        assert_int_equal(buf_add(&b, "x", SIZE_MAX - 4), -ENOBUFS);
        assert_string_equal(buf_cstr(&b), "12345678");
        assert_int_equal(buf_adds(&b, "90"), 0);
        assert_string_equal(buf_cstr(&b), "1234567890");
}

static void long_formats(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(5000);

        for (int n = 505; n < 520; n++) {
                buf_clear(&b);
                assert_int_equal(buf_addf(&b, "%*d|", n, 7), 0);
                assert_int_equal(b.len, n + 1);
                assert_int_equal(b.p[n], '|');
                assert_int_equal(b.p[n - 1], '7');
        }
        buf_clear(&b);
        assert_int_equal(buf_addf(&b, "%5001d", 7), -ENOBUFS);
        assert_int_equal(b.len, 0);
}

static void room_and_grew(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        assert_int_equal(buf_addc(&b, 'a'), 0);
        char *p = buf_room(&b, 99);
        assert_non_null(p);
        memset(p, 'b', 99);
        buf_grew(&b, 2);
        assert_string_equal(buf_cstr(&b), "abb");
}

static void consuming(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        buf_consume(&b, 5);
        assert_int_equal(buf_adds(&b, "abcdef"), 0);
        buf_consume(&b, 0);
        buf_consume(&b, 2);
        assert_string_equal(buf_cstr(&b), "cdef");
        buf_consume(&b, 99);
        assert_int_equal(b.len, 0);
        assert_string_equal(buf_cstr(&b), "");
}

static void stealing(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(3);

        char *empty = buf_steal(&b);
        assert_string_equal(empty, "");
        assert_int_equal(buf_adds(&b, "abc"), 0);
        char *s = buf_steal(&b);
        assert_string_equal(s, "abc");
        assert_null(b.p);
        assert_int_equal(b.len, 0);
        assert_int_equal(buf_adds(&b, "xyz"), 0);
        assert_string_equal(s, "abc");
        free(s);
        free(empty);
}

static void done_leaves_a_usable_buffer(void **state)
{
        struct buf b = BUF_MAX(3);

        assert_int_equal(buf_adds(&b, "abc"), 0);
        buf_done(&b);
        assert_int_equal(b.len, 0);
        assert_int_equal(buf_adds(&b, "abcd"), -ENOBUFS);
        assert_int_equal(buf_adds(&b, "abc"), 0);
        buf_done(&b);
        buf_done(&b);
}

static void no_maximum_still_grows(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(SIZE_MAX);

        for (int i = 0; i < 100000; i++)
                assert_int_equal(buf_addc(&b, 'x'), 0);
        assert_int_equal(b.len, 100000);
        assert_true(b.cap < 300000);
}

static int fill(struct buf *b)
{
        int r = buf_adds(b, "start ");

        for (int i = 0; r == 0 && i < 50; i++)
                r = buf_addf(b, "%d,", i);
        if (r == 0)
                r = buf_addf(b, "%600d", 1);
        return r;
}

/* Whichever allocation fails: -ENOMEM, and what is there is a prefix of the whole. */
static void torture(void **state)
{
        _cleanup_buf_ struct buf whole = BUF_MAX(10000);
        unsigned n = 0;
        int r;

        assert_int_equal(fill(&whole), 0);
        do {
                _cleanup_buf_ struct buf b = BUF_MAX(10000);

                mem_fail_after(++n);
                r = fill(&b);
                mem_fail_after(0);
                assert_true(r == 0 || r == -ENOMEM);
                assert_true(str_starts(buf_str(&whole), buf_str(&b)));
        } while (r < 0);
        assert_true(n > 4);
}

static void torture_of_the_terminator(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        /* A full capacity makes the NUL need memory. */
        assert_int_equal(buf_add(&b, "0123456789012345678901234567890123456789012345678901234567890123", 64), 0);
        assert_int_equal(b.cap, 64);
        mem_fail_after(1);
        assert_string_equal(buf_cstr(&b), "");
        mem_fail_after(1);
        assert_null(buf_steal(&b));
        assert_int_equal(b.len, 64);
        assert_int_equal(strlen(buf_cstr(&b)), 64);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(adds_in_every_form),
                cmocka_unit_test(the_maximum_is_exact),
                cmocka_unit_test(a_refused_growth_changes_nothing),
                cmocka_unit_test(long_formats),
                cmocka_unit_test(room_and_grew),
                cmocka_unit_test(consuming),
                cmocka_unit_test(stealing),
                cmocka_unit_test(done_leaves_a_usable_buffer),
                cmocka_unit_test(no_maximum_still_grows),
                cmocka_unit_test(torture),
                cmocka_unit_test(torture_of_the_terminator),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
