#include "adapter/era.h"
#include "adapter/reminder.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define VERSION "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define CAPS "\"io.modelcontextprotocol/clientCapabilities\":"
#define INFO "\"io.modelcontextprotocol/clientInfo\":"
#define OURS INFO "{\"name\":\"parallelsandbox-mcp\",\"version\":\"" PSBX_VERSION "\"}"

static void params(void **state)
{
        static const struct {
                const char *in, *older, *newer;
        } rows[] = {
                { "{}", "{}", "{\"_meta\":{" VERSION "," CAPS "{}," OURS "}}" },
                { "{\"a\":1.50,\"_meta\":{\"x\":[1]}}", "{\"a\":1.50,\"_meta\":{\"x\":[1]}}",
                  "{\"a\":1.50,\"_meta\":{\"x\":[1]," VERSION "," CAPS "{}," OURS "}}" },
                { "{\"_meta\":{" VERSION "," CAPS "{\"e\":{}}," INFO "{\"name\":\"h\"},\"progressToken\":3},\"a\":2}",
                  "{\"a\":2,\"_meta\":{\"progressToken\":3}}",
                  "{\"a\":2,\"_meta\":{\"progressToken\":3," VERSION "," CAPS "{\"e\":{}}," INFO "{\"name\":\"h\"}}}" },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_buf_ struct buf older = BUF_MAX(4096), newer = BUF_MAX(4096);

                assert_int_equal(era_params(&older, str_of(rows[i].in), false), 0);
                assert_string_equal(buf_cstr(&older), rows[i].older);
                assert_int_equal(era_params(&newer, str_of(rows[i].in), true), 0);
                assert_string_equal(buf_cstr(&newer), rows[i].newer);
        }
}

static void results(void **state)
{
        _cleanup_buf_ struct buf a = BUF_MAX(4096), b = BUF_MAX(4096), c = BUF_MAX(4096);

        assert_int_equal(era_result(&a, STR("{\"content\":[]}"), false), 0);
        assert_string_equal(buf_cstr(&a),
                            "{\"resultType\":\"complete\",\"content\":[],\"_meta\":{"
                            "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"parallelsandbox\",\"title\":"
                            "\"ParallelSandbox\",\"version\":\"" PSBX_VERSION "\"}}}");
        assert_int_equal(era_result(&b,
                                    STR("{\"resultType\":\"input_required\",\"_meta\":{\"io.modelcontextprotocol/"
                                        "serverInfo\":{\"name\":\"s\"},\"k\":1}}"),
                                    false),
                         0);
        assert_string_equal(buf_cstr(&b), "{\"resultType\":\"input_required\",\"_meta\":{\"io.modelcontextprotocol/"
                                          "serverInfo\":{\"name\":\"s\"},\"k\":1}}");
        assert_int_equal(era_result(&c, STR("{\"tools\":[],\"ttlMs\":5}"), true), 0);
        assert_true(str_has(buf_str(&c), STR("\"ttlMs\":5,\"cacheScope\":\"private\"")));
}

static void header_values(void **state)
{
        static const struct {
                const char *in, *want;
        } rows[] = { { "sandbox_exec", "sandbox_exec" },
                     { "a b", "a b" },
                     { " a", "=?base64?IGE=?=" },
                     { "ä", "=?base64?w6Q=?=" },
                     { "", "=?base64?"
                           "?=" },
                     { "a\nb", "=?base64?YQpi?=" },
                     { "=?base64?x", "=?base64?PT9iYXNlNjQ/eA==?=" } };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(256);

                assert_int_equal(era_header_value(&b, str_of(rows[i].in)), 0);
                assert_string_equal(buf_cstr(&b), rows[i].want);
        }
}

static void reminders(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096), c = BUF_MAX(4096);
        struct reminders r;

        reminders_init(&r);
        reminders_set(&r, "box", "a", true);
        reminders_set(&r, "box", "b", true);
        reminders_set(&r, "box", "a", true);
        reminders_set(&r, "box", "b", false);
        assert_false(reminders_add(&r, "other", STR("{\"content\":[]}"), &b));
        assert_false(reminders_add(&r, "box", STR("{\"text\":1}"), &b));
        assert_true(reminders_add(&r, "box", STR("{\"content\":[ {\"type\":\"text\"} ],\"isError\":false}"), &b));
        assert_true(str_starts(buf_str(&b), STR("{\"content\":[{\"type\":\"text\"},{\"type\":\"text\",\"text\":\"")));
        assert_true(str_ends(buf_str(&b), STR("],\"isError\":false}")));
        assert_true(str_has(buf_str(&b), STR("NOT SYNCED: a)")));
        assert_false(reminders_add(&r, "box", STR("{\"content\":[]}"), &c));
        for (int i = 0; i < 100; i++) { /* bounded */
                char name[2] = { (char) ('!' + i % 90), 0 };

                reminders_set(&r, name, "x", true);
        }
        assert_int_equal(r.n, 32);
        for (int i = 0; i < 90; i++) {
                char name[2] = { (char) ('!' + i), 0 };

                reminders_set(&r, name, "x", false);
        }
        assert_int_equal(r.n, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(params),
                cmocka_unit_test(results),
                cmocka_unit_test(header_values),
                cmocka_unit_test(reminders),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
