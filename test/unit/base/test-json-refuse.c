#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct refusal {
        struct str text;
        const char *message;
};

#define R(text, message)                            \
        {                                           \
                { text, sizeof(text) - 1 }, message \
        }

static void check(const struct refusal *cases, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct json *j = NULL;
                struct err e = { 0 };
                /* An exact copy lets the address checker see a read past the end. */
                _cleanup_free_ char *copy = xmemdup(cases[i].text.p, cases[i].text.n);
                int r = json_parse(copy, cases[i].text.n, &j, &e);

                if (r != -EINVAL || j)
                        fail_msg("accepted: %s", cases[i].text.p);
                assert_int_equal(e.code, -EINVAL);
                assert_string_equal(e.msg, cases[i].message);
        }
}

static void structure(void **state)
{
        static const struct refusal cases[] = {
                R("", "line 1 column 1: the text ends too early"),
                R(" \n ", "line 2 column 2: the text ends too early"),
                R("{", "line 1 column 2: the text ends too early"),
                R("[", "line 1 column 2: the text ends too early"),
                R("[1", "line 1 column 3: the text ends too early"),
                R("[1,", "line 1 column 4: the text ends too early"),
                R("{\"a\"", "line 1 column 5: the text ends too early"),
                R("{\"a\":", "line 1 column 6: the text ends too early"),
                R("[1,]", "line 1 column 4: expected a value"),
                R("[,1]", "line 1 column 2: expected a value"),
                R("[1 2]", "line 1 column 4: expected ',' or ']'"),
                R("[1}", "line 1 column 3: expected ',' or ']'"),
                R("{]", "line 1 column 2: expected a key in double quotes"),
                R("{\"a\":1,}", "line 1 column 8: expected a key in double quotes"),
                R("{\"a\":1,\"b\":2]", "line 1 column 13: expected ',' or '}'"),
                R("{\"a\" 1}", "line 1 column 6: expected ':'"),
                R("{\"a\":}", "line 1 column 6: expected a value"),
                R("{1:2}", "line 1 column 2: expected a key in double quotes"),
                R("{a:1}", "line 1 column 2: expected a key in double quotes"),
                R("]", "line 1 column 1: expected a value"),
                R("{\n  \"a\": 1,\n  \"b\": oops\n}", "line 3 column 8: expected a value"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void text_after_the_value(void **state)
{
        static const struct refusal cases[] = {
                R("1 2", "line 1 column 3: unexpected text after the value"),
                R("{}{}", "line 1 column 3: unexpected text after the value"),
                R("[] x", "line 1 column 4: unexpected text after the value"),
                R("null\0", "line 1 column 5: unexpected text after the value"),
                R("nullx", "line 1 column 5: unexpected text after the value"),
                R("\"a\"\"b\"", "line 1 column 4: unexpected text after the value"),
                R("{} //", "line 1 column 4: unexpected text after the value"),
                R("1\f", "line 1 column 2: unexpected text after the value"),
        };

        check(cases, ARRAY_LEN(cases));
}

/* What json-c would take, or other parsers do. */
static void extensions(void **state)
{
        static const struct refusal cases[] = {
                R("NaN", "line 1 column 1: expected a value"),
                R("[Infinity]", "line 1 column 2: expected a value"),
                R("-Infinity", "line 1 column 2: expected a digit"),
                R("-NaN", "line 1 column 2: expected a digit"),
                R("TRUE", "line 1 column 1: expected a value"),
                R("[True]", "line 1 column 2: expected a value"),
                R("Null", "line 1 column 1: expected a value"),
                R("tru", "line 1 column 1: expected a value"),
                R("'a'", "line 1 column 1: expected a value"),
                R("{'a':1}", "line 1 column 2: expected a key in double quotes"),
                R("/* c */ 1", "line 1 column 1: expected a value"),
                R("[1, // c\n2]", "line 1 column 5: expected a value"),
                R("[1 /* c */]", "line 1 column 4: expected ',' or ']'"),
                R("# c\n1", "line 1 column 1: expected a value"),
                R("\xef\xbb\xbf{}", "line 1 column 1: expected a value"),
                R("\f1", "line 1 column 1: expected a value"),
                R("\v1", "line 1 column 1: expected a value"),
                R("\xc2\xa0"
                  "1",
                  "line 1 column 1: expected a value"),
                R("[\0]", "line 1 column 2: expected a value"),
                R("undefined", "line 1 column 1: expected a value"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void numbers(void **state)
{
        static const struct refusal cases[] = {
                R("01", "line 1 column 2: a number must not start with 0"),
                R("-01", "line 1 column 3: a number must not start with 0"),
                R("00", "line 1 column 2: a number must not start with 0"),
                R("-", "line 1 column 2: the text ends too early"),
                R("[-]", "line 1 column 3: expected a digit"),
                R("--1", "line 1 column 2: expected a digit"),
                R("+1", "line 1 column 1: expected a value"),
                R(".5", "line 1 column 1: expected a value"),
                R("[1.]", "line 1 column 4: expected a digit after the decimal point"),
                R("1.e5", "line 1 column 3: expected a digit after the decimal point"),
                R("[1e]", "line 1 column 4: expected a digit in the exponent"),
                R("[1e+]", "line 1 column 5: expected a digit in the exponent"),
                R("1e5.5", "line 1 column 4: unexpected text after the value"),
                R("0x10", "line 1 column 2: unexpected text after the value"),
                R("1_000", "line 1 column 2: unexpected text after the value"),
                R("1.2.3", "line 1 column 4: unexpected text after the value"),
                R("[1, 1e400]", "line 1 column 5: number out of range"),
                R("-1.8e308", "line 1 column 1: number out of range"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void a_number_of_too_many_digits(void **state)
{
        char text[401];
        struct json *j = NULL;
        struct err e = { 0 };

        memset(text, '9', sizeof text - 1);
        assert_int_equal(json_parse(text, 400, &j, &e), -EINVAL);
        assert_string_equal(e.msg, "line 1 column 1: number out of range");
        assert_int_equal(json_parse(text, 300, &j, &e), 0);
        assert_true(json_double(j) == 1e300);
        json_unref(j);
        text[1] = '.';
        assert_int_equal(json_parse(text, 400, &j, &e), 0);
        assert_true(json_double(j) == 10);
        json_unref(j);
}

static void strings(void **state)
{
        static const struct refusal cases[] = {
                R("\"a", "line 1 column 3: the text ends too early"),
                R("\"a\\", "line 1 column 3: invalid escape in a string"),
                R("\"a\\\"", "line 1 column 5: the text ends too early"),
                R("\"a\nb\"", "line 1 column 3: raw control byte in a string"),
                R("\"\t\"", "line 1 column 2: raw control byte in a string"),
                R("\"\x1f\"", "line 1 column 2: raw control byte in a string"),
                R("\"a\0b\"", "line 1 column 3: raw control byte in a string"),
                R("{\"a\n\":1}", "line 1 column 4: raw control byte in a string"),
                R("\"\\x41\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\'\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\\0\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\U0041\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\u004\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\u004g\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\u", "line 1 column 2: invalid escape in a string"),
                R("\"\\u 041\"", "line 1 column 2: invalid escape in a string"),
                R("\"\\u+041\"", "line 1 column 2: invalid escape in a string"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void surrogates(void **state)
{
        static const struct refusal cases[] = {
                R("\"\\ud800\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\udbffx\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\udc00\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ude00\\ud83d\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\ud83d\\ude00\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\u0041\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ude00\\ude00\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\ue000\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\udbff\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\n\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\ude0\"", "line 1 column 2: lone surrogate in a string"),
                R("\"\\ud83d\\ude00\\ude00\"", "line 1 column 14: lone surrogate in a string"),
                R("{\"\\ud800\":1}", "line 1 column 3: lone surrogate in a string"),
                R("\"\xed\xa0\x80\"", "line 1 column 2: invalid UTF-8 in a string"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void utf8(void **state)
{
        static const struct refusal cases[] = {
                R("\"\x80\"", "line 1 column 2: invalid UTF-8 in a string"),
                R("\"ab\xff\"", "line 1 column 4: invalid UTF-8 in a string"),
                R("\"\xc3\"", "line 1 column 2: invalid UTF-8 in a string"),
                R("\"\xc3", "line 1 column 2: invalid UTF-8 in a string"),
                R("\"\xc0\x80\"", "line 1 column 2: invalid UTF-8 in a string"),
                R("\"\xf4\x90\x80\x80\"", "line 1 column 2: invalid UTF-8 in a string"),
                R("{\"\xe2\x82\":1}", "line 1 column 3: invalid UTF-8 in a string"),
                R("[\xc3\xa9]", "line 1 column 2: expected a value"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void duplicates(void **state)
{
        static const struct refusal cases[] = {
                R("{\"a\":1,\"a\":2}", "line 1 column 8: duplicate key"),
                R("{\"\":1,\"\":2}", "line 1 column 7: duplicate key"),
                R("{\"a\":1,\"\\u0061\":2}", "line 1 column 8: duplicate key"),
                R("{\"\\u0061\":1,\"a\":2}", "line 1 column 13: duplicate key"),
                R("{\"\\n\":1,\"\\u000A\":2}", "line 1 column 9: duplicate key"),
                R("{\"\\/\":1,\"/\":2}", "line 1 column 9: duplicate key"),
                R("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", "line 1 column 19: duplicate key"),
                R("{\"\\u20ac\":1,\"\xe2\x82\xac\":2}", "line 1 column 13: duplicate key"),
                R("{\"a\":{\"b\":1},\"b\":{\"a\":1,\"b\":{}},\"a\":1}", "line 1 column 33: duplicate key"),
                R("[{\"x\":1},{\"a\":1,\n\"a\":1}]", "line 2 column 1: duplicate key"),
                R("{\"a\\u0000\":1}", "line 1 column 2: NUL in a key"),
        };

        check(cases, ARRAY_LEN(cases));
}

static void accepted(const char *text)
{
        struct json *j = NULL;
        struct err e = { 0 };

        if (json_parse(text, strlen(text), &j, &e) < 0)
                fail_msg("%s: %s", text, e.msg);
        json_unref(j);
}

static void the_same_key_elsewhere_is_no_duplicate(void **state)
{
        accepted("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1},\"c\":[{\"a\":1},{\"a\":2}]}");
        accepted("{\"a\":1,\"A\":2,\"a \":3,\"\":4}");
        accepted("{\"a\":{\"\\u0062\":{\"\\u0063\":1},\"\\u0063\":2},\"\\u0062\":3,\"c\":{\"\\u0062\":1}}");
        accepted("[\"a\",\"a\"]");
}

static void repeat(struct buf *b, const char *s, int n)
{
        for (int i = 0; i < n; i++)
                assert_int_equal(buf_adds(b, s), 0);
}

static void depth(void **state)
{
        static const struct {
                const char *open, *inner, *close;
                int levels, r;
        } cases[] = {
                { "[", "", "]", JSON_DEPTH_MAX, 0 },
                { "[", "", "]", JSON_DEPTH_MAX + 1, -EINVAL },
                { "[", "1", "]", JSON_DEPTH_MAX, 0 },
                { "{\"a\":", "{}", "}", JSON_DEPTH_MAX - 1, 0 },
                { "{\"a\":", "{}", "}", JSON_DEPTH_MAX, -EINVAL },
                { "[", "", "", 1000000, -EINVAL },
                { "{\"a\":", "", "", 1000000, -EINVAL },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(10000000);
                struct json *j = NULL;
                struct err e = { 0 };

                repeat(&b, cases[i].open, cases[i].levels);
                repeat(&b, cases[i].inner, 1);
                repeat(&b, cases[i].close, cases[i].levels);
                assert_int_equal(json_parse(b.p, b.len, &j, &e), cases[i].r);
                if (cases[i].r < 0)
                        assert_non_null(strstr(e.msg, "nested too deeply"));
                json_unref(j);
        }
}

/* Quadratic work would take minutes here, in one flat object as in many nested ones. */
static void many_keys_take_linear_time(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100000000);
        struct json *j = NULL;
        int64_t start = clock_ms();

        for (int i = 0; i < JSON_DEPTH_MAX - 1; i++)
                assert_int_equal(buf_addf(&b, "{\"same\":%d,\"\\u0065sc%d\":", i, i), 0);
        for (int i = 0; i < 300000; i++)
                assert_int_equal(buf_addf(&b, "%s\"k%d\":{\"same\":1}", i ? "," : "{", i), 0);
        repeat(&b, "}", JSON_DEPTH_MAX);
        assert_int_equal(json_parse(b.p, b.len, &j, NULL), -EINVAL);
        /* That was one level too deep for the innermost objects; numbers fit. */
        buf_clear(&b);
        for (int i = 0; i < JSON_DEPTH_MAX - 2; i++)
                assert_int_equal(buf_addf(&b, "{\"same\":%d,\"\\u0065sc%d\":", i, i), 0);
        for (int i = 0; i < 300000; i++)
                assert_int_equal(buf_addf(&b, "%s\"k%d\":{\"same\":1}", i ? "," : "{", i), 0);
        repeat(&b, "}", JSON_DEPTH_MAX - 1);
        assert_int_equal(json_parse(b.p, b.len, &j, NULL), 0);
        json_unref(j);
        j = NULL;
        /* And a duplicate at the very end is still found. */
        b.len -= JSON_DEPTH_MAX - 1;
        assert_int_equal(buf_adds(&b, ",\"k7\":1"), 0);
        struct err e = { 0 };
        assert_int_equal(json_parse(b.p, b.len, &j, &e), -EINVAL);
        assert_non_null(strstr(e.msg, "duplicate key"));
        assert_true(clock_ms() - start < 60000);
}

/* Every prefix of a good text is refused, every single-byte change refused or survives a round trip. */
static void mutations(void **state)
{
        static const char good[] =
                "{\"a\\u00e9\":[1,-2.5e3,\"x\\ud83d\\ude00\",true,null,{\"b\":\"\xc3\xa9\"}],\"c\":{}}";
        char text[sizeof good];

        for (size_t n = 0; n < sizeof good - 1; n++) {
                _cleanup_free_ char *copy = xmemdup(good, n);
                struct json *j = NULL;

                assert_int_equal(json_parse(copy, n, &j, NULL), -EINVAL);
        }
        for (size_t i = 0; i < sizeof good - 1; i++)
                for (int c = 0; c < 256; c++) {
                        _cleanup_json_ struct json *j = NULL, *again = NULL;

                        memcpy(text, good, sizeof good);
                        text[i] = (char) c;
                        if (json_parse(text, sizeof good - 1, &j, NULL) < 0)
                                continue;
                        _cleanup_free_ char *first = json_text(j);
                        assert_int_equal(json_parse(first, strlen(first), &again, NULL), 0);
                        _cleanup_free_ char *second = json_text(again);
                        assert_string_equal(first, second);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(structure),
                cmocka_unit_test(text_after_the_value),
                cmocka_unit_test(extensions),
                cmocka_unit_test(numbers),
                cmocka_unit_test(a_number_of_too_many_digits),
                cmocka_unit_test(strings),
                cmocka_unit_test(surrogates),
                cmocka_unit_test(utf8),
                cmocka_unit_test(duplicates),
                cmocka_unit_test(the_same_key_elsewhere_is_no_duplicate),
                cmocka_unit_test(depth),
                cmocka_unit_test(many_keys_take_linear_time),
                cmocka_unit_test(mutations),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
