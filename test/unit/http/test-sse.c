/* Event streams: from handlers, and 2,000 passive ones with heartbeats. */
#include "http-test.h"

#include <malloc.h>
#include <sys/resource.h>

#define H "Host: a\r\n"
#define STREAMS 2000

static struct sse *streams[STREAMS];
static size_t detached, closed;

static void on_close(void *arg)
{
        struct sse **slot = arg;

        *slot = NULL;
        closed++;
}

static void detach_now(void *arg)
{
        streams[0] = sse_detach(arg, 250, on_close, &streams[0]);
        CHECK(streams[0] != NULL);
        CHECK_INT(sse_post(streams[0], NULL, NULL, STR("wait")), 0);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        struct str p = call_path(c);

        if (str_eq(p, STR("/plain"))) {
                CHECK_INT(sse_start(c), 0);
                CHECK_INT(sse_event(c, "a\nb", NULL, STR("x")), -EINVAL);
                CHECK_INT(sse_event(c, NULL, "1\r", STR("x")), -EINVAL);
                CHECK_INT(sse_comment(c, "a\nb"), -EINVAL);
                CHECK_INT(sse_event(c, "note", "7", STR("one\ntwo\r\nthree\r")), 0);
                CHECK_INT(sse_comment(c, "hi"), 0);
                CHECK_INT(sse_event(c, NULL, NULL, STR("")), 0);
                return;
        }
        if (str_eq(p, STR("/late"))) { /* detached from outside while the handler waits */
                struct timer *t = timer_start(20, 0, detach_now, c);

                CHECK_INT(coro_sleep(100), 0);
                timer_stop(&t);
                CHECK(!call_gone(c));
                CHECK_INT(call_reply(c, 200, NULL, "x", 1) < 0, 1);
                CHECK_INT(call_write(c, "x", 1), -EINVAL);
                CHECK_INT(sse_post(streams[0], NULL, NULL, STR("answer")), 0);
                sse_close(streams[0]);
                return;
        }
        if (str_eq(p, STR("/reply"))) {
                (void) call_reply(c, 200, NULL, "x", 1);
                CHECK(sse_detach(c, 1000, NULL, NULL) == NULL);
                return;
        }
        size_t i = detached++;
        CHECK_INT(sse_start(c), 0);
        streams[i] = sse_detach(c, str_eq(p, STR("/beat")) ? 250 : 60000, on_close, &streams[i]);
        CHECK(streams[i] != NULL);
}

static void start(void)
{
        detached = closed = 0;
        memset(streams, 0, sizeof streams);
        serve_with(NULL, handler);
}

static struct wire *ask(const char *path)
{
        struct wire *w = wire_open();
        char text[100];

        (void) snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" H "\r\n", path);
        wire_send(w, text);
        return w;
}

static void do_plain(void *arg)
{
        start();
        struct wire *w = ask("/plain");

        wire_expect(w, "Content-Type: text/event-stream\r\n");
        wire_expect(w, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n\r\n");
        wire_expect(w, "event: note\nid: 7\ndata: one\ndata: two\ndata: three\ndata: \n\n");
        wire_expect(w, ": hi\n\n");
        wire_expect(w, "data: \n\n");
        wire_expect(w, "0\r\n\r\n");
        wire_send(w, "GET /reply HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "\r\n\r\nx");
        wire_close(w);
        serve_end();
}

static void do_detached(void *arg)
{
        start();
        struct wire *w = ask("/quiet");

        wire_expect(w, "\r\n\r\n");
        while (!streams[0])
                CHECK_INT(coro_sleep(1), 0);
        CHECK_INT(sse_post(streams[0], "x", NULL, STR("hello")), 0);
        wire_expect(w, "16\r\nevent: x\ndata: hello\n\n\r\n");
        sse_close(streams[0]); /* and the connection goes on */
        CHECK_INT(closed, 1);
        wire_expect(w, "0\r\n\r\n");
        wire_send(w, "GET /quiet HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "\r\n\r\n");
        while (!streams[1])
                CHECK_INT(coro_sleep(1), 0);
        /* A peer that reads nothing: -EAGAIN, not memory. */
        char *big = xcalloc(1, 100001);
        memset(big, 'x', 100000);
        int r = 0;
        for (int i = 0; r == 0 && i < 1000; i++)
                r = sse_post(streams[1], NULL, NULL, str_of(big));
        CHECK_INT(r, -EAGAIN);
        free(big);
        wire_close(w);
        while (closed < 2)
                CHECK_INT(coro_sleep(1), 0);
        serve_end();
}

static void do_late(void *arg)
{
        start();
        struct wire *w = ask("/late");

        wire_expect(w, "Content-Type: text/event-stream\r\n");
        wire_expect(w, "\r\n\r\nc\r\ndata: wait\n\n\r\n");
        wire_expect(w, "data: answer\n\n\r\n0\r\n\r\n");
        CHECK_INT(closed, 1);
        wire_send(w, "GET /reply HTTP/1.1\r\n" H "\r\n"); /* and the connection goes on */
        wire_expect(w, "\r\n\r\nx");
        /* A stop in between lets the answer out. */
        wire_send(w, "GET /late HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "data: wait\n\n");
        http_server_stop(server, 5000);
        wire_expect(w, "data: answer\n\n\r\n0\r\n\r\n");
        CHECK(cstr_eq(wire_rest(w), ""));
        http_server_free(server);
        wire_close(w);
}

static void do_slow_peer(void *arg)
{
        start();
        struct wire *w = ask("/beat");
        char *big = xcalloc(1, 100001);

        wire_expect(w, "\r\n\r\n");
        memset(big, 'x', 100000);
        /* Full to the last byte, so that heartbeats do not fit either; the stream is given up after some of them. */
        for (size_t n = 100000; n > 0; n /= 2)
                while (sse_post(streams[0], NULL, NULL, str_n(big, n)) == 0)
                        ;
        int64_t since = loop_now();
        while (!closed && loop_now() - since < MS_MAX)
                CHECK_INT(coro_sleep(10), 0);
        CHECK_INT(closed, 1);
        free(big);
        wire_close(w);
        serve_end();
}

static void do_stop(void *arg)
{
        start();
        struct wire *w = ask("/quiet");

        wire_expect(w, "\r\n\r\n");
        while (!streams[0])
                CHECK_INT(coro_sleep(1), 0);
        http_server_stop(server, 1000);
        CHECK_INT(closed, 1);
        http_server_free(server);
        CHECK(has(wire_rest(w), "0\r\n\r\n"));
        wire_close(w);
}

static void do_many(void *arg)
{
        struct wire **w = xcalloc(STREAMS, sizeof(struct wire *));
        struct http_stats st;

        start();
        for (size_t i = 0; i < STREAMS; i++)
                w[i] = ask("/beat");
        for (size_t i = 0; i < STREAMS; i++)
                wire_expect(w[i], "\r\n\r\n");
        while (detached < STREAMS)
                CHECK_INT(coro_sleep(5), 0);
        CHECK(coro_count() < 10);
        for (int round = 0; round < 2; round++)
                for (size_t i = 0; i < STREAMS; i++)
                        wire_expect(w[i], "3\r\n:\n\n\r\n");
        int64_t since = loop_now();
        for (size_t i = 0; i < STREAMS; i++)
                wire_expect(w[i], "3\r\n:\n\n\r\n");
        CHECK(loop_now() - since < 2000);
        for (size_t i = 0; i < STREAMS; i += 2)
                wire_close(w[i]);
        while (closed < STREAMS / 2)
                CHECK_INT(coro_sleep(5), 0);
        http_server_stats(server, &st);
        CHECK_INT(st.connections_open, STREAMS / 2);
        for (size_t i = 1; i < STREAMS; i += 2)
                wire_close(w[i]);
        while (closed < STREAMS)
                CHECK_INT(coro_sleep(5), 0);
        free(w);
        serve_end();
}

#define TEST(name)                            \
        static void test_##name(void **state) \
        {                                     \
                run(do_##name, NULL);         \
        }

TEST(plain)
TEST(detached)
TEST(late)
TEST(slow_peer)
TEST(stop)
TEST(many)

int main(void)
{
        const struct CMUnitTest tests[] = { LOOP_TEST(test_plain),     LOOP_TEST(test_detached), LOOP_TEST(test_late),
                                            LOOP_TEST(test_slow_peer), LOOP_TEST(test_stop),     LOOP_TEST(test_many) };
        struct rlimit files;

        /* Both ends of each stream are in this process. */
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        if (files.rlim_cur < 2 * STREAMS + 100 || setrlimit(RLIMIT_NOFILE, &files) < 0) {
                fprintf(stderr, "skipped: %d open files are not allowed here\n", 2 * STREAMS + 100);
                return 77;
        }
        return cmocka_run_group_tests_name("http events", tests, NULL, NULL);
}
