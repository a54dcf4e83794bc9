#include "adapter/call.h"
#include "base/clock.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void params(const char *in, const char *exec_id, bool token, const char *want)
{
        struct buf b = BUF_MAX(4096);

        assert_int_equal(call_params(&b, str_of(in), exec_id, 42, token), 0);
        assert_string_equal(buf_cstr(&b), want);
        buf_done(&b);
}

static void params_are_passed_on(void **state)
{
        params("{\"name\":\"t\",\"arguments\":{\"a\":1.0}}", "", false, "{\"name\":\"t\",\"arguments\":{\"a\":1.0}}");
        params("{\"name\":\"t\",\"_meta\":{\"progressToken\":\"x\",\"k/v\":{}}}", "", true,
               "{\"name\":\"t\",\"_meta\":{\"k/v\":{},\"progressToken\":42}}");
        params("{\"name\":\"t\",\"_meta\":{\"progressToken\":0}}", "", true,
               "{\"name\":\"t\",\"_meta\":{\"progressToken\":42}}");
        params("{\"name\":\"t\",\"_meta\":{\"k\":1}}", "", false, "{\"name\":\"t\",\"_meta\":{\"k\":1}}");
        params("{\"name\":\"t\"}", "", true, "{\"name\":\"t\",\"_meta\":{\"progressToken\":42}}");
        params("{\"name\":\"t\",\"arguments\":{}}", "x-1", false,
               "{\"name\":\"t\",\"arguments\":{\"execId\":\"x-1\"}}");
        params("{\"arguments\":{\"id\":\"b\"},\"name\":\"t\"}", "x-1", false,
               "{\"arguments\":{\"id\":\"b\",\"execId\":\"x-1\"},\"name\":\"t\"}");
}

static void which_may_be_repeated(void **state)
{
        struct json *none = json_obj(), *record = json_obj();

        json_set_str(record, "record", "start");
        assert_true(call_repeatable("sandbox_list", none));
        assert_true(call_repeatable("logs_anything", none));
        assert_true(call_repeatable("sandbox_shot", none));
        assert_false(call_repeatable("sandbox_shot", record));
        assert_false(call_repeatable("sandbox_status", none)); /* it hands over what a person left, once */
        assert_false(call_repeatable("sandbox_exec", none));
        assert_false(call_repeatable("sandbox_listing", none));
        json_unref(none);
        json_unref(record);
}

static void budgets(void **state)
{
        assert_int_equal(config_wait_sec(NULL), 25);
        assert_int_equal(config_wait_sec("60"), 25);
        assert_int_equal(config_wait_sec("1920"), 1800);
        assert_int_equal(config_wait_sec("100.9"), 65);
        assert_int_equal(config_wait_sec("10"), 0);
        assert_int_equal(config_wait_sec("nonsense"), 25);
        assert_int_equal(config_budget_ms(NULL), 45000);
        assert_int_equal(config_budget_ms("10"), 20000);
        assert_int_equal(config_budget_ms("9999"), 180000);
}

static bool row(const char *text, const char *args)
{
        struct json *r = NULL, *a = NULL;
        int64_t since;
        bool hit;

        assert_int_equal(rfc3339_parse(STR("2026-01-02T03:04:10Z"), &since), 0);
        assert_int_equal(json_parse(text, strlen(text), &r, NULL), 0);
        assert_int_equal(json_parse(args, strlen(args), &a, NULL), 0);
        hit = start_is_row(r, a, since);
        json_unref(r);
        json_unref(a);
        return hit;
}

#define ROW(name, goal, at, mine)                                                           \
        "{\"name\":\"" name "\",\"goal\":\"" goal "\",\"createdAt\":\"2026-01-02T03:04:" at \
        "Z\",\"agent\":{\"thisConversation\":" mine "}}"

static void the_box_of_a_lost_start(void **state)
{
        assert_true(row(ROW("n", "g", "12", "true"), "{\"goal\":\"g\",\"name\":\"n\"}"));
        assert_true(row(ROW("n", "g", "12", "true"), "{\"goal\":\"g\"}"));
        assert_false(row(ROW("n", "g", "12", "true"), "{\"goal\":\"other\"}"));
        assert_false(row(ROW("n", "g", "12", "true"), "{\"goal\":\"g\",\"name\":\"m\"}"));
        assert_false(row(ROW("n", "g", "12", "false"), "{\"goal\":\"g\"}"));
        assert_false(row(ROW("n", "g", "01", "true"), "{\"goal\":\"g\"}")); /* older than the call */
        assert_false(row("{}", "{\"goal\":\"g\"}"));
        assert_false(row(ROW("n", "g", "12", "true"), "{}"));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(params_are_passed_on),
                                            cmocka_unit_test(which_may_be_repeated), cmocka_unit_test(budgets),
                                            cmocka_unit_test(the_box_of_a_lost_start) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
