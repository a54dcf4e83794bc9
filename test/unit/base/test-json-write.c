#include "base/json.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct buf out;
static struct jw w;

static int setup(void **state)
{
        out = BUF_MAX(10000);
        jw_init(&w, &out);
        return 0;
}

static int teardown(void **state)
{
        buf_done(&out);
        return 0;
}

static void wrote(const char *want)
{
        assert_int_equal(jw_end_all(&w), 0);
        assert_string_equal(buf_cstr(&out), want);
}

static void nesting_and_commas(void **state)
{
        jw_obj(&w);
        jw_kint(&w, "i", -5);
        jw_karr(&w, "a");
        jw_int(&w, 1);
        jw_arr(&w);
        jw_end(&w);
        jw_obj(&w);
        jw_end(&w);
        jw_bool(&w, true);
        jw_null(&w);
        jw_end(&w);
        jw_kobj(&w, "o");
        jw_kstr(&w, "s", "v");
        jw_kstr(&w, "null", NULL);
        jw_end(&w);
        jw_kbool(&w, "b", false);
        jw_kstrn(&w, "n", STR("x\0y"));
        jw_key(&w, "raw");
        jw_raw(&w, STR("[1]"));
        jw_end(&w);
        wrote("{\"i\":-5,\"a\":[1,[],{},true,null],\"o\":{\"s\":\"v\",\"null\":null},\"b\":false,"
              "\"n\":\"x\\u0000y\",\"raw\":[1]}");
}

static void end_all_closes(void **state)
{
        jw_obj(&w);
        jw_karr(&w, "a");
        jw_obj(&w);
        jw_karr(&w, "b");
        wrote("{\"a\":[{\"b\":[]}]}");
        assert_int_equal(jw_end_all(&w), 0);
        assert_int_equal(out.len, 16);
}

static void scalars_at_the_top(void **state)
{
        jw_int(&w, INT64_MIN);
        wrote("-9223372036854775808");
}

static void escaping(void **state)
{
        jw_str(&w, "\"\\\b\f\n\r\t\x01\x1f\x7f / caf\xc3\xa9 \xf0\x9f\x98\x80");
        wrote("\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f / caf\xc3\xa9 \xf0\x9f\x98\x80\"");
}

static void keys_are_escaped_too(void **state)
{
        jw_obj(&w);
        jw_kint(&w, "a\"\n\xff", 1);
        wrote("{\"a\\\"\\n\xef\xbf\xbd\":1}");
}

static void invalid_utf8_is_replaced(void **state)
{
        jw_arr(&w);
        jw_str(&w, "a\xff"
                   "b");
        jw_str(&w, "\xe2\x82");
        jw_str(&w, "\xe2\"\x82");
        jw_str(&w, "\xed\xa0\x80");
        jw_strn(&w, str_n(NULL, 0));
        wrote("[\"a\xef\xbf\xbd"
              "b\",\"\xef\xbf\xbd\",\"\xef\xbf\xbd\\\"\xef\xbf\xbd\","
              "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"\"]");
}

/* Whatever bytes go in, what comes out parses, and to the same bytes when they were valid. */
static void every_byte_pair_parses(void **state)
{
        for (unsigned i = 0; i < 65536; i++) {
                char s[2] = { (char) (i >> 8), (char) (i & 255) };
                _cleanup_json_ struct json *j = NULL;

                buf_clear(&out);
                jw_init(&w, &out);
                jw_strn(&w, str_n(s, 2));
                assert_int_equal(jw_end_all(&w), 0);
                assert_int_equal(json_parse(out.p, out.len, &j, NULL), 0);
                if (i >> 8 < 128 && (i & 255) < 128)
                        assert_true(str_eq(json_strn(j), str_n(s, 2)));
        }
}

static void doubles(void **state)
{
        jw_arr(&w);
        jw_double(&w, 0.1);
        jw_double(&w, 5);
        jw_double(&w, -0.0);
        jw_double(&w, 1.0 / 3);
        jw_double(&w, 1e21);
        jw_double(&w, NAN);
        jw_double(&w, INFINITY);
        jw_double(&w, -INFINITY);
        wrote("[0.1,5,-0,0.3333333333333333,1e+21,null,null,null]");
}

static void doubles_read_back(void **state)
{
        static const double values[] = {
                DBL_MAX, DBL_MIN, DBL_EPSILON, 4.9e-324, 123456789.123456789, -2.2250738585072011e-308
        };

        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
                _cleanup_json_ struct json *j = NULL;

                buf_clear(&out);
                jw_init(&w, &out);
                jw_double(&w, values[i]);
                assert_int_equal(jw_end_all(&w), 0);
                assert_int_equal(json_parse(out.p, out.len, &j, NULL), 0);
                assert_true(json_double(j) == values[i]);
        }
}

static void trees_and_base64(void **state)
{
        static const char text[] = "{\"k\":[1,2.50,\"x\",null]}";
        _cleanup_json_ struct json *j = NULL;

        assert_int_equal(json_parse(text, sizeof text - 1, &j, NULL), 0);
        jw_obj(&w);
        jw_key(&w, "tree");
        jw_json(&w, j);
        jw_key(&w, "none");
        jw_json(&w, NULL);
        jw_key(&w, "data");
        jw_b64(&w, "foob", 4);
        jw_key(&w, "empty");
        jw_b64(&w, NULL, 0);
        wrote("{\"tree\":{\"k\":[1,2.50,\"x\",null]},\"none\":null,\"data\":\"Zm9vYg==\",\"empty\":\"\"}");
}

static void misuse(int number)
{
        switch (number) {
        case 0: /* a value without a key */
                jw_obj(&w);
                jw_int(&w, 1);
                break;
        case 1: /* a key in an array */
                jw_arr(&w);
                jw_key(&w, "k");
                break;
        case 2: /* a key at the top */
                jw_key(&w, "k");
                break;
        case 3: /* two keys in a row */
                jw_obj(&w);
                jw_key(&w, "a");
                jw_key(&w, "b");
                break;
        case 4: /* a key without a value */
                jw_obj(&w);
                jw_key(&w, "a");
                break;
        case 5: /* the same, closed by hand */
                jw_obj(&w);
                jw_key(&w, "a");
                jw_end(&w);
                break;
        case 6: /* one end too many */
                jw_arr(&w);
                jw_end(&w);
                jw_end(&w);
                break;
        case 7:
                jw_end(&w);
                break;
        case 8: /* an array without a key */
                jw_obj(&w);
                jw_arr(&w);
                break;
        }
}

static void misuse_is_an_error_that_sticks(void **state)
{
        for (int i = 0; i <= 8; i++) {
                buf_clear(&out);
                jw_init(&w, &out);
                misuse(i);
                if (jw_end_all(&w) != -EINVAL)
                        fail_msg("misuse %d", i);
                size_t len = out.len;
                jw_int(&w, 1);
                jw_arr(&w);
                jw_key(&w, "x");
                assert_int_equal(jw_end_all(&w), -EINVAL);
                assert_int_equal(out.len, len);
        }
}

static void depth(void **state)
{
        for (int i = 0; i < JSON_DEPTH_MAX; i++) {
                jw_arr(&w);
                jw_int(&w, i);
        }
        assert_int_equal(w.r, 0);
        struct jw copy = w;
        assert_int_equal(jw_end_all(&copy), 0);
        _cleanup_json_ struct json *j = NULL;
        assert_int_equal(json_parse(out.p, out.len, &j, NULL), 0);
        jw_arr(&w);
        assert_int_equal(jw_end_all(&w), -EINVAL);
}

/* Levels are remembered apart: an array in an object in an array and so on. */
static void mixed_levels(void **state)
{
        _cleanup_json_ struct json *j = NULL;

        jw_arr(&w);
        for (int i = 1; i < JSON_DEPTH_MAX / 2; i++) {
                jw_obj(&w);
                jw_kint(&w, "before", i);
                jw_karr(&w, "a");
        }
        for (int i = 1; i < JSON_DEPTH_MAX / 2; i++) {
                jw_int(&w, i);
                jw_end(&w);
                jw_kint(&w, "after", i);
                jw_end(&w);
        }
        jw_int(&w, 0);
        assert_int_equal(jw_end_all(&w), 0);
        assert_int_equal(json_parse(out.p, out.len, &j, NULL), 0);
        _cleanup_free_ char *again = json_text(j);
        assert_string_equal(again, buf_cstr(&out));
}

static int sample(struct buf *b)
{
        struct jw v;

        jw_init(&v, b);
        jw_obj(&v);
        jw_kstr(&v, "key \"quoted\"", "value\n\xff");
        jw_karr(&v, "list");
        for (int i = 0; i < 40; i++)
                jw_int(&v, i);
        jw_end(&v);
        jw_key(&v, "data");
        jw_b64(&v, "0123456789012345678901234567890123456789", 40);
        jw_key(&v, "d");
        jw_double(&v, 1.5);
        return jw_end_all(&v);
}

static void a_full_buffer_sticks(void **state)
{
        _cleanup_buf_ struct buf whole = BUF_MAX(10000);

        assert_int_equal(sample(&whole), 0);
        for (size_t max = 0; max < whole.len; max++) {
                _cleanup_buf_ struct buf b = BUF_MAX(max);

                assert_int_equal(sample(&b), -ENOBUFS);
                /* Nothing is written behind the first piece that did not fit. */
                assert_true(str_starts(buf_str(&whole), buf_str(&b)));
        }
        _cleanup_buf_ struct buf exact = BUF_MAX(whole.len);
        assert_int_equal(sample(&exact), 0);
}

static void torture(void **state)
{
        _cleanup_buf_ struct buf whole = BUF_MAX(10000);
        unsigned n = 0;
        int r;

        assert_int_equal(sample(&whole), 0);
        do {
                _cleanup_buf_ struct buf b = BUF_MAX(10000);

                mem_fail_after(++n);
                r = sample(&b);
                mem_fail_after(0);
                assert_true(r == 0 || r == -ENOMEM);
                assert_true(str_starts(buf_str(&whole), buf_str(&b)));
        } while (r < 0);
        assert_true(n > 2);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(nesting_and_commas),
                T(end_all_closes),
                T(scalars_at_the_top),
                T(escaping),
                T(keys_are_escaped_too),
                T(invalid_utf8_is_replaced),
                T(every_byte_pair_parses),
                T(doubles),
                T(doubles_read_back),
                T(trees_and_base64),
                T(misuse_is_an_error_that_sticks),
                T(depth),
                T(mixed_levels),
                T(a_full_buffer_sticks),
                T(torture),
        };
#undef T

        return cmocka_run_group_tests(tests, NULL, NULL);
}
