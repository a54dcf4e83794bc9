#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct json *parse(const char *s)
{
        struct json *j = NULL;
        struct err e = { 0 };

        if (json_parse(s, strlen(s), &j, &e) < 0)
                fail_msg("%s: %s", s, err_text(&e));
        return j;
}

static void same_text(const char *in, const char *out)
{
        _cleanup_json_ struct json *j = parse(in);
        _cleanup_free_ char *text = json_text(j);

        assert_string_equal(text, out);
}

static void text_comes_back_compact(void **state)
{
        same_text(" { \"a\" : [ 1 , 2.50 , -3e2, \"x\" , true , false , null , { } , [ ] ] }\r\n\t",
                  "{\"a\":[1,2.50,-3e2,\"x\",true,false,null,{},[]]}");
        same_text("null", "null");
        same_text(" true ", "true");
        same_text("0", "0");
        same_text("-0", "0");
        same_text("-0.0", "-0.0");
        same_text("7 ", "7");
        same_text("\"\"", "\"\"");
        same_text("{\"b\":1,\"a\":2,\"\":3}", "{\"b\":1,\"a\":2,\"\":3}");
        same_text("\"a/b \\/ \\u002f\"", "\"a/b / /\"");
        same_text("\"\\b\\f\\n\\r\\t\\u0001\\u001f\\\"\\\\\"", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\\"\\\\\"");
        same_text("\"\x7f caf\\u00e9 \\ud83d\\ude00 \\u20ac\"", "\"\x7f caf\xc3\xa9 \xf0\x9f\x98\x80 \xe2\x82\xac\"");
        same_text("\"\xf4\x8f\xbf\xbf\"", "\"\xf4\x8f\xbf\xbf\"");
        same_text("\"a\\u0000b\"", "\"a\\u0000b\"");
}

static void types(void **state)
{
        _cleanup_json_ struct json *j = parse("[null,true,1,1.0,\"s\",[],{}]");
        static const enum json_type want[] = { JSON_NULL,   JSON_BOOL,  JSON_INT,   JSON_DOUBLE,
                                               JSON_STRING, JSON_ARRAY, JSON_OBJECT };
        static const char *const names[] = { "null", "boolean", "integer", "number", "string", "array", "object" };

        assert_int_equal(json_len(j), ARRAY_LEN(want));
        for (size_t i = 0; i < ARRAY_LEN(want); i++) {
                assert_int_equal(json_type(json_at(j, i)), want[i]);
                assert_string_equal(json_type_name(json_at(j, i)), names[i]);
        }
        assert_null(json_at(j, 7));
        assert_null(json_at(json_at(j, 6), 0));
        assert_int_equal(json_type(NULL), JSON_NULL);
        assert_int_equal(json_len(json_at(j, 4)), 0);
        assert_int_equal(json_len(NULL), 0);
}

static void members(void **state)
{
        _cleanup_json_ struct json *j = parse("{\"a\":1,\"n\":null,\"o\":{\"x\":\"y\"}}");

        assert_int_equal(json_len(j), 3);
        assert_int_equal(json_int(json_get(j, "a")), 1);
        assert_null(json_get(j, "n"));
        assert_true(json_has(j, "n"));
        assert_null(json_get(j, "zz"));
        assert_false(json_has(j, "zz"));
        assert_string_equal(json_str(json_get(json_get(j, "o"), "x")), "y");
        assert_null(json_get(json_get(j, "a"), "x"));
        assert_null(json_get(NULL, "x"));
        assert_false(json_has(NULL, "x"));
}

static void values_of_the_wrong_type(void **state)
{
        _cleanup_json_ struct json *j = parse("[\"5\",5,true,5.5,[],{}]");

        for (size_t i = 0; i < json_len(j); i++) {
                const struct json *v = json_at(j, i);

                assert_int_equal(json_str(v) != NULL, i == 0);
                assert_int_equal(json_strn(v).p != NULL, i == 0);
                assert_int_equal(json_int(v), i == 1 ? 5 : 0);
                assert_int_equal(json_bool(v), i == 2);
                assert_true(json_double(v) == (i == 1 ? 5 : i == 3 ? 5.5 : 0));
        }
        assert_null(json_str(NULL));
        assert_int_equal(json_int(NULL), 0);
        assert_false(json_bool(NULL));
}

static void strings_may_hold_nul(void **state)
{
        _cleanup_json_ struct json *j = parse("\"a\\u0000b\"");

        assert_true(str_eq(json_strn(j), STR("a\0b")));
        assert_string_equal(json_str(j), "a");
}

static int64_t as_int(const char *s)
{
        _cleanup_json_ struct json *j = parse(s);

        return json_int(j);
}

static double as_double(const char *s)
{
        _cleanup_json_ struct json *j = parse(s);

        return json_double(j);
}

static void integers(void **state)
{
        assert_true(as_int("9223372036854775807") == INT64_MAX);
        assert_true(as_int("-9223372036854775808") == INT64_MIN);
        assert_true(as_int("5.0") == 5);
        assert_true(as_int("-1e3") == -1000);
        assert_true(as_int("5.5") == 0);
        assert_true(as_int("9.2e18") == 9200000000000000000);
        assert_true(as_int("9223372036854775808.0") == 0);
        assert_true(as_int("-9223372036854775808.0") == INT64_MIN);
        assert_true(as_int("1e300") == 0);
}

static void integers_beyond_64_bits_become_doubles(void **state)
{
        static const char *const wide[] = { "9223372036854775808", "-9223372036854775809", "18446744073709551615",
                                            "18446744073709551616", "123456789012345678901234567890" };

        for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
                _cleanup_json_ struct json *j = parse(wide[i]);

                assert_int_equal(json_type(j), JSON_DOUBLE);
                assert_true(json_double(j) == strtod(wide[i], NULL));
        }
        same_text("[9223372036854775807,-9223372036854775808]", "[9223372036854775807,-9223372036854775808]");
        same_text("[1, 99999999999999999999 ,{\"a\":-99999999999999999999},9223372036854775808]",
                  "[1,99999999999999999999.0,{\"a\":-99999999999999999999.0},9223372036854775808.0]");
        same_text("99999999999999999999.0", "99999999999999999999.0");
        same_text("\"99999999999999999999\"", "\"99999999999999999999\"");
}

static void doubles(void **state)
{
        assert_true(as_double("0.1") == 0.1);
        assert_true(as_double("-1.5E+2") == -150);
        assert_true(as_double("1e-2") == 0.01);
        assert_true(as_double("7") == 7);
        assert_true(as_double("1.7976931348623157e308") == 1.7976931348623157e308);
        assert_true(as_double("1e-999") == 0);
        assert_true(
                isfinite(as_double("1000000000000000000000000000000000000000000000000000000000000000000000000000")));
}

static void defaults(void **state)
{
        _cleanup_json_ struct json *j = parse("{\"s\":\"v\",\"i\":5,\"d\":6.0,\"h\":6.5,\"b\":true,\"n\":null}");

        assert_string_equal(json_get_str(j, "s", "def"), "v");
        assert_string_equal(json_get_str(j, "i", "def"), "def");
        assert_string_equal(json_get_str(j, "zz", "def"), "def");
        assert_null(json_get_str(j, "n", NULL));
        assert_int_equal(json_get_int(j, "i", 9), 5);
        assert_int_equal(json_get_int(j, "d", 9), 6);
        assert_int_equal(json_get_int(j, "h", 9), 9);
        assert_int_equal(json_get_int(j, "s", 9), 9);
        assert_int_equal(json_get_int(j, "zz", 9), 9);
        assert_true(json_get_bool(j, "b", false));
        assert_true(json_get_bool(j, "i", true));
        assert_false(json_get_bool(j, "i", false));
        assert_true(json_get_bool(j, "n", true));
        assert_string_equal(json_get_str(NULL, "s", "def"), "def");
}

static void required_members(void **state)
{
        _cleanup_json_ struct json *j = parse("{\"s\":\"v\",\"i\":5,\"h\":6.5,\"n\":null,\"a\":[]}");
        struct err e = { 0 };
        const char *s = "unset";
        int64_t v = 42;

        assert_int_equal(json_need_str(j, "zz", &s, &e), -EINVAL);
        assert_string_equal(e.msg, "`zz` is required: a string");
        assert_int_equal(json_need_str(j, "n", &s, &e), -EINVAL);
        assert_string_equal(e.msg, "`n` is required: a string");
        assert_int_equal(json_need_str(j, "i", &s, &e), -EINVAL);
        assert_string_equal(e.msg, "`i` must be a string, got integer");
        assert_string_equal(s, "unset");
        assert_int_equal(json_need_int(j, "zz", &v, &e), -EINVAL);
        assert_string_equal(e.msg, "`zz` is required: an integer");
        assert_int_equal(json_need_int(j, "h", &v, &e), -EINVAL);
        assert_string_equal(e.msg, "`h` must be an integer, got number");
        assert_int_equal(json_need_int(j, "a", &v, NULL), -EINVAL);
        assert_true(v == 42);
        assert_int_equal(json_need_str(j, "s", &s, &e), 0);
        assert_string_equal(s, "v");
        assert_int_equal(json_need_int(j, "i", &v, &e), 0);
        assert_true(v == 5);
}

static int collect(const char *key, struct json *value, void *arg)
{
        assert_int_equal(buf_addf(arg, "%s=%d;", key, (int) json_int(value)), 0);
        return cstr_eq(key, "stop") ? 9 : 0;
}

static void visiting(void **state)
{
        _cleanup_json_ struct json *j = parse("{\"b\":1,\"a\":2,\"n\":null,\"stop\":3,\"after\":4}");
        _cleanup_json_ struct json *array = parse("[1]");
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        assert_int_equal(json_each(j, collect, &b), 9);
        assert_string_equal(buf_cstr(&b), "b=1;a=2;n=0;stop=3;");
        json_del(j, "stop");
        buf_clear(&b);
        assert_int_equal(json_each(j, collect, &b), 0);
        assert_string_equal(buf_cstr(&b), "b=1;a=2;n=0;after=4;");
        assert_int_equal(json_each(array, collect, &b), 0);
        assert_int_equal(json_each(NULL, collect, &b), 0);
        assert_int_equal(b.len, 20);
}

static void building(void **state)
{
        _cleanup_json_ struct json *o = json_obj();
        struct json *a = json_arr();

        json_push(a, json_new_int(INT64_MIN));
        json_push(a, json_new_strn(STR("x\0y")));
        json_push(a, NULL);
        json_push(a, json_new_strn(str_n(NULL, 0)));
        json_set(o, "a", a);
        json_set(o, "n", NULL);
        json_set_str(o, "s", "v");
        json_set_str(o, "skipped", NULL);
        json_set_int(o, "i", -1);
        json_set_bool(o, "b", false);
        json_set(o, "gone", json_new_bool(true));
        json_del(o, "gone");
        json_del(o, "never");
        json_set_str(o, "s", "replaced");
        _cleanup_free_ char *text = json_text(o);
        assert_string_equal(text, "{\"a\":[-9223372036854775808,\"x\\u0000y\",null,\"\"],\"n\":null,\"s\":\"replaced\","
                                  "\"i\":-1,\"b\":false}");
}

static void building_on_the_wrong_type_drops_the_child(void **state)
{
        _cleanup_json_ struct json *o = json_obj(), *a = json_arr();

        /* The leak checker watches that the child is freed. */
        json_set(a, "k", json_new_str("x"));
        json_set(NULL, "k", json_new_str("x"));
        json_push(o, json_new_str("x"));
        json_push(NULL, json_new_str("x"));
        json_del(a, "k");
        assert_int_equal(json_len(a), 0);
        assert_int_equal(json_len(o), 0);
}

static void references(void **state)
{
        struct json *o = json_obj(), *s = json_new_str("shared");

        json_set(o, "s", json_ref(s));
        json_unref(o);
        assert_string_equal(json_str(s), "shared");
        json_unref(s);
        assert_null(json_ref(NULL));
        json_unref(NULL);
}

static void printing_is_bounded(void **state)
{
        static const char text[] = "{\"a\":[1,2,\"three\"],\"b\":null}";
        _cleanup_json_ struct json *j = parse(text);

        for (size_t max = 0; max < sizeof text - 1; max++) {
                _cleanup_buf_ struct buf b = BUF_MAX(max);

                assert_int_equal(json_print(j, &b), -ENOBUFS);
                assert_true(b.len <= max);
        }
        _cleanup_buf_ struct buf b = BUF_MAX(sizeof text - 1);
        assert_int_equal(json_print(j, &b), 0);
        assert_string_equal(buf_cstr(&b), text);
        mem_fail_after(1);
        assert_null(json_text(j));
}

static void a_tree_too_deep_to_read_is_not_printed(void **state)
{
        _cleanup_json_ struct json *j = json_arr();
        _cleanup_buf_ struct buf b = BUF_MAX(10000);

        for (int i = 1; i < JSON_DEPTH_MAX; i++) {
                struct json *outer = json_arr();

                json_push(outer, j);
                j = outer;
        }
        assert_int_equal(json_print(j, &b), 0);
        assert_int_equal(b.len, 2 * JSON_DEPTH_MAX);
        struct json *outer = json_obj();
        json_set(outer, "k", j);
        j = outer;
        assert_int_equal(json_print(j, &b), -EINVAL);
        assert_null(json_text(j));
}

/* Whichever allocation of the scan fails: -ENOMEM, no tree, no leak. */
static void torture(void **state)
{
        _cleanup_buf_ struct buf text = BUF_MAX(100000);
        unsigned n = 0;
        int r;

        assert_int_equal(buf_addc(&text, '{'), 0);
        for (int i = 0; i < 200; i++)
                assert_int_equal(buf_addf(&text, "\"\\u00e9%d\":{\"k\":[99999999999999999999,1e3]},", i), 0);
        assert_int_equal(buf_adds(&text, "\"z\":1}"), 0);
        do {
                struct json *j = NULL;

                mem_fail_after(++n);
                r = json_parse(text.p, text.len, &j, NULL);
                mem_fail_after(0);
                assert_true(r == 0 || r == -ENOMEM);
                assert_int_equal(j != NULL, r == 0);
                json_unref(j);
        } while (r < 0);
        assert_true(n > 200);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(text_comes_back_compact),
                cmocka_unit_test(types),
                cmocka_unit_test(members),
                cmocka_unit_test(values_of_the_wrong_type),
                cmocka_unit_test(strings_may_hold_nul),
                cmocka_unit_test(integers),
                cmocka_unit_test(integers_beyond_64_bits_become_doubles),
                cmocka_unit_test(doubles),
                cmocka_unit_test(defaults),
                cmocka_unit_test(required_members),
                cmocka_unit_test(visiting),
                cmocka_unit_test(building),
                cmocka_unit_test(building_on_the_wrong_type_drops_the_child),
                cmocka_unit_test(references),
                cmocka_unit_test(printing_is_bounded),
                cmocka_unit_test(a_tree_too_deep_to_read_is_not_printed),
                cmocka_unit_test(torture),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
