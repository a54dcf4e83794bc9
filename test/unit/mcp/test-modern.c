/* Revision 2026-07-28: headers and _meta, statuses and codes, no sessions, subscriptions, cancellation by closing. */
#include "run.h"

#include "loop/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define V "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define CAPS "\"io.modelcontextprotocol/clientCapabilities\":{}"
#define META "\"_meta\":{" V "," CAPS "}"
#define VERSION "MCP-Protocol-Version: 2026-07-28\r\n"
#define BODY(method, more) "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":{" META more "}}"

static void test_statuses(struct toy *t, unsigned port)
{
        static const struct {
                const char *headers, *body;
                unsigned status;
                int64_t code;
        } rows[] = {
                { VERSION "Mcp-Method: tools/list\r\n", BODY("tools/list", ""), 200, 0 },
                { VERSION "mcp-method:   tools/list  \r\n", BODY("tools/list", ""), 200, 0 },
                { VERSION "Mcp-Method: =?base64?dG9vbHMvbGlzdA==?=\r\n", BODY("tools/list", ""), 200, 0 },
                { VERSION "Mcp-Method: server/discover\r\n", BODY("server/discover", ""), 200, 0 },
                { VERSION "Mcp-Method: server/discover\r\nMcp-Session-Id: nobody\r\n", BODY("server/discover", ""), 200,
                  0 },
                { VERSION, BODY("tools/list", ""), 400, -32020 },
                { VERSION "Mcp-Method: ping\r\n", BODY("tools/list", ""), 400, -32020 },
                { VERSION "Mcp-Method: TOOLS/LIST\r\n", BODY("tools/list", ""), 400, -32020 },
                { VERSION "Mcp-Method: =?base64?%%?=\r\n", BODY("tools/list", ""), 400, -32020 },
                { "Mcp-Method: tools/list\r\n", BODY("tools/list", ""), 400, -32020 },
                { "MCP-Protocol-Version: 2025-11-25\r\nMcp-Method: tools/list\r\n", BODY("tools/list", ""), 400,
                  -32020 },
                { VERSION "Mcp-Method: tools/list\r\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", 400,
                  -32602 },
                { VERSION "Mcp-Method: tools/list\r\n",
                  "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{" V "}}}", 400,
                  -32602 },
                { "MCP-Protocol-Version: 1999-01-01\r\nMcp-Method: tools/list\r\n",
                  "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
                  "\"io.modelcontextprotocol/protocolVersion\":\"1999-01-01\"," CAPS "}}}",
                  400, -32022 },
                { VERSION "Mcp-Method: no/such\r\n", BODY("no/such", ""), 404, -32601 },
                { VERSION "Mcp-Method: ping\r\n", BODY("ping", ""), 404, -32601 },
                { VERSION "Mcp-Method: initialize\r\n", BODY("initialize", ""), 404, -32601 },
                { VERSION "Mcp-Method: logging/setLevel\r\n", BODY("logging/setLevel", ""), 404, -32601 },
                { VERSION "Mcp-Method: tools/list\r\n", BODY("tools/list", ",\"cursor\":\"x\""), 200, -32602 },
                { VERSION "Mcp-Method: tools/call\r\nMcp-Name: echo\r\n",
                  BODY("tools/call", ",\"name\":\"echo\",\"arguments\":{\"text\":\"a\"}"), 200, 0 },
                { VERSION "Mcp-Method: tools/call\r\n",
                  BODY("tools/call", ",\"name\":\"echo\",\"arguments\":{\"text\":\"a\"}"), 400, -32020 },
                { VERSION "Mcp-Method: tools/call\r\nMcp-Name: slow\r\n",
                  BODY("tools/call", ",\"name\":\"echo\",\"arguments\":{\"text\":\"a\"}"), 400, -32020 },
                { VERSION "Mcp-Method: tools/call\r\nMcp-Name: nope\r\n", BODY("tools/call", ",\"name\":\"nope\""), 200,
                  -32602 },
                { VERSION "Mcp-Method: notifications/x\r\n",
                  "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{" META "}}", 202, 0 },
                { VERSION "Mcp-Method: subscriptions/listen\r\n", BODY("subscriptions/listen", ""), 400, -32602 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct answer a = post(port, rows[i].headers, rows[i].body);

                if (a.status != rows[i].status || error_code(&a) != rows[i].code)
                        (void) fprintf(stderr, "%s%s: %u %s\n", rows[i].headers, rows[i].body, a.status,
                                       buf_cstr(&a.body));
                CHECK(a.status == rows[i].status && error_code(&a) == rows[i].code);
                CHECK(!answer_header_value(&a, "mcp-session-id"));
                answer_done(&a);
        }
        CHECK(t->sessions_opened == 0);
}

#define CALL VERSION "Mcp-Method: tools/call\r\n"
#define REGION(args) BODY("tools/call", ",\"name\":\"region\",\"arguments\":" args)

/* Arguments that headers repeat. */
static void test_param_headers(struct toy *t, unsigned port)
{
        static const struct {
                const char *headers, *body;
                unsigned status;
        } rows[] = {
                { "Mcp-Param-Region: Hello\r\n", REGION("{\"text\":\"Hello\"}"), 200 },
                { "mcp-param-region: =?base64?SGVsbG8=?=\r\n", REGION("{\"text\":\"Hello\"}"), 200 },
                { "Mcp-Param-Region: =?base64?SGVsbG8?=\r\n", REGION("{\"text\":\"Hello\"}"), 400 },
                { "Mcp-Param-Region: =?base64?SGVs!!!bG8=?=\r\n", REGION("{\"text\":\"Hello\"}"), 400 },
                { "Mcp-Param-Region: SGVsbG8=\r\n", REGION("{\"text\":\"SGVsbG8=\"}"), 200 },
                { "", REGION("{\"text\":\"Hello\"}"), 400 },
                { "Mcp-Param-Region: hello\r\n", REGION("{\"text\":\"Hello\"}"), 400 },
                { "Mcp-Param-Region: Hello\r\n", REGION("{}"), 400 },
                { "Mcp-Param-Region: \r\n", REGION("{\"text\":\"\"}"), 200 },
                { "Mcp-Param-Depth: 7\r\n", REGION("{\"deep\":{\"n\":7}}"), 200 },
                { "Mcp-Param-Depth: 8\r\n", REGION("{\"deep\":{\"n\":7}}"), 400 },
                { "Mcp-Param-Other: x\r\n", REGION("{}"), 200 },
                { "", REGION("{}"), 200 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *headers = xasprintf("%sMcp-Name: region\r\n%s", CALL, rows[i].headers);
                struct answer a = post(port, headers, rows[i].body);

                if (a.status != rows[i].status)
                        (void) fprintf(stderr, "row %zu: %u %s\n", i, a.status, buf_cstr(&a.body));
                CHECK(a.status == rows[i].status && error_code(&a) == (a.status == 200 ? 0 : -32020));
                answer_done(&a);
        }
}

/* A tool that needs what the client did not declare. */
static void test_capability(struct toy *t, unsigned port)
{
        struct answer a = post(port, CALL "Mcp-Name: needy\r\n", BODY("tools/call", ",\"name\":\"needy\""));
        const struct json *needed = json_get(json_get(json_get(a.json, "error"), "data"), "requiredCapabilities");

        CHECK(json_type(json_get(needed, "sampling")) == JSON_OBJECT);
        expect(a, 400, -32021);
        expect(post(port, CALL "Mcp-Name: needy\r\n",
                    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"_meta\":{" V
                    ",\"io.modelcontextprotocol/clientCapabilities\":{\"sampling\":{}}},\"name\":\"needy\"}}"),
               200, 0);
}

static void test_client_name(struct toy *t, unsigned port)
{
        struct answer a = post(port, CALL "Mcp-Name: who\r\n",
                               "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"_meta\":{" V
                               "," CAPS ",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"me\",\"version\":\"2\"}},"
                               "\"name\":\"who\"}}");
        const struct json *content = json_get(json_get(a.json, "result"), "content");

        CHECK(cstr_eq(json_get_str(json_at(content, 0), "text", ""), "me/2"));
        answer_done(&a);
}

static void test_results(struct toy *t, unsigned port)
{
        struct answer a = post(port, VERSION "Mcp-Method: server/discover\r\n", BODY("server/discover", ""));
        const struct json *r = json_get(a.json, "result");

        CHECK(cstr_eq(json_get_str(r, "resultType", ""), "complete"));
        CHECK(cstr_eq(json_str(json_at(json_get(r, "supportedVersions"), 0)), "2026-07-28"));
        CHECK(json_has(r, "ttlMs") && json_has(r, "cacheScope") && json_has(json_get(r, "capabilities"), "tools"));
        CHECK(json_get_str(json_get(json_get(r, "_meta"), "io.modelcontextprotocol/serverInfo"), "name", NULL));
        answer_done(&a);

        a = post(port, VERSION "Mcp-Method: tools/list\r\n", BODY("tools/list", ""));
        r = json_get(a.json, "result");
        CHECK(cstr_eq(json_get_str(r, "resultType", ""), "complete") && json_len(json_get(r, "tools")) > 0);
        CHECK(json_has(r, "ttlMs") && json_has(r, "cacheScope"));
        answer_done(&a);

        a = post(port, VERSION "Mcp-Method: tools/call\r\nMcp-Name: echo\r\n",
                 BODY("tools/call", ",\"name\":\"echo\",\"arguments\":{\"text\":\"a\"}"));
        r = json_get(a.json, "result");
        CHECK(cstr_eq(json_get_str(r, "resultType", ""), "complete") && json_len(json_get(r, "content")) > 0);
        answer_done(&a);

        a = post(port, "MCP-Protocol-Version: 1999-01-01\r\n",
                 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"
                 "\"io.modelcontextprotocol/protocolVersion\":\"1999-01-01\"," CAPS "}}}");
        r = json_get(json_get(a.json, "error"), "data");
        CHECK(cstr_eq(json_get_str(r, "requested", ""), "1999-01-01") && json_len(json_get(r, "supported")) == 1);
        answer_done(&a);
}

struct heard {
        unsigned acknowledged, changed, answers, others;
        bool right_id;
};

static int hear(struct json *event, void *arg)
{
        struct heard *h = arg;
        const char *method = json_get_str(event, "method", "");
        const struct json *meta = json_get(json_get(event, json_has(event, "method") ? "params" : "result"), "_meta");

        h->right_id = cstr_eq(json_get_str(meta, "io.modelcontextprotocol/subscriptionId", ""), "sub-1");
        if (cstr_eq(method, "notifications/subscriptions/acknowledged"))
                h->acknowledged++;
        else if (cstr_eq(method, "notifications/tools/list_changed"))
                h->changed++;
        else if (json_has(event, "result"))
                h->answers++;
        else
                h->others++;
        return 0;
}

static void coroutine_fn listen_for(struct exchange_client *x, unsigned port, const char *kinds, struct heard *h)
{
        _cleanup_free_ char *body =
                xasprintf("{\"jsonrpc\":\"2.0\",\"id\":\"sub-1\",\"method\":\"subscriptions/listen\",\"params\":{" META
                          ",\"notifications\":%s}}",
                          kinds);

        *h = (struct heard){ 0 };
        client_open(x, port, "POST",
                    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" VERSION
                    "Mcp-Method: subscriptions/listen\r\n",
                    body);
        x->on_event = hear;
        x->arg = h;
        CHECK(client_head(x, 1000) == 0);
        CHECK(x->answer.status == 200 && x->answer.is_sse && answer_header(&x->answer, "x-accel-buffering: no"));
        CHECK(client_read(x, 150) == -ETIMEDOUT);
        CHECK(h->acknowledged == 1 && h->right_id && h->changed == 0);
}

static void test_subscriptions(struct toy *t, unsigned port)
{
        struct exchange_client tools, nothing;
        struct heard a, b;

        listen_for(&tools, port, "{\"toolsListChanged\":true,\"promptsListChanged\":true}", &a);
        listen_for(&nothing, port, "{}", &b);
        mcp_tools_changed(t->mcp);
        CHECK(client_read(&tools, 150) == -ETIMEDOUT);
        CHECK(client_read(&nothing, 150) == -ETIMEDOUT);
        CHECK(a.changed == 1 && a.right_id && b.changed == 0);
        mcp_server_drain(t->mcp);
        CHECK(client_read(&tools, 1000) == 0);
        CHECK(a.answers == 1 && a.right_id && a.others == 0);
        client_close(&tools);
        client_close(&nothing);
}

/* Closing the stream stops the work, before it became a stream as well as after. */
static void test_close_cancels(struct toy *t, unsigned port)
{
        static const char *const headers =
                "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" VERSION
                "Mcp-Method: tools/call\r\nMcp-Name: slow\r\n";
        struct exchange_client x;

        client_open(&x, port, "POST", headers,
                    BODY("tools/call", ",\"name\":\"slow\",\"arguments\":{\"ms\":5000,\"steps\":1}"));
        CHECK(coro_sleep(100) == 0);
        client_close(&x);
        for (int i = 0; i < 100 && t->cancelled < 1; i++)
                CHECK(coro_sleep(20) == 0);
        CHECK(t->cancelled == 1 && t->completed == 0);

        client_open(&x, port, "POST", headers,
                    BODY("tools/call", ",\"name\":\"slow\",\"arguments\":{\"ms\":8000,\"steps\":100}"));
        CHECK(client_head(&x, 5000) == 0);
        CHECK(coro_sleep(2300) == 0);
        client_close(&x);
        for (int i = 0; i < 100 && t->cancelled < 2; i++)
                CHECK(coro_sleep(20) == 0);
        CHECK(t->cancelled == 2 && t->completed == 0);
}

int main(void)
{
        static const struct run tests[] = {
                { .name = "statuses", .fn = test_statuses },
                { .name = "headers of arguments", .fn = test_param_headers },
                { .name = "capability", .fn = test_capability },
                { .name = "client name", .fn = test_client_name },
                { .name = "results", .fn = test_results },
                { .name = "subscriptions", .fn = test_subscriptions },
                { .name = "closing cancels", .fn = test_close_cancels },
        };

        return run_all(tests, ARRAY_LEN(tests));
}
