#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools_table.h"

static struct json *parse(const char *text)
{
        struct json *j = NULL;
        struct err e = { 0 };

        if (json_parse(text, strlen(text), &j, &e) < 0)
                fail_msg("%.80s: %s", text, e.msg);
        return j;
}

/* What a build-time script wrote is what the program reads: ids, texts, and schemas that compile and refuse. */
static void test_table(void **state)
{
        for (int i = 0; i < TOOL_COUNT; i++) {
                const struct mcp_tool *t = &tools_table[i];
                _cleanup_json_ struct json *listing = parse(t->listing), *schema = parse(tools_schema[i]),
                                           *bogus = parse("{\"__bogus__\":1}");
                struct err e = { 0 };
                struct schema *s;

                assert_int_equal(t->id, i);
                assert_string_equal(json_str(json_get(listing, "name")), t->name);
                assert_true(strlen(json_str(json_get(listing, "description"))) < 2048);
                assert_true(t->running_ms == 20000);
                s = schema_compile(schema, &e);
                if (!s)
                        fail_msg("%s: %s", t->name, e.msg);
                assert_true(schema_check(s, bogus, &e) < 0);
                schema_free(s);
        }
        assert_true(tools_adapter_only[TOOL_SANDBOX_SYNC] && tools_adapter_only[TOOL_SANDBOX_PULL]);
        assert_false(tools_adapter_only[TOOL_SANDBOX_START]);
}

static void test_arguments(void **state)
{
        static const struct {
                int tool;
                const char *args, *want; /* the start of the message, NULL: valid */
        } rows[] = {
                { TOOL_SANDBOX_START, "{\"goal\":\"g\"}", NULL },
                { TOOL_SANDBOX_START, "{\"goal\":\"g\",\"services\":[{\"name\":\"web\",\"port\":80,\"web\":true}]}",
                  NULL },
                { TOOL_SANDBOX_START, "{\"goal\":\"g\",\"services\":[{\"name\":\"Web\",\"port\":80}]}",
                  "`services[0].name` must be" },
                { TOOL_SANDBOX_START, "{}", "`goal` is required: What the box is for" },
                { TOOL_SANDBOX_START, "{\"goal\":\"g\",\"containers\":true}",
                  "`containers` is not an argument of this tool; it takes" },
                { TOOL_SANDBOX_EXEC, "{\"id\":\"b\",\"cmd\":\"ls\"}", "`note` is required: One sentence" },
                { TOOL_SANDBOX_EXEC,
                  "{\"id\":\"b\",\"cmd\":\"ls\",\"note\":\"n\",\"env\":{\"A\":\"1\"},\"execId\":\"x_1-Y\"}", NULL },
                { TOOL_SANDBOX_EXEC, "{\"id\":\"b\",\"cmd\":\"ls\",\"note\":\"n\",\"execId\":\"a b\"}",
                  "`execId` must be a string" },
                { TOOL_SANDBOX_EXEC, "{\"id\":\"b\",\"cmd\":\"ls\",\"note\":\"n\",\"timeoutSec\":\"abc\"}",
                  "`timeoutSec` must be an integer from 1 to 3600, got \"abc\"" },
                { TOOL_SANDBOX_PROCS, "{\"id\":\"b\",\"action\":\"kill\"}",
                  "`action` must be one of \"list\", \"wait\", \"stop\", \"input\"" },
                { TOOL_SANDBOX_LIST, "{}", NULL },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_json_ struct json *schema = parse(tools_schema[rows[i].tool]), *args = parse(rows[i].args);
                struct schema *s = schema_compile(schema, NULL);
                struct err e = { 0 };
                int r = schema_check(s, args, &e);

                if (rows[i].want ? r == 0 || !str_starts(str_of(e.msg), str_of(rows[i].want)) : r < 0)
                        fail_msg("%s: %d %s", rows[i].args, r, e.msg);
                schema_free(s);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_arguments),
        };

        return cmocka_run_group_tests_name("mcp-tools", tests, NULL, NULL);
}
