/* GET streams: one message to exactly one stream of each client. */
#include "run.h"

#include "loop/wait.h"

#include <errno.h>
#include <stdlib.h>

static int count_changed(struct json *event, void *arg)
{
        CHECK(cstr_eq(json_get_str(event, "method", ""), "notifications/tools/list_changed"));
        CHECK(!json_has(event, "id"));
        ++*(unsigned *) arg;
        return 0;
}

static void coroutine_fn open_stream(struct exchange_client *x, unsigned port, const char *headers, unsigned *count)
{
        _cleanup_free_ char *all = xasprintf("Accept: text/event-stream\r\n%s", headers);

        client_open(x, port, "GET", all, NULL);
        x->on_event = count_changed;
        x->arg = count;
        CHECK(client_head(x, 1000) == 0);
        CHECK(x->answer.status == 200 && x->answer.is_sse);
        CHECK(answer_header(&x->answer, "x-accel-buffering: no"));
}

static void coroutine_fn settle(struct exchange_client *x)
{
        CHECK(client_read(x, 150) == -ETIMEDOUT);
}

static uint64_t streams(struct toy *t)
{
        struct mcp_stats st;

        mcp_server_stats(t->mcp, &st);
        return st.streams;
}

static void test_list_changed(struct toy *t, unsigned port)
{
        _cleanup_free_ char *one = open_session(port, ""), *two = open_session(port, "");
        unsigned n_one = 0, n_two = 0, n_again = 0, n_bare = 0;
        struct exchange_client a, b, again, bare;

        open_stream(&a, port, one, &n_one);
        open_stream(&b, port, two, &n_two);
        mcp_tools_changed(t->mcp);
        settle(&a);
        settle(&b);
        CHECK(n_one == 1 && n_two == 1);

        /* The same client comes again: its old stream ends, and the next message goes to the new one only. */
        open_stream(&again, port, one, &n_again);
        CHECK(client_read(&a, 1000) == 0);
        open_stream(&bare, port, "", &n_bare);
        CHECK(streams(t) == 3);
        mcp_tools_changed(t->mcp);
        settle(&again);
        settle(&b);
        settle(&bare);
        CHECK(n_one == 1 && n_again == 1 && n_two == 2 && n_bare == 1);

        /* Clients that vanish are forgotten. */
        client_close(&a);
        client_close(&b);
        client_close(&bare);
        (void) coro_sleep(100);
        CHECK(streams(t) == 1);
        mcp_tools_changed(t->mcp);
        settle(&again);
        CHECK(n_again == 2);

        /* So is an ended session. */
        {
                struct answer d = ask(port, "DELETE", one, NULL);

                CHECK(d.status == 204);
                answer_done(&d);
        }
        CHECK(client_read(&again, 1000) == 0);
        client_close(&again);
        CHECK(streams(t) == 0);
        mcp_tools_changed(t->mcp);
}

/* A stream of one client never carries what belongs to a call. */
static void test_apart(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, "");
        _cleanup_free_ char *body = call_of("1", "slow", "{\"ms\":100,\"steps\":5}", "\"t\"");
        unsigned n = 0;
        struct exchange_client x;
        struct answer a;

        open_stream(&x, port, session, &n);
        a = post(port, session, body);
        CHECK(a.is_sse && a.events == 6);
        answer_done(&a);
        settle(&x);
        CHECK(n == 0 && x.answer.events == 0);
        client_close(&x);
}

static void test_limits(struct toy *t, unsigned port)
{
        struct exchange_client a, b, c;
        unsigned n = 0;

        open_stream(&a, port, "X-Agent: a\r\n", &n);
        open_stream(&b, port, "X-Agent: b\r\n", &n);
        expect(ask(port, "GET", "Accept: text/event-stream\r\nX-Agent: c\r\n", NULL), 429, -32000);
        open_stream(&c, port, "X-Owner: other\r\n", &n);
        expect(ask(port, "GET", "Accept: text/event-stream\r\nX-Owner: third\r\n", NULL), 503, -32000);
        /* Its own older stream is not in a client's way. */
        client_close(&b);
        open_stream(&b, port, "X-Agent: a\r\n", &n);
        CHECK(client_read(&a, 1000) == 0);
        client_close(&a);
        client_close(&b);
        client_close(&c);
}

static void test_drain(struct toy *t, unsigned port)
{
        struct exchange_client a;
        unsigned n = 0;

        open_stream(&a, port, "", &n);
        mcp_server_drain(t->mcp);
        CHECK(client_read(&a, 1000) == 0);
        client_close(&a);
        expect(ask(port, "GET", "Accept: text/event-stream\r\n", NULL), 503, -32000);
}

int main(void)
{
        static const struct run tests[] = {
                { "list changed", test_list_changed },
                { "apart", test_apart },
                { "limits", test_limits, { .streams_per_owner = 2, .streams = 3 } },
                { "drain", test_drain },
        };

        return run_all(tests, ARRAY_LEN(tests));
}
