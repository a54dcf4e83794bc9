#include "base/str.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct str nothing;

static void equality(void **state)
{
        assert_true(str_eq(STR("ab"), STR("ab")));
        assert_false(str_eq(STR("ab"), STR("aB")));
        assert_false(str_eq(STR("ab"), STR("abc")));
        assert_true(str_eq(nothing, STR("")));
        assert_true(str_eq(STR("a\0b"), STR("a\0b")));
        assert_false(str_eq(STR("a\0b"), STR("a\0c")));
        assert_true(str_eq(str_of(NULL), nothing));
}

static void folding_is_ascii_only(void **state)
{
        assert_true(str_ieq(STR("Content-Type"), STR("cONTENT-tYPE")));
        assert_false(str_ieq(STR("a"), STR("ab")));
        assert_false(str_ieq(STR("@"), STR("`")));
        assert_false(str_ieq(STR("["), STR("{")));
        assert_false(str_ieq(STR("\xc3\x84"), STR("\xc3\xa4")));
}

static void prefixes_suffixes_and_parts(void **state)
{
        assert_true(str_starts(STR("abc"), STR("ab")));
        assert_true(str_starts(STR("abc"), nothing));
        assert_false(str_starts(STR("ab"), STR("abc")));
        assert_true(str_ends(STR("abc"), STR("bc")));
        assert_true(str_ends(nothing, nothing));
        assert_false(str_ends(STR("bc"), STR("abc")));
        assert_true(str_has(STR("abcd"), STR("bc")));
        assert_false(str_has(STR("abcd"), STR("cb")));
        assert_true(str_has(nothing, nothing));
        assert_false(str_has(nothing, STR("a")));
}

static void trimming(void **state)
{
        assert_true(str_eq(str_trim(STR(" \ta b\t "), " \t"), STR("a b")));
        assert_true(str_eq(str_trim(STR("    "), " "), nothing));
        assert_true(str_eq(str_trim(nothing, " "), nothing));
        /* strchr finds the NUL that ends the set; it must not count as a member */
        assert_true(str_eq(str_trim(STR("\0 a\0"), " "), STR("\0 a\0")));
}

static void cutting(void **state)
{
        struct str s = STR("a,,b");

        assert_true(str_eq(str_cut(&s, ','), STR("a")));
        assert_true(str_eq(s, STR(",b")));
        assert_true(str_eq(str_cut(&s, ','), nothing));
        assert_true(str_eq(str_cut(&s, ','), STR("b")));
        assert_int_equal(s.n, 0);
        assert_true(str_eq(str_cut(&s, ','), nothing));
        s = STR("tail,");
        assert_true(str_eq(str_cut(&s, ','), STR("tail")));
        assert_int_equal(s.n, 0);
        s = nothing;
        assert_true(str_eq(str_cut(&s, ','), nothing));
}

static void numbers(void **state)
{
        static const char *const invalid[] = { "", "+1", "-1", " 1", "1 ", "0x1", "1a", "1.0", "\xd9\xa1" };
        uint64_t v = 7;

        assert_int_equal(parse_u64(STR("0"), 10, &v), 0);
        assert_int_equal(v, 0);
        assert_int_equal(parse_u64(STR("0010"), 10, &v), 0);
        assert_int_equal(v, 10);
        assert_int_equal(parse_u64(STR("18446744073709551615"), UINT64_MAX, &v), 0);
        assert_true(v == UINT64_MAX);
        v = 7;
        assert_int_equal(parse_u64(STR("11"), 10, &v), -ERANGE);
        assert_int_equal(parse_u64(STR("18446744073709551616"), UINT64_MAX, &v), -ERANGE);
        assert_int_equal(parse_u64(STR("99999999999999999999999"), UINT64_MAX, &v), -ERANGE);
        for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
                assert_int_equal(parse_u64(str_of(invalid[i]), UINT64_MAX, &v), -EINVAL);
        assert_int_equal(parse_u64(STR("1\0"), 10, &v), -EINVAL);
        assert_int_equal(v, 7);
}

static void classes(void **state)
{
        size_t n = 0;

        for (int c = 0; c < 256; c++)
                n += c_is_alnum((char) c);
        assert_int_equal(n, 62);
        assert_true(c_is_alnum('0') && c_is_alnum('9') && c_is_alnum('a') && c_is_alnum('Z'));
        assert_false(c_is_alnum('_'));
}

static void c_strings(void **state)
{
        assert_true(cstr_eq("a", "a"));
        assert_false(cstr_eq("a", "b"));
        assert_false(cstr_eq(NULL, ""));
        assert_false(cstr_eq("", NULL));
        assert_true(cstr_eq(NULL, NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(equality),
                cmocka_unit_test(folding_is_ascii_only),
                cmocka_unit_test(prefixes_suffixes_and_parts),
                cmocka_unit_test(trimming),
                cmocka_unit_test(cutting),
                cmocka_unit_test(numbers),
                cmocka_unit_test(classes),
                cmocka_unit_test(c_strings),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
