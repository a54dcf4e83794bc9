/* tools/call: results, streams, progress, cancellation, clients that vanish. */
#include "run.h"

#include "base/file.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct answer coroutine_fn call(unsigned port, const char *headers, const char *id, const char *tool,
                                       const char *args, const char *token)
{
        _cleanup_free_ char *body = call_of(id, tool, args, token);

        return post(port, headers, body);
}

static const struct json *content(const struct answer *a, size_t i)
{
        return json_at(json_get(json_get(a->json, "result"), "content"), i);
}

static void test_results(struct toy *t, unsigned port)
{
        struct answer a = call(port, "", "\"r\"", "echo", "{\"text\":\"say \\\"\xc3\xa9\\n\\\"\"}", NULL);
        const struct json *r = json_get(a.json, "result"), *o = json_get(r, "structuredContent");
        _cleanup_free_ char *text = json_text(o);

        CHECK(a.status == 200 && !a.is_sse && cstr_eq(json_get_str(a.json, "id", ""), "r"));
        CHECK(cstr_eq(json_get_str(o, "text", ""), "say \"\xc3\xa9\n\""));
        CHECK(cstr_eq(json_get_str(content(&a, 0), "type", ""), "text"));
        CHECK(cstr_eq(json_get_str(content(&a, 0), "text", ""), text));
        CHECK(json_has(r, "isError") && !json_get_bool(r, "isError", true));
        answer_done(&a);

        a = call(port, "", "1", "echo", "null", NULL); /* as if it had none */
        CHECK(a.status == 200 && json_get(json_get(a.json, "result"), "structuredContent"));
        answer_done(&a);

        a = call(port, "", "1", "fail", "{}", NULL);
        r = json_get(a.json, "result");
        CHECK(json_get_bool(r, "isError", false) && !json_has(r, "structuredContent"));
        CHECK(json_len(json_get(r, "content")) == 1);
        CHECK(cstr_eq(json_get_str(content(&a, 0), "text", ""), "it failed: 7"));
        answer_done(&a);

        a = call(port, "", "1", "image", "{\"bytes\":3}", NULL);
        CHECK(json_len(json_get(json_get(a.json, "result"), "content")) == 3);
        CHECK(cstr_eq(json_get_str(content(&a, 1), "text", ""), "a picture"));
        CHECK(cstr_eq(json_get_str(content(&a, 2), "type", ""), "image"));
        CHECK(cstr_eq(json_get_str(content(&a, 2), "data", ""), "AAAA"));
        CHECK(cstr_eq(json_get_str(content(&a, 2), "mimeType", ""), "image/png"));
        answer_done(&a);

        expect(call(port, "", "1", "nothing", "{}", NULL), 200, -32603);
}

/* Several megabytes of images, as JSON and as one event. More than a server can hold is an error and no silence. */
static void test_large(struct toy *t, unsigned port)
{
        struct answer a = call(port, "", "1", "image", "{\"bytes\":6000000}", NULL);

        CHECK(!a.is_sse && strlen(json_get_str(content(&a, 2), "data", "")) == 8000000);
        answer_done(&a);
        a = call(port, "", "1", "image", "{\"bytes\":6000000,\"ms\":2300}", NULL);
        CHECK(a.is_sse && a.whole && strlen(json_get_str(content(&a, 2), "data", "")) == 8000000);
        answer_done(&a);
        expect(call(port, "", "1", "image", "{\"bytes\":30000000}", NULL), 200, -32603);
}

static void test_switch(struct toy *t, unsigned port)
{
        struct answer a = call(port, "", "1", "image", "{\"ms\":1500}", NULL);

        CHECK(!a.is_sse);
        answer_done(&a);
        a = call(port, "", "1", "image", "{\"ms\":2300}", NULL);
        CHECK(a.is_sse && a.whole && a.events == 1 && json_get(a.json, "result"));
        CHECK(answer_header(&a, "cache-control: no-cache") && answer_header(&a, "x-accel-buffering: no"));
        answer_done(&a);
        /* Who takes only JSON gets it, however long it takes; who takes only streams gets one at once. */
        a = call(port, "Accept: application/json\r\n", "1", "image", "{\"ms\":2300}", "\"t\"");
        CHECK(!a.is_sse && json_get(a.json, "result"));
        answer_done(&a);
        a = call(port, "Accept: text/event-stream\r\n", "1", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(a.is_sse && a.events == 1 && json_get(a.json, "result"));
        answer_done(&a);
}

struct seen {
        char *token; /* wanted, JSON text */
        double last;
        unsigned progress, messages, running;
        bool after_answer;
};

static int on_note(struct json *event, void *arg)
{
        struct seen *s = arg;
        const struct json *p = json_get(event, "params");
        const char *method = json_get_str(event, "method", "");

        CHECK(!s->after_answer);
        if (json_has(event, "result"))
                s->after_answer = true;
        if (cstr_eq(method, "notifications/progress")) {
                _cleanup_free_ char *token = json_text(json_get(p, "progressToken"));

                CHECK(cstr_eq(token, s->token));
                CHECK(s->progress == 0 || json_double(json_get(p, "progress")) > s->last);
                s->last = json_double(json_get(p, "progress"));
                s->progress++;
        } else if (cstr_eq(method, "notifications/message")) {
                CHECK(cstr_eq(json_get_str(p, "level", ""), "info"));
                s->messages++;
                s->running += cstr_eq(json_get_str(p, "data", ""), "silent still running");
        }
        return 0;
}

static struct seen coroutine_fn watch_call(unsigned port, const char *headers, const char *tool, const char *args,
                                           const char *token, bool *ret_sse)
{
        _cleanup_free_ char *body = call_of("1", tool, args, token);
        _cleanup_free_ char *all = xasprintf("Content-Type: application/json\r\n%s", headers);
        struct seen s = { .token = (char *) (uintptr_t) token };
        struct exchange_client x;

        client_open(&x, port, "POST", all, body);
        x.on_event = on_note;
        x.arg = &s;
        CHECK(client_head(&x, 10000) == 0);
        CHECK(client_read(&x, 10000) == 0);
        CHECK(json_get(x.answer.json, "result"));
        if (ret_sse)
                *ret_sse = x.answer.is_sse;
        client_close(&x);
        return s;
}

static void test_progress(struct toy *t, unsigned port)
{
        bool sse;
        struct seen s = watch_call(port, "", "slow", "{\"ms\":60,\"steps\":6}", "\"ptok-1\"", &sse);

        CHECK(sse && s.progress == 6 && s.last == 6);
        s = watch_call(port, "", "slow", "{\"ms\":60,\"steps\":6}", "0", &sse);
        CHECK(sse && s.progress == 6);
        s = watch_call(port, "", "slow", "{\"ms\":60,\"steps\":6}", NULL, &sse);
        CHECK(sse && s.progress == 0);
}

/* 400 ms interval: lines at 400, 800 and 1200, progress with them only for who sent a token. */
static void test_still_running(struct toy *t, unsigned port)
{
        struct seen s = watch_call(port, "", "silent", "{\"ms\":1350}", "7", NULL);

        CHECK(s.running == 3 && s.messages == 3 && s.progress == 3);
        s = watch_call(port, "", "silent", "{\"ms\":950}", NULL, NULL);
        CHECK(s.running == 2 && s.progress == 0);
}

static void test_level(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, ""), *other = open_session(port, "");
        _cleanup_free_ char *warning = rpc("1", "logging/setLevel", "{\"level\":\"warning\"}"),
                            *info = rpc("1", "logging/setLevel", "{\"level\":\"info\"}");

        expect(post(port, session, warning), 200, 0);
        CHECK(watch_call(port, session, "talk", "{}", NULL, NULL).messages == 0);
        CHECK(watch_call(port, session, "silent", "{\"ms\":500}", "1", NULL).progress == 1);
        CHECK(watch_call(port, other, "talk", "{}", NULL, NULL).messages == 2);
        CHECK(watch_call(port, "", "talk", "{}", NULL, NULL).messages == 2);
        expect(post(port, session, info), 200, 0);
        CHECK(watch_call(port, session, "talk", "{}", NULL, NULL).messages == 2);
}

/* ---- cancellation ---- */

static void coroutine_fn start_call(struct exchange_client *x, unsigned port, const char *headers, const char *id,
                                    const char *tool, const char *args)
{
        _cleanup_free_ char *body = call_of(id, tool, args, NULL);
        _cleanup_free_ char *all = xasprintf("Content-Type: application/json\r\n%s", headers);

        client_open(x, port, "POST", all, body);
        (void) coro_sleep(60);
}

static void coroutine_fn cancel_call(unsigned port, const char *headers, const char *id)
{
        _cleanup_free_ char *params = xasprintf("{\"requestId\":%s,\"reason\":\"test\"}", id);
        _cleanup_free_ char *body = rpc(NULL, "notifications/cancelled", params);
        struct answer a = post(port, headers, body);

        CHECK(a.status == 202 && a.body.len == 0);
        answer_done(&a);
}

/* The stream ends without an answer, whether it was one already or not. */
static void coroutine_fn expect_empty(struct exchange_client *x)
{
        CHECK(client_head(x, 1000) == 0);
        CHECK(client_read(x, 1000) == 0);
        CHECK(x->answer.status == 200 && x->answer.is_sse && x->answer.whole && !x->answer.json);
        client_close(x);
}

static void test_cancel(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, "");
        struct exchange_client x;

        start_call(&x, port, session, "\"c\"", "wait", "{}");
        cancel_call(port, session, "\"d\""); /* unknown: ignored */
        cancel_call(port, session, "null");
        cancel_call(port, "", "\"c\"");                   /* not of this session */
        cancel_call(port, "X-Owner: other\r\n", "\"c\""); /* nor of this account */
        CHECK(t->cancelled == 0);
        cancel_call(port, session, "\"c\"");
        expect_empty(&x);
        CHECK(t->cancelled == 1);
        cancel_call(port, session, "\"c\""); /* over: ignored */

        /* As a stream already. */
        start_call(&x, port, session, "7", "slow", "{\"ms\":100000,\"steps\":2000}");
        CHECK(client_head(&x, 1000) == 0);
        cancel_call(port, session, "7");
        CHECK(client_read(&x, 1000) == 0);
        CHECK(x.answer.whole && !x.answer.json);
        client_close(&x);
        CHECK(t->cancelled == 2);

        /* For who takes JSON only, an answer without content. */
        {
                _cleanup_free_ char *json_only = xasprintf("%sAccept: application/json\r\n", session);

                start_call(&x, port, json_only, "8", "wait", "{}");
                cancel_call(port, session, "8");
                CHECK(client_head(&x, 1000) == 0 && client_read(&x, 1000) == 0);
                CHECK(x.answer.status == 204 && x.answer.body.len == 0);
                client_close(&x);
        }
        CHECK(t->cancelled == 3 && t->completed == 0);
}

/* Clients without a session count from the same 0: none stops another's work, and ids may repeat. */
static void test_stateless_ids(struct toy *t, unsigned port)
{
        struct exchange_client a, b, c;

        start_call(&a, port, "X-Agent: one\r\n", "0", "wait", "{}");
        start_call(&b, port, "X-Agent: two\r\n", "0", "wait", "{}");
        cancel_call(port, "X-Agent: two\r\n", "0");
        expect_empty(&b);
        CHECK(t->cancelled == 1);
        cancel_call(port, "X-Agent: one\r\n", "0");
        expect_empty(&a);

        start_call(&a, port, "", "0", "wait", "{}");
        start_call(&b, port, "", "0", "silent", "{\"ms\":300}");
        start_call(&c, port, "", "0", "silent", "{\"ms\":300}");
        cancel_call(port, "", "0"); /* which of the three? */
        CHECK(t->cancelled == 2);
        CHECK(client_head(&b, 3000) == 0 && client_read(&b, 3000) == 0 && b.answer.json);
        CHECK(client_head(&c, 3000) == 0 && client_read(&c, 3000) == 0 && c.answer.json);
        client_close(&b);
        client_close(&c);
        cancel_call(port, "", "0");
        expect_empty(&a);
        CHECK(t->cancelled == 3);
}

static void test_duplicate(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, ""), *other = open_session(port, "");
        struct exchange_client x;
        struct answer a;

        start_call(&x, port, session, "1", "silent", "{\"ms\":300}");
        expect(call(port, session, "1", "echo", "{\"text\":\"x\"}", NULL), 400, -32600);
        a = call(port, session, "\"1\"", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(json_get(a.json, "result"));
        answer_done(&a);
        a = call(port, other, "1", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(json_get(a.json, "result"));
        answer_done(&a);
        CHECK(client_head(&x, 3000) == 0 && client_read(&x, 3000) == 0 && x.answer.json);
        client_close(&x);
        a = call(port, session, "1", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(json_get(a.json, "result"));
        answer_done(&a);
}

static void test_disconnect(struct toy *t, unsigned port)
{
        struct exchange_client x;

        /* While the answer would be JSON, and as a stream. */
        start_call(&x, port, "", "1", "silent", "{\"ms\":300}");
        client_close(&x);
        start_call(&x, port, "", "1", "slow", "{\"ms\":400,\"steps\":40}");
        CHECK(client_head(&x, 1000) == 0);
        client_close(&x);
        (void) coro_sleep(800);
        CHECK(t->completed == 2 && t->cancelled == 0);
}

static void test_limit(struct toy *t, unsigned port)
{
        struct exchange_client x, y;
        struct answer a;

        start_call(&x, port, "", "1", "silent", "{\"ms\":300}");
        start_call(&y, port, "", "2", "silent", "{\"ms\":300}");
        a = call(port, "", "3", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(answer_header(&a, "retry-after: 5"));
        expect(a, 429, -32000);
        a = call(port, "X-Owner: other\r\n", "3", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(a.status == 200);
        answer_done(&a);
        CHECK(client_head(&x, 3000) == 0 && client_read(&x, 3000) == 0);
        CHECK(client_head(&y, 3000) == 0 && client_read(&y, 3000) == 0);
        client_close(&x);
        client_close(&y);
        a = call(port, "", "3", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(a.status == 200);
        answer_done(&a);
}

/* A quick request is not held up by slow ones. */
static void test_concurrency(struct toy *t, unsigned port)
{
        struct exchange_client x[20];
        int64_t start;
        struct answer a;

        for (size_t i = 0; i < ARRAY_LEN(x); i++) {
                _cleanup_free_ char *id = xasprintf("%zu", i),
                                    *body = call_of(id, "slow", "{\"ms\":900,\"steps\":3}", "1");

                client_open(&x[i], port, "POST", "Content-Type: application/json\r\n", body);
        }
        start = loop_now();
        a = call(port, "", "100", "echo", "{\"text\":\"x\"}", NULL);
        CHECK(a.status == 200 && loop_now() - start < 500);
        answer_done(&a);
        for (size_t i = 0; i < ARRAY_LEN(x); i++) {
                CHECK(client_head(&x[i], 5000) == 0 && client_read(&x[i], 5000) == 0);
                CHECK(json_get_int(x[i].answer.json, "id", -1) == (int64_t) i);
                client_close(&x[i]);
        }
}

/* ---- many waiting calls ---- */

#define MANY 500

static size_t resident(void)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        struct str text;
        uint64_t pages = 0;

        CHECK(file_read(AT_FDCWD, "/proc/self/statm", &b) == 0);
        text = buf_str(&b);
        (void) str_cut(&text, ' ');
        CHECK(parse_u64(str_cut(&text, ' '), UINT64_MAX, &pages) == 0);
        return (size_t) pages * (size_t) sysconf(_SC_PAGESIZE);
}

/* A client without any memory in this process: a kernel socket that never reads. */
static int open_plain(unsigned port, const char *request)
{
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t) port) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0);
        sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(connect(fd, (struct sockaddr *) &sa, sizeof(sa)) == 0);
        CHECK(send(fd, request, strlen(request), 0) == (ssize_t) strlen(request));
        return fd;
}

static void test_many(struct toy *t, unsigned port)
{
        int *fds = xcalloc(MANY, sizeof(*fds));
        struct mcp_stats st;
        size_t before = 0;
        char seen[4096];

        for (size_t i = 0; i < MANY; i++) {
                _cleanup_free_ char *id = xasprintf("%zu", i), *body = call_of(id, "wait", "{}", "1");
                _cleanup_free_ char *request =
                        xasprintf("POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                  "Content-Length: %zu\r\n\r\n%s",
                                  strlen(body), body);

                /* The first ones warm the pools. */
                if (i == 20)
                        before = resident();
                fds[i] = open_plain(port, request);
                if (i % 20 == 19)
                        (void) coro_sleep(5);
        }
        (void) coro_sleep(2600);
        mcp_server_stats(t->mcp, &st);
        CHECK(st.running == MANY);
        (void) printf("  %d calls that wait as streams: %zu bytes resident each\n", MANY,
                      (resident() - before) / (MANY - 20));
        for (size_t i = 0; i < MANY; i++) {
                CHECK(recv(fds[i], seen, sizeof(seen), MSG_DONTWAIT) > 0); /* the head of the stream */
                CHECK(close(fds[i]) == 0);
        }
        free(fds);
}

int main(void)
{
        static const struct run tests[] = {
                { "results", test_results },
                { "large", test_large },
                { "switch to a stream", test_switch },
                { "progress", test_progress },
                { "still running", test_still_running },
                { "log level", test_level },
                { "cancel", test_cancel },
                { "ids without a session", test_stateless_ids },
                { "duplicate id", test_duplicate },
                { "disconnect", test_disconnect },
                { "limit", test_limit, { .calls_per_owner = 2 } },
                { "concurrency", test_concurrency },
                { "many waiting", test_many },
        };

        return run_all(tests, ARRAY_LEN(tests));
}
