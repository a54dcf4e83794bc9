#include "base/utf8.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static size_t put(char *s, unsigned c)
{
        if (c < 0x80) {
                s[0] = (char) c;
                return 1;
        }
        if (c < 0x800) {
                s[0] = (char) (0xc0 | c >> 6);
                s[1] = (char) (0x80 | (c & 63));
                return 2;
        }
        if (c < 0x10000) {
                s[0] = (char) (0xe0 | c >> 12);
                s[1] = (char) (0x80 | (c >> 6 & 63));
                s[2] = (char) (0x80 | (c & 63));
                return 3;
        }
        s[0] = (char) (0xf0 | c >> 18);
        s[1] = (char) (0x80 | (c >> 12 & 63));
        s[2] = (char) (0x80 | (c >> 6 & 63));
        s[3] = (char) (0x80 | (c & 63));
        return 4;
}

static void every_code_point(void **state)
{
        for (unsigned c = 0; c < 0x1fffff; c++) {
                char s[4];
                size_t n = put(s, c);
                bool good = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);

                if (utf8_valid(str_n(s, n)) != good || utf8_seq(str_n(s, n)) != (good ? n : 0))
                        fail_msg("U+%04X", c);
                for (size_t cut = 1; cut < n; cut++)
                        if (utf8_valid(str_n(s, cut)) || utf8_seq(str_n(s, cut)))
                                fail_msg("U+%04X cut to %zu", c, cut);
        }
}

static void every_pair_of_bytes(void **state)
{
        for (unsigned a = 0; a < 256; a++)
                for (unsigned b = 0; b < 256; b++) {
                        char s[2] = { (char) a, (char) b };
                        bool good = (a < 0x80 && b < 0x80) || (a >= 0xc2 && a < 0xe0 && b >= 0x80 && b < 0xc0);

                        assert_int_equal(utf8_valid(str_n(s, 2)), good);
                }
}

static void refusals(void **state)
{
        static const char *const invalid[] = { "\xc0\x80", /* overlong */
                                               "\xc1\xbf",
                                               "\xe0\x9f\xbf",
                                               "\xf0\x8f\xbf\xbf",
                                               "\xed\xa0\x80",     /* surrogate */
                                               "\xf4\x90\x80\x80", /* above U+10FFFF */
                                               "\xf8\x88\x80\x80\x80",
                                               "\xff",
                                               "\xfe",
                                               "\x80",
                                               "a\xbf",
                                               "12345678\xc3", /* behind a whole word */
                                               "1234567\xc3zzzzzzzz",
                                               "abc\xe2\x82" };

        for (size_t i = 0; i < ARRAY_LEN(invalid); i++)
                if (utf8_valid(str_of(invalid[i])))
                        fail_msg("case %zu accepted", i);
        assert_true(utf8_valid(str_n(NULL, 0)));
        assert_int_equal(utf8_seq(str_n(NULL, 0)), 0);
        assert_true(utf8_valid(STR("nul\0inside")));
}

static void invalid_byte_at_every_offset(void **state)
{
        char s[32];

        for (size_t n = 1; n <= sizeof s; n++)
                for (size_t i = 0; i < n; i++) {
                        memset(s, 'a', sizeof s);
                        assert_true(utf8_valid(str_n(s, n)));
                        s[i] = '\x80';
                        assert_false(utf8_valid(str_n(s, n)));
                }
}

static void repairing(void **state)
{
#define R "\xef\xbf\xbd"
        static const struct {
                struct str in;
                const char *out;
        } cases[] = {
                { { "", 0 }, "" },
                { { "plain \xc3\xa9", 8 }, "plain \xc3\xa9" },
                { { "a\x80z", 3 }, "a" R "z" },
                { { "\xff\xfe", 2 }, R R },
                { { "\xe2\x82", 2 }, R }, /* one truncated sequence, one mark */
                { { "\xe2\x82z", 3 }, R "z" },
                { { "\xf0\x9f\x98z", 4 }, R "z" },
                { { "\xc3\xc3\xa9", 3 }, R "\xc3\xa9" },
                { { "\xed\xa0\x80", 3 }, R R R }, /* no byte of a surrogate begins anything */
                { { "\xe0\x80\x80", 3 }, R R R },
                { { "\xf4\x90\x80\x80", 4 }, R R R R },
                { { "12345678\x80"
                    "12345678",
                    17 },
                  "12345678" R "12345678" },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(100);

                assert_int_equal(utf8_repair(&b, cases[i].in), 0);
                assert_string_equal(buf_cstr(&b), cases[i].out);
                assert_true(utf8_valid(buf_str(&b)));
        }
#undef R
}

static void repair_respects_the_maximum(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8);

        assert_int_equal(buf_adds(&b, "12"), 0);
        assert_int_equal(utf8_repair(&b, STR("abc\xff"
                                             "d")),
                         -ENOBUFS);
        assert_string_equal(buf_cstr(&b), "12");
        assert_int_equal(utf8_repair(&b, STR("abc\xff")), 0);
        assert_int_equal(b.len, 8);
}

static void prefixes(void **state)
{
        static const struct {
                struct str in;
                size_t max, n;
        } cases[] = {
                { { "abc", 3 }, 5, 3 },
                { { "abc", 3 }, 3, 3 },
                { { "abc", 3 }, 2, 2 },
                { { "abc", 3 }, 0, 0 },
                { { "a\xc3\xa9z", 4 }, 2, 1 },
                { { "a\xc3\xa9z", 4 }, 3, 3 },
                { { "\xe2\x82\xac", 3 }, 2, 0 },
                { { "\xe2\x82\xac", 3 }, 1, 0 },
                { { "\xf0\x9f\x98\x80"
                    "a",
                    5 },
                  3,
                  0 },
                { { "\xf0\x9f\x98\x80"
                    "a",
                    5 },
                  4,
                  4 },
                { { "\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 8 }, 7, 4 },
                { { "\x80\x80\x80\x80", 4 }, 3, 3 }, /* garbage has no sequences to keep whole */
                { { "ab\xe2\x82", 4 }, 3, 3 },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct str s = utf8_prefix(cases[i].in, cases[i].max);

                assert_ptr_equal(s.p, cases[i].in.p);
                assert_int_equal(s.n, cases[i].n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_code_point), cmocka_unit_test(every_pair_of_bytes),
                cmocka_unit_test(refusals),         cmocka_unit_test(invalid_byte_at_every_offset),
                cmocka_unit_test(repairing),        cmocka_unit_test(repair_respects_the_maximum),
                cmocka_unit_test(prefixes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
