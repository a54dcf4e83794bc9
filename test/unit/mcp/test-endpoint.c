/* The endpoint: transport rules, life cycle, sessions, lists (reference §1.2, §1.3, §1.4 and the legacy column of
 * §1.8). */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

#define JSON_TYPE "Content-Type: application/json\r\n"
#define PING "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"

static void test_transport(struct toy *t, unsigned port)
{
        static const struct {
                const char *method, *headers, *body;
                unsigned status;
                int64_t code;
        } rows[] = {
                { "POST", JSON_TYPE, PING, 200, 0 },
                { "POST", "Content-Type: application/json; charset=utf-8\r\n", PING, 200, 0 },
                { "POST", "Content-Type: APPLICATION/JSON\r\n", PING, 200, 0 },
                { "POST", "", PING, 415, -32600 },
                { "POST", "Content-Type: text/plain\r\n", PING, 415, -32600 },
                { "POST", "Content-Type: application/jsonp\r\n", PING, 415, -32600 },
                { "POST", JSON_TYPE "Accept: application/json, text/event-stream\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "Accept: text/event-stream, application/json\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "Accept: */*\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "Accept: application/json;q=0.9\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "Accept: text/event-stream\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "Accept: text/html\r\n", PING, 406, -32600 },
                { "POST", JSON_TYPE "MCP-Protocol-Version: 2025-11-25\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "MCP-Protocol-Version: 2025-06-18\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "MCP-Protocol-Version: 2025-03-26\r\n", PING, 200, 0 },
                { "POST", JSON_TYPE "MCP-Protocol-Version: 1999-01-01\r\n", PING, 400, -32600 },
                { "POST", JSON_TYPE "MCP-Protocol-Version: 2026-07-28\r\n", PING, 400, -32602 },
                { "POST", JSON_TYPE "MCP-Protocol-Version:\r\n", PING, 400, -32600 },
                { "POST", JSON_TYPE "Mcp-Session-Id: deadbeef-dead-beef-dead-beefdeadbeef\r\n", PING, 404, -32001 },
                { "POST", JSON_TYPE "Mcp-Session-Id: x\r\n", PING, 404, -32001 },
                { "POST", JSON_TYPE "Mcp-Session-Id:\r\n", PING, 404, -32001 },
                { "POST", JSON_TYPE "Mcp-Session-Id: 0123456789012345678901234567890123456789012345\r\n", PING, 404,
                  -32001 },
                { "POST", JSON_TYPE, "", 400, -32700 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":5,", 400, -32700 },
                { "POST", JSON_TYPE, "[" PING "," PING "]", 400, -32600 },
                { "POST", JSON_TYPE, "{\"id\":6,\"method\":\"ping\"}", 400, -32600 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", 400, -32600 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}", 200, -32601 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}", 200, -32601 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", 202, 0 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/never-heard-of\"}", 202, 0 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}", 202, 0 },
                { "POST", JSON_TYPE, "{\"jsonrpc\":\"2.0\",\"id\":99,\"error\":{\"code\":1,\"message\":\"m\"}}", 202,
                  0 },
                { "POST", JSON_TYPE,
                  "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{\"_meta\":{"
                  "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}",
                  400, -32602 },
                { "PUT", JSON_TYPE, PING, 405, -32600 },
                { "PATCH", JSON_TYPE, PING, 405, -32600 },
                { "OPTIONS", "Origin: http://evil.example\r\n", NULL, 405, -32600 },
                { "GET", "Accept: application/json\r\n", NULL, 406, -32600 },
                { "GET", "Accept: */*\r\n", NULL, 406, -32600 },
                { "GET", "", NULL, 406, -32600 },
                { "GET", "Accept: text/event-stream\r\nMcp-Session-Id: x\r\n", NULL, 404, -32001 },
                { "GET", "Accept: text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n", NULL, 400, -32600 },
                { "DELETE", "", NULL, 400, -32600 },
                { "DELETE", "Mcp-Session-Id: nope\r\n", NULL, 404, -32001 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct answer a = ask(port, rows[i].method, rows[i].headers, rows[i].body);

                if (a.status != rows[i].status || error_code(&a) != rows[i].code)
                        (void) fprintf(stderr, "%s %s%s: %u %s\n", rows[i].method, rows[i].headers,
                                       rows[i].body ? rows[i].body : "", a.status, buf_cstr(&a.body));
                CHECK(a.status == rows[i].status && error_code(&a) == rows[i].code);
                CHECK(a.status != 202 || a.body.len == 0);
                CHECK(a.status != 405 || answer_header(&a, "allow: GET, POST, DELETE"));
                CHECK(!answer_header(&a, "access-control-allow-origin: *"));
                answer_done(&a);
        }
}

static void test_too_large(struct toy *t, unsigned port)
{
        size_t n = (4u << 20) + 1;
        char *body = xmalloc(n + 1);
        _cleanup_free_ char *fits = NULL;
        struct answer a;

        memset(body, ' ', n);
        body[n] = '\0';
        expect(post(port, "", body), 413, -32600);
        memcpy(body, PING, sizeof(PING) - 1);
        body[4u << 20] = '\0';
        a = post(port, "", body);
        CHECK(a.status == 200);
        answer_done(&a);
        /* Depth has its own limit. */
        memset(body, '[', 100);
        body[100] = '\0';
        fits = xasprintf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":%s", body);
        expect(post(port, "", fits), 400, -32700);
        free(body);
}

static void test_initialize(struct toy *t, unsigned port)
{
        static const char *const rows[][2] = {
                { "2025-11-25", "2025-11-25" }, { "2025-06-18", "2025-06-18" }, { "2025-03-26", "2025-03-26" },
                { "2024-11-05", "2025-11-25" }, { "1999-01-01", "2025-11-25" }, { "2026-07-28", "2025-11-25" },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *params =
                        xasprintf("{\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":"
                                  "{\"name\":\"c\",\"version\":\"1\"}}",
                                  rows[i][0]);
                _cleanup_free_ char *body = rpc("\"init-1\"", "initialize", params);
                /* A session that ended does not keep anyone from a new one. */
                struct answer a = post(port, "Mcp-Session-Id: ended\r\n", body);
                const struct json *r = json_get(a.json, "result");

                CHECK(a.status == 200);
                CHECK(cstr_eq(json_get_str(a.json, "id", ""), "init-1"));
                CHECK(cstr_eq(json_get_str(r, "protocolVersion", ""), rows[i][1]));
                CHECK(cstr_eq(json_get_str(json_get(r, "serverInfo"), "name", ""), "toy"));
                CHECK(cstr_eq(json_get_str(json_get(r, "serverInfo"), "version", ""), "1.0"));
                CHECK(cstr_eq(json_get_str(r, "instructions", ""), "Call echo."));
                CHECK(json_get_bool(json_get(json_get(r, "capabilities"), "tools"), "listChanged", false));
                CHECK(json_get(json_get(r, "capabilities"), "logging"));
                answer_done(&a);
        }
        CHECK(t->sessions_opened == ARRAY_LEN(rows));
        {
                _cleanup_free_ char *body = rpc("1", "initialize", "{}");

                expect(post(port, "", body), 200, -32602);
        }
}

static void test_methods(struct toy *t, unsigned port)
{
        static const struct {
                const char *id, *method, *params;
                int64_t code;
        } rows[] = {
                { "0", "ping", NULL, 0 },
                { "-1", "ping", "{}", 0 },
                { "9007199254740991", "ping", NULL, 0 },
                { "123456789012345678901234567890", "ping", NULL, 0 },
                { "\"\"", "ping", NULL, 0 },
                { "\"\xc3\xa9\xf0\x9f\x98\x80\"", "ping", NULL, 0 },
                { "1", "tools/list", NULL, 0 },
                { "1", "tools/list", "{\"cursor\":null}", 0 },
                { "1", "tools/list", "{\"cursor\":\"not-a-cursor\"}", -32602 },
                { "1", "tools/call", NULL, -32602 },
                { "1", "tools/call", "{}", -32602 },
                { "1", "tools/call", "{\"name\":5}", -32602 },
                { "1", "tools/call", "{\"name\":\"no_such_tool__\",\"arguments\":{}}", -32602 },
                { "1", "tools/call", "{\"name\":\"echo\",\"arguments\":[]}", -32602 },
                { "1", "tools/call", "{\"name\":\"echo\",\"_meta\":{\"progressToken\":[]}}", -32602 },
                { "1", "tools/call", "{\"name\":\"echo\",\"_meta\":{\"progressToken\":0}}", 0 },
                { "1", "logging/setLevel", "{\"level\":\"warning\"}", 0 },
                { "1", "logging/setLevel", "{\"level\":\"loud\"}", -32602 },
                { "1", "logging/setLevel", NULL, -32602 },
                { "1", "resources/list", NULL, -32601 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *body = rpc(rows[i].id, rows[i].method, rows[i].params);
                _cleanup_free_ char *id = xasprintf("\"id\":%s", rows[i].id);
                struct answer a = post(port, "", body);

                if (error_code(&a) != rows[i].code)
                        (void) fprintf(stderr, "%s: %s\n", body, buf_cstr(&a.body));
                CHECK(a.status == 200 && error_code(&a) == rows[i].code);
                CHECK(answer_header(&a, "content-type: application/json"));
                CHECK(strstr(buf_cstr(&a.body), id));
                answer_done(&a);
        }
}

static void test_list(struct toy *t, unsigned port)
{
        _cleanup_free_ char *body = rpc("1", "tools/list", NULL);
        struct answer a = post(port, "", body), b = post(port, "", body);
        const struct json *tools = json_get(json_get(a.json, "result"), "tools");

        CHECK(json_len(tools) == 12);
        CHECK(cstr_eq(json_get_str(json_at(tools, 0), "name", ""), "echo"));
        CHECK(str_eq(buf_str(&a.body), buf_str(&b.body)));
        CHECK(!json_has(json_get(a.json, "result"), "nextCursor"));
        answer_done(&a);
        answer_done(&b);
}

static void test_sessions(struct toy *t, unsigned port)
{
        _cleanup_free_ char *mine = open_session(port, "X-Owner: alice\r\n"), *id = NULL, *stolen = NULL, *ended = NULL;
        struct answer a = post(port, mine, PING);

        CHECK(a.status == 200);
        answer_done(&a);
        /* The id is no credential: of another account it is as unknown as any. */
        id = xstrndup(mine, strcspn(mine, "\r"));
        stolen = xasprintf("%s\r\nX-Owner: mallory\r\n", id);
        expect(post(port, stolen, PING), 404, -32001);
        expect(ask(port, "DELETE", stolen, NULL), 404, -32001);
        a = ask(port, "DELETE", mine, NULL);
        CHECK(a.status == 204 && a.body.len == 0);
        answer_done(&a);
        expect(post(port, mine, PING), 404, -32001);
        expect(ask(port, "DELETE", mine, NULL), 404, -32001);
        ended = xasprintf("%sAccept: text/event-stream\r\n", mine);
        expect(ask(port, "GET", ended, NULL), 404, -32001);
        /* Without a session everything works. */
        a = post(port, "X-Owner: alice\r\n", PING);
        CHECK(a.status == 200);
        answer_done(&a);
}

static void test_drain(struct toy *t, unsigned port)
{
        _cleanup_free_ char *call = call_of("1", "echo", "{\"text\":\"x\"}", NULL);
        struct answer a;

        mcp_server_drain(t->mcp);
        a = post(port, "", call);
        CHECK(a.status == 503 && answer_header(&a, "retry-after: 5"));
        CHECK(cstr_eq(json_get_str(a.json, "reason", ""), "maintenance"));
        CHECK(json_get_int(a.json, "retryAfterSec", 0) == 5);
        CHECK(json_get_str(a.json, "error", NULL));
        CHECK(t->completed == 0);
        answer_done(&a);
}

int main(void)
{
        static const struct run tests[] = {
                { "transport", test_transport }, { "too large", test_too_large }, { "initialize", test_initialize },
                { "methods", test_methods },     { "list", test_list },           { "sessions", test_sessions },
                { "drain", test_drain },
        };

        return run_all(tests, ARRAY_LEN(tests));
}
