/* Streams of calls in a session that are lost and taken up again with Last-Event-ID. */
#include "run.h"

#include "loop/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LATEST "MCP-Protocol-Version: 2025-11-25\r\n"

static void coroutine_fn begin(struct exchange_client *x, unsigned port, const char *headers, const char *tool,
                               const char *args)
{
        _cleanup_free_ char *body = call_of("\"rs\"", tool, args, "1");
        _cleanup_free_ char *all = xasprintf("Content-Type: application/json\r\n%s", headers);

        client_open(x, port, "POST", all, body);
        CHECK(client_head(x, 5000) == 0 && x->answer.status == 200);
}

/* Starts a call and loses it behind its first event that has an id; the id. */
static char *coroutine_fn begin_and_lose(unsigned port, const char *headers, const char *tool, const char *args)
{
        struct exchange_client x;

        begin(&x, port, headers, tool, args);
        CHECK(x.answer.is_sse);
        x.stop_at_id = true;
        CHECK(client_read(&x, 5000) == 1);
        char *id = xstrdup(x.answer.last_id);
        CHECK(*id && x.answer.empty == 1 && x.answer.events == 0);
        client_close(&x);
        return id;
}

static void coroutine_fn resume(struct exchange_client *x, unsigned port, const char *headers, const char *id)
{
        _cleanup_free_ char *all = xasprintf("Accept: text/event-stream\r\nLast-Event-ID: %s\r\n%s", id, headers);

        client_open(x, port, "GET", all, NULL);
        CHECK(client_head(x, 5000) == 0);
}

static struct answer coroutine_fn resume_all(unsigned port, const char *headers, const char *id)
{
        struct exchange_client x;
        struct answer a;

        resume(&x, port, headers, id);
        CHECK(client_read(&x, 10000) == 0);
        a = x.answer;
        x.answer = (struct answer){ .is_sse = a.is_sse };
        client_close(&x);
        return a;
}

static bool answered(const struct answer *a)
{
        return a->status == 200 && a->is_sse && a->whole && json_get(a->json, "result") &&
               cstr_eq(json_get_str(a->json, "id", ""), "rs");
}

static void test_who_gets_ids(struct toy *t, unsigned port)
{
        static const struct {
                const char *version;
                bool session, ids;
        } rows[] = {
                { LATEST, true, true },
                { "", true, true }, /* the session was opened with it */
                { "MCP-Protocol-Version: 2025-06-18\r\n", true, false },
                { "MCP-Protocol-Version: 2025-03-26\r\n", true, false },
                { LATEST, false, false },
                { "", false, false },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *headers =
                        rows[i].session ? open_session(port, rows[i].version) : xstrdup(rows[i].version);
                struct exchange_client x;

                begin(&x, port, headers, "slow", "{\"ms\":60,\"steps\":3}");
                CHECK(client_read(&x, 5000) == 0);
                CHECK(x.answer.events == 4 && answered(&x.answer));
                CHECK(x.answer.empty == rows[i].ids && !!x.answer.last_id[0] == rows[i].ids);
                client_close(&x);
        }
}

static void test_goes_on(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST);
        _cleanup_free_ char *id = begin_and_lose(port, session, "slow", "{\"ms\":600,\"steps\":6}");
        struct answer a;

        (void) coro_sleep(250);
        a = resume_all(port, session, id);
        /* Nothing that came while nobody was there is missing, and nothing comes twice. */
        CHECK(answered(&a) && a.events == 7 && a.empty == 0);
        CHECK(t->completed == 1);
        answer_done(&a);
}

/* The call ends while nobody is there; the response waits, also for a second time. */
static void test_after_the_end(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST), *last = NULL;
        _cleanup_free_ char *id = begin_and_lose(port, session, "slow", "{\"ms\":100,\"steps\":50}");

        while (t->completed == 0)
                (void) coro_sleep(20);
        for (int i = 0; i < 2; i++) {
                struct answer a = resume_all(port, session, id);

                CHECK(answered(&a) && a.events == 9); /* the last eight notes and the response */
                free(last);
                last = xstrdup(a.last_id);
                answer_done(&a);
        }
        struct answer a = resume_all(port, session, last);
        CHECK(a.status == 200 && a.events == 0 && !a.json);
        answer_done(&a);
}

static void test_strangers(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST), *other = open_session(port, LATEST);
        _cleanup_free_ char *foreign = open_session(port, LATEST "X-Owner: other\r\n");
        _cleanup_free_ char *id = begin_and_lose(port, session, "slow", "{\"ms\":60,\"steps\":2}");
        _cleanup_free_ char *mixed = xasprintf("%sX-Owner: other\r\n", session);
        const char *all[] = { other, foreign, LATEST };

        for (int round = 0; round < 2; round++) { /* while it runs, and after */
                for (size_t i = 0; i < ARRAY_LEN(all); i++)
                        expect(resume_all(port, all[i], id), 410, -32600);
                expect(resume_all(port, mixed, id), 404, -32001);
                while (t->completed == 0)
                        (void) coro_sleep(20);
        }
        expect(resume_all(port, session, "000000000000000000000000-0"), 410, -32600);
        /* What is no id of ours is no business of ours: an ordinary stream. */
        static const char *const odd[] = { "7", "000000000000000000000000-", "000000000000000000000000-x",
                                           "000000000000000000000000-99999999999999999999999" };
        for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
                struct exchange_client x;

                resume(&x, port, session, odd[i]);
                CHECK(x.answer.status == 200 && x.answer.is_sse && client_read(&x, 50) == -ETIMEDOUT);
                client_close(&x);
        }
}

static void test_too_large(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST);
        _cleanup_free_ char *id = begin_and_lose(port, session, "image", "{\"ms\":2300,\"bytes\":3000000}");

        while (t->completed == 0)
                (void) coro_sleep(20);
        (void) coro_sleep(50);
        struct answer a = resume_all(port, session, id);
        CHECK(error_code(&a) == -32603 && cstr_eq(json_get_str(a.json, "id", ""), "rs"));
        answer_done(&a);
}

/* Responses of 1.9 MB each: an account has room for eight, and the oldest go first; another account keeps its own. */
static void test_room(struct toy *t, unsigned port)
{
        enum { N = 12 };
        _cleanup_free_ char *session = open_session(port, LATEST),
                            *other = open_session(port, LATEST "X-Owner: other\r\n");
        char *ids[N + 1];

        ids[N] = begin_and_lose(port, other, "slow", "{\"ms\":40,\"steps\":2}");
        for (size_t i = 0; i < N; i++) {
                ids[i] = begin_and_lose(port, session, "poll", "{\"ms\":0,\"bytes\":1400000}");
                while (t->completed < i + 2)
                        (void) coro_sleep(5);
        }
        for (size_t i = 0; i <= N; i++) {
                struct answer a = resume_all(port, i < N ? session : other, ids[i]);

                CHECK(a.status == (i < N - 8 ? 410 : 200));
                CHECK(i < N - 8 || (json_get(a.json, "result") && a.whole));
                answer_done(&a);
                free(ids[i]);
        }
}

static void test_cancel(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST);
        _cleanup_free_ char *id = begin_and_lose(port, session, "slow", "{\"ms\":100000,\"steps\":1000}");
        _cleanup_free_ char *body = rpc(NULL, "notifications/cancelled", "{\"requestId\":\"rs\"}");
        struct exchange_client x;

        resume(&x, port, session, id);
        expect(post(port, session, body), 202, 0);
        CHECK(client_read(&x, 5000) == 0 && !x.answer.json);
        client_close(&x);
        expect(resume_all(port, session, id), 410, -32600);
        CHECK(t->cancelled == 1);
}

/* A second resumption takes the stream over; what the first one saw it does not see again. */
static void test_take_over(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST);
        _cleanup_free_ char *id = begin_and_lose(port, session, "slow", "{\"ms\":900,\"steps\":6}");
        struct exchange_client first;
        struct answer a;

        resume(&first, port, session, id);
        (void) coro_sleep(400);
        (void) client_read(&first, 20);
        CHECK(first.answer.events >= 2 && first.answer.last_id[0]);
        a = resume_all(port, session, first.answer.last_id);
        CHECK(answered(&a) && a.events + first.answer.events == 7);
        CHECK(client_read(&first, 1000) == 0 && !first.answer.json);
        client_close(&first);
        answer_done(&a);
}

static void test_poll(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST);
        struct exchange_client x;

        begin(&x, port, session, "poll", "{\"ms\":300}");
        CHECK(client_read(&x, 5000) == 0 && t->completed == 0); /* ended, well before the call */
        CHECK(x.answer.empty == 1 && x.answer.events == 0 && x.parser.retry == 50);
        struct answer a = resume_all(port, session, x.answer.last_id);
        CHECK(answered(&a) && t->completed == 1);
        answer_done(&a);
        client_close(&x);

        begin(&x, port, "", "poll", "{\"ms\":300}"); /* who could not come back is kept */
        CHECK(client_read(&x, 5000) == 0 && !t->polled && json_get(x.answer.json, "result"));
        client_close(&x);
}

static void test_client_name(struct toy *t, unsigned port)
{
        _cleanup_free_ char *session = open_session(port, LATEST), *body = call_of("1", "who", "{}", NULL);
        struct answer a = post(port, session, body);

        CHECK(cstr_eq(json_get_str(json_at(json_get(json_get(a.json, "result"), "content"), 0), "text", ""), "test/1"));
        answer_done(&a);
}

int main(void)
{
        static const struct run tests[] = {
                { "who gets ids", test_who_gets_ids },
                { "goes on", test_goes_on },
                { "after the end", test_after_the_end },
                { "strangers", test_strangers },
                { "too large", test_too_large },
                { "room", test_room },
                { "cancel", test_cancel },
                { "take over", test_take_over },
                { "poll", test_poll },
                { "client name", test_client_name },
        };

        return run_all(tests, ARRAY_LEN(tests));
}
