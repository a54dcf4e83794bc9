#include "run.h"

#include "loop/loop.h"

#include <stdio.h>
#include <stdlib.h>

struct all {
        const struct run *tests;
        size_t n;
};

static void main_coro(void *arg)
{
        struct all *all = arg;

        for (size_t i = 0; i < all->n; i++) {
                struct toy t;

                (void) printf("%s\n", all->tests[i].name);
                (void) fflush(stdout);
                toy_start(&t, &all->tests[i].limits, 0);
                all->tests[i].fn(&t, http_server_port(t.http));
                toy_stop(&t);
        }
        loop_stop();
}

int run_all(const struct run *tests, size_t n)
{
        struct all all = { tests, n };
        struct err e = { 0 };

        if (loop_init(&e) < 0) {
                (void) fprintf(stderr, "%s\n", err_text(&e));
                return 1;
        }
        (void) coro_start(main_coro, &all, CORO_STACK_LARGE, "tests");
        loop_run();
        loop_done();
        return 0;
}

char *rpc(const char *id, const char *method, const char *params)
{
        return xasprintf("{\"jsonrpc\":\"2.0\"%s%s,\"method\":\"%s\"%s%s}", id ? ",\"id\":" : "", id ? id : "", method,
                         params ? ",\"params\":" : "", params ? params : "");
}

char *call_of(const char *id, const char *tool, const char *args, const char *token)
{
        _cleanup_free_ char *params =
                xasprintf("{\"name\":\"%s\",\"arguments\":%s%s%s%s}", tool, args,
                          token ? ",\"_meta\":{\"progressToken\":" : "", token ? token : "", token ? "}" : "");

        return rpc(id, "tools/call", params);
}

char *coroutine_fn open_session(unsigned port, const char *headers)
{
        _cleanup_free_ char *body = rpc("\"i\"", "initialize",
                                        "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},"
                                        "\"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}");
        struct answer a = post(port, headers, body);
        _cleanup_free_ char *id = answer_header_value(&a, "mcp-session-id");

        CHECK(a.status == 200 && id && strlen(id) >= 16);
        answer_done(&a);
        return xasprintf("Mcp-Session-Id: %s\r\n%s", id, headers);
}

int64_t error_code(const struct answer *a)
{
        return json_get_int(json_get(a->json, "error"), "code", 0);
}

void expect(struct answer a, unsigned status, int64_t code)
{
        if (a.status != status || error_code(&a) != code)
                (void) fprintf(stderr, "%u %.*s\n", a.status, (int) a.body.len, a.body.p);
        CHECK(a.status == status);
        CHECK(error_code(&a) == code);
        answer_done(&a);
}
