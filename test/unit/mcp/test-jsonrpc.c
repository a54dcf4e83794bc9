#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mcp/jsonrpc.h"

#include <stdlib.h>

#define V "\"jsonrpc\":\"2.0\","

static void test_valid(void **state)
{
        static const struct {
                const char *text;
                enum rpc_kind kind;
                const char *id;
        } rows[] = {
                { "{" V "\"id\":0,\"method\":\"ping\"}", RPC_REQUEST, "0" },
                { "{" V "\"id\":-7,\"method\":\"ping\"}", RPC_REQUEST, "-7" },
                { "{" V "\"id\":9007199254740991,\"method\":\"ping\"}", RPC_REQUEST, "9007199254740991" },
                { "{" V "\"id\":9223372036854775807,\"method\":\"ping\"}", RPC_REQUEST, "9223372036854775807" },
                { "{" V "\"id\":-9223372036854775808,\"method\":\"ping\"}", RPC_REQUEST, "-9223372036854775808" },
                { "{" V "\"id\":123456789012345678901234567890,\"method\":\"ping\"}", RPC_REQUEST,
                  "123456789012345678901234567890" },
                { "{" V "\"id\":5.0,\"method\":\"ping\"}", RPC_REQUEST, "5" },
                { "{" V "\"id\":\"\",\"method\":\"ping\"}", RPC_REQUEST, "\"\"" },
                { "{" V "\"id\":\" \",\"method\":\"ping\"}", RPC_REQUEST, "\" \"" },
                { "{" V "\"id\":\"5\",\"method\":\"ping\"}", RPC_REQUEST, "\"5\"" },
                { "{" V "\"id\":\"sp\xc3\xa9\xf0\x9f\x98\x80\",\"method\":\"ping\"}", RPC_REQUEST,
                  "\"sp\xc3\xa9\xf0\x9f\x98\x80\"" },
                { "{" V "\"id\":1,\"method\":\"ping\",\"params\":{}}", RPC_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"ping\",\"params\":null}", RPC_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"\",\"more\":[1]}", RPC_REQUEST, "1" },
                { " {" V "\"method\":\"notifications/initialized\"} ", RPC_NOTIFICATION, NULL },
                { "{" V "\"id\":1,\"result\":{}}", RPC_RESPONSE, "1" },
                { "{" V "\"id\":1,\"error\":{\"code\":-1,\"message\":\"m\"}}", RPC_RESPONSE, "1" },
                { "{" V "\"id\":null,\"error\":{\"code\":-1,\"message\":\"m\"}}", RPC_RESPONSE, NULL },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_rpc_ struct rpc m = { 0 };
                struct err e = { 0 };

                if (rpc_parse(rows[i].text, strlen(rows[i].text), &m, &e) < 0)
                        fail_msg("%s: %d %s", rows[i].text, e.code, e.msg);
                assert_int_equal(m.kind, rows[i].kind);
                if (!cstr_eq(m.id, rows[i].id))
                        fail_msg("%s: id %s", rows[i].text, m.id);
        }
}

static void test_invalid(void **state)
{
        static const struct {
                const char *text;
                int code;
                const char *id;
        } rows[] = {
                { "", RPC_PARSE_ERROR, NULL },
                { "{", RPC_PARSE_ERROR, NULL },
                { "{" V "\"id\":5,", RPC_PARSE_ERROR, NULL },
                { "{" V "\"id\":1,\"method\":\"ping\"}{}", RPC_PARSE_ERROR, NULL },
                { "{" V "\"id\":1,\"id\":2,\"method\":\"ping\"}", RPC_PARSE_ERROR, NULL },
                { "{" V "\"id\":1,\"method\":\"\xff\"}", RPC_PARSE_ERROR, NULL },
                { "null", RPC_INVALID_REQUEST, NULL },
                { "5", RPC_INVALID_REQUEST, NULL },
                { "[]", RPC_INVALID_REQUEST, NULL },
                { "[{" V "\"id\":1,\"method\":\"ping\"}]", RPC_INVALID_REQUEST, NULL },
                { "{}", RPC_INVALID_REQUEST, NULL },
                { "{\"id\":6,\"method\":\"ping\"}", RPC_INVALID_REQUEST, "6" },
                { "{\"jsonrpc\":2.0,\"id\":6,\"method\":\"ping\"}", RPC_INVALID_REQUEST, "6" },
                { "{\"jsonrpc\":\"1.0\",\"id\":6,\"method\":\"ping\"}", RPC_INVALID_REQUEST, "6" },
                { "{" V "\"id\":null,\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1.5,\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1e3,\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":true,\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":[1],\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":{},\"method\":\"ping\"}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1,\"method\":5}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":null}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"pi\\u0000ng\"}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"ping\",\"params\":[]}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"ping\",\"params\":\"x\"}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"id\":1,\"method\":\"ping\",\"result\":{}}", RPC_INVALID_REQUEST, "1" },
                { "{" V "\"method\":\"notifications/x\",\"params\":3}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1,\"result\":{},\"error\":{}}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":1,\"error\":5}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"result\":{}}", RPC_INVALID_REQUEST, NULL },
                { "{" V "\"id\":null,\"result\":{}}", RPC_INVALID_REQUEST, NULL },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_rpc_ struct rpc m = { 0 };
                struct err e = { 0 };

                if (rpc_parse(rows[i].text, strlen(rows[i].text), &m, &e) == 0)
                        fail_msg("%s was accepted", rows[i].text);
                if (e.code != rows[i].code || !e.msg[0] || !cstr_eq(m.id, rows[i].id))
                        fail_msg("%s: %d %s, id %s", rows[i].text, e.code, e.msg, m.id ? m.id : "none");
        }
}

static void test_id_limit(void **state)
{
        char text[RPC_ID_MAX + 100];

        for (size_t n = RPC_ID_MAX - 3; n <= RPC_ID_MAX + 1; n++) {
                struct json *j = json_new_strn(str_n(memset(text, 'x', n), n));
                _cleanup_free_ char *id = rpc_id_text(j);

                assert_int_equal(id != NULL, n + 2 <= RPC_ID_MAX);
                json_unref(j);
        }
}

static void test_bodies(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1000);

        assert_int_equal(rpc_error_body(&b, NULL, RPC_PARSE_ERROR, "say \"x\""), 0);
        assert_string_equal(
                buf_cstr(&b),
                "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"say \\\"x\\\"\"}}");
        buf_clear(&b);
        assert_int_equal(rpc_result_body(&b, "\"a\"", STR("{}")), 0);
        assert_string_equal(buf_cstr(&b), "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_valid),
                cmocka_unit_test(test_invalid),
                cmocka_unit_test(test_id_limit),
                cmocka_unit_test(test_bodies),
        };

        return cmocka_run_group_tests_name("mcp-jsonrpc", tests, NULL, NULL);
}
