#include "adapter/rawjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void is(struct str obj, const char *key, const char *want)
{
        struct str v;

        if (!raw_get(obj, key, &v)) {
                assert_null(want);
                return;
        }
        assert_non_null(want);
        assert_true(str_eq(v, str_of(want)));
}

static void members(void **state)
{
        struct str o = STR(" { \"id\" : \"a\\\"}{\" , \"n\":-1.50e3,\n\"o\":{\"id\":1,\"x\":[\"]\",{}]}, \"t\":true "
                           ",\"z\":null, \"e\":\"\", \"\\u006bey\":[ 1 ] } ");

        is(o, "id", "\"a\\\"}{\"");
        is(o, "n", "-1.50e3");
        is(o, "o", "{\"id\":1,\"x\":[\"]\",{}]}");
        is(o, "t", "true");
        is(o, "z", "null");
        is(o, "e", "\"\"");
        is(o, "key", "[ 1 ]"); /* written with an escape */
        is(o, "x", NULL);
        is(STR("[]"), "x", NULL);
        is(STR("{}"), "x", NULL);
        is(STR("3"), "x", NULL);
}

static void lines(void **state)
{
        struct buf b = BUF_MAX(100);

        assert_int_equal(raw_add_line(&b, STR("{\r\n \"a\": 1\n}")), 0);
        assert_string_equal(buf_cstr(&b), "{   \"a\": 1 }");
        buf_done(&b);
        assert_true(str_eq(raw_array_inside(STR(" [ 1, 2 ] ")), STR("1, 2")));
        assert_int_equal(raw_array_inside(STR("[]")).n, 0);
        assert_int_equal(raw_array_inside(STR("{}")).n, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(members), cmocka_unit_test(lines) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
