/* The server on the wire: framing, keep-alive, limits, time, hang-ups, stopping. */
#include "http-test.h"

#define H "Host: a\r\n"

static struct {
        int result;      /* of the call under test in the handler */
        int gone, ended; /* counted */
        bool go;
} seen;

static void coroutine_fn reply_path(struct call *c)
{
        struct str p = call_path(c);

        (void) call_reply(c, 200, "text/plain", p.p, p.n);
}

static void coroutine_fn read_some(struct call *c)
{
        char p[1000];
        ssize_t n;
        size_t total = 0;

        while ((n = call_read(c, p, sizeof p)) > 0)
                total += (size_t) n;
        seen.result = (int) n;
        if (n < 0)
                return;
        int len = snprintf(p, sizeof p, "read %zu", total);
        (void) call_reply(c, 200, "text/plain", p, (size_t) len);
}

static void coroutine_fn wait_cancelled(struct call *c)
{
        call_cancel_on_hangup(c, true);
        seen.result = coro_sleep(MS_MAX);
}

static void count_gone(void *arg)
{
        int *n = arg;

        ++*n;
}

static void coroutine_fn wait_told(struct call *c)
{
        call_on_gone(c, count_gone, &seen.gone);
        while (!call_gone(c) && !seen.go)
                CHECK_INT(coro_sleep(5), 0);
        (void) call_reply(c, 200, NULL, "late", 4);
}

static void coroutine_fn write_for_ever(struct call *c)
{
        char *p = xcalloc(1, 100000);

        seen.result = call_start(c, 200, "x/y", -1);
        while (seen.result == 0)
                seen.result = call_write(c, p, 100000);
        free(p);
}

static void coroutine_fn misuse(struct call *c)
{
        CHECK_INT(call_add_header(c, "X", "a\r\nY: b"), -EINVAL);
        CHECK_INT(call_add_header(c, "Content-Length", "3"), -EINVAL);
        CHECK_INT(call_add_header(c, "transfer-encoding", "chunked"), -EINVAL);
        CHECK_INT(call_add_header(c, "Set-Cookie", "a=b"), 0);
        CHECK_INT(call_add_header(c, "Set-Cookie", "c=d"), 0);
        CHECK_INT(call_write(c, "x", 1), -EINVAL);
        CHECK_INT(call_start(c, 200, NULL, 3), 0);
        CHECK_INT(call_start(c, 200, NULL, 3), -EALREADY);
        CHECK_INT(call_write(c, "abcd", 4), -EMSGSIZE);
        CHECK_INT(call_write(c, "abc", 3), 0);
        CHECK_INT(call_write(c, "d", 1), -EMSGSIZE);
        CHECK_INT(call_add_header(c, "X", "y"), -EINVAL);
}

static void coroutine_fn echo_raw(struct call *c)
{
        struct stream *s;
        char p[64];
        ssize_t n;

        if (call_upgrade(c, "echo", &s) < 0) {
                (void) call_reply_error(c, 400, "bad_request", "no upgrade asked for");
                return;
        }
        CHECK(cstr_eq(call_peer(c), ""));
        CHECK_INT(call_write(c, "x", 1), -EINVAL);
        while ((n = stream_read(s, p, sizeof p, MS_MAX)) > 0)
                CHECK_INT(stream_write(s, p, (size_t) n, MS_MAX), 0);
        stream_close(s);
}

static void coroutine_fn streamed(struct call *c)
{
        if (call_start(c, 200, "text/plain", -1) < 0 || call_write(c, "abc", 3) < 0)
                return;
        (void) coro_sleep(1);
        (void) call_write(c, "de", 2);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        struct str p = call_path(c);

        if (str_starts(p, STR("/read")))
                read_some(c);
        else if (str_eq(p, STR("/cancel")))
                wait_cancelled(c);
        else if (str_eq(p, STR("/told")))
                wait_told(c);
        else if (str_eq(p, STR("/ever")))
                write_for_ever(c);
        else if (str_eq(p, STR("/misuse")))
                misuse(c);
        else if (str_eq(p, STR("/attached"))) {
                char text[8];
                int n = snprintf(text, sizeof text, "%d", *(int *) call_attached(c));

                (void) call_reply(c, 200, "text/plain", text, (size_t) n);
        } else if (str_eq(p, STR("/raw")))
                echo_raw(c);
        else if (str_eq(p, STR("/stream")))
                streamed(c);
        else if (str_eq(p, STR("/short")))
                (void) (call_start(c, 200, NULL, 10) == 0 && call_write(c, "abc", 3));
        else if (str_eq(p, STR("/abort"))) {
                if (call_start(c, 200, NULL, -1) == 0 && call_write(c, "abc", 3) == 0)
                        call_abort(c);
        } else if (str_eq(p, STR("/nothing")))
                (void) call_reply(c, 204, NULL, NULL, 0);
        else if (!str_eq(p, STR("/silent")))
                reply_path(c);
        seen.ended++;
}

static void start(const struct http_limits *l)
{
        memset(&seen, 0, sizeof seen);
        serve_with(l, handler);
}

static void do_keep_alive(void *arg)
{
        struct http_stats st;
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "GET /a HTTP/1.1\r\n" H "\r\nPOST /read HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"
                     "POST /read HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
                     "GET /stream HTTP/1.1\r\n" H "\r\nHEAD /stream HTTP/1.1\r\n" H "\r\nGET /nothing HTTP/1.1\r\n" H
                     "\r\n"
                     "GET /%7Eb?q HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "HTTP/1.1 200 OK\r\nDate: ");
        wire_expect(w, "Content-Type: text/plain\r\nContent-Length: 2\r\nX-Content-Type-Options: nosniff\r\n\r\n/a"
                       "HTTP/1.1 200 OK\r\n");
        wire_expect(w, "\r\n\r\nread 3HTTP/1.1 200");
        wire_expect(w, "\r\n\r\nread 4HTTP/1.1 200");
        wire_expect(w, "Transfer-Encoding: chunked\r\n");
        wire_expect(w, "\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n");
        wire_expect(w,
                    "Transfer-Encoding: chunked\r\nX-Content-Type-Options: nosniff\r\n\r\nHTTP/1.1 204 No Content\r\n");
        wire_expect(w, "GMT\r\nX-Content-Type-Options: nosniff\r\n\r\nHTTP/1.1 200 OK\r\n");
        wire_expect(w, "\r\n\r\n/~b");
        http_server_stats(server, &st);
        CHECK_INT(st.requests, 7);
        CHECK_INT(st.connections_total, 1);
        wire_send(w, "GET /c HTTP/1.1\r\n" H "Connection: close\r\n\r\nGET /d HTTP/1.1\r\n" H "\r\n");
        CHECK(has(wire_rest(w), "Connection: close\r\n"));
        CHECK(strstr(wire_rest(w), "/d") == NULL);
        wire_close(w);
        serve_end();
}

static void do_old_version(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        wire_expect(w, "Connection: keep-alive\r\n");
        wire_expect(w, "\r\n\r\n/a");
        wire_send(w, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        wire_expect(w, "Connection: close\r\n");
        CHECK(has(wire_rest(w), "\r\n\r\nabcde"));
        CHECK(strstr(wire_rest(w), "chunked") == NULL);
        wire_close(w);
        serve_end();
}

static void refused(const char *request, const char *status, const char *code)
{
        struct wire *w = wire_open();

        wire_send(w, request);
        const char *all = wire_rest(w);
        CHECK(has(all, status) && has(all, code) && has(all, "Connection: close\r\n") && has(all, "{\"error\":\""));
        CHECK(has(all, "X-Content-Type-Options: nosniff\r\n"));
        wire_close(w);
}

static void do_refused(void *arg)
{
        struct http_stats st;
        start(NULL);
        char *big = xcalloc(1, 70000);

        memset(big, 'a', 9000);
        memcpy(big, "GET /", 5);
        refused(big, "HTTP/1.1 414 ", "\"code\":\"uri_too_long\"");
        memcpy(big, "GET / HTTP/1.1\r\nX:", 18);
        refused(big, "HTTP/1.1 431 ", "\"code\":\"headers_too_large\"");
        refused("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "\"code\":\"bad_request\"");
        refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505 ", "\"code\":\"version_not_supported\"");
        refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 ",
                "\"code\":\"not_implemented\"");
        refused("CONNECT a:1 HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 501 ", "\"code\":\"not_implemented\"");
        refused("POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 413 ",
                "\"code\":\"too_large\"");
        refused("POST /read HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\nabc", "HTTP/1.1 400 ",
                "\"code\":\"bad_request\"");
        CHECK_INT(seen.result, -EPROTO);
        http_server_stats(server, &st);
        CHECK_INT(st.refused, 7);
        free(big);
        serve_end();
}

static void do_time(void *arg)
{
        start(&(struct http_limits){ .head_ms = 100, .idle_ms = 100, .body_ms = 100 });
        struct wire *slow = wire_open(), *idle = wire_open(), *body = wire_open();

        wire_send(body, "POST /read HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nabc");
        int64_t since = loop_now();
        for (int i = 0; i < 6; i++) { /* a byte now and then does not buy time */
                wire_send(slow, "G");
                CHECK_INT(coro_sleep(20), 0);
        }
        const char *all = wire_rest(slow);
        CHECK(has(all, "HTTP/1.1 408 Request Timeout\r\n") && has(all, "\"code\":\"timeout\""));
        CHECK(loop_now() - since < 1000);
        CHECK(cstr_eq(wire_rest(idle), ""));
        CHECK(has(wire_rest(body), "HTTP/1.1 408 "));
        CHECK_INT(seen.result, -ETIMEDOUT);
        wire_close(slow);
        wire_close(idle);
        wire_close(body);
        serve_end();
}

static void do_expect(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "POST /read HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        wire_expect(w, "HTTP/1.1 100 Continue\r\n\r\n");
        CHECK_INT(w->in.len, 0);
        wire_send(w, "abc");
        wire_expect(w, "\r\n\r\nread 3");
        /* Not read: no invitation, and the connection ends, since nobody knows whether the body comes. */
        wire_send(w, "POST /x HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        const char *all = wire_rest(w);
        CHECK(str_starts(str_of(all), STR("HTTP/1.1 200 OK")) && has(all, "Connection: close\r\n"));
        wire_close(w);
        serve_end();
}

static void do_unread(void *arg)
{
        char *body = xcalloc(1, 8 << 20);
        start(NULL);
        struct wire *w = wire_open();

        memset(body, 'x', 8 << 20);
        wire_send(w, "POST /a HTTP/1.1\r\n" H "Content-Length: 200000\r\n\r\n");
        CHECK_INT(stream_write(w->s, body, 200000, MS_MAX), 0);
        wire_send(w, "POST /b HTTP/1.1\r\n" H
                     "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /c HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "\r\n\r\n/aHTTP/1.1 200 OK");
        wire_expect(w, "\r\n\r\n/bHTTP/1.1 200 OK");
        wire_expect(w, "\r\n\r\n/c");
        /* Too much to read away: an answer all the same, to a client that writes before it reads. */
        wire_send(w, "POST /d HTTP/1.1\r\n" H "Content-Length: 8388608\r\n\r\n");
        CHECK_INT(stream_write(w->s, body, 8 << 20, MS_MAX), 0);
        CHECK(has(wire_rest(w), "Connection: close\r\n"));
        wire_close(w);
        w = wire_open();
        wire_send(w, "POST /e HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n800000\r\n");
        CHECK_INT(stream_write(w->s, body, 8 << 20, MS_MAX), 0);
        CHECK(has(wire_rest(w), "\r\n\r\n/e"));
        wire_close(w);
        free(body);
        serve_end();
}

static void do_vanish(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "POST /read HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nabc");
        CHECK_INT(coro_sleep(20), 0);
        wire_close(w); /* mid-upload */
        CHECK_INT(coro_sleep(20), 0);
        CHECK(seen.result == -EPIPE || seen.result == -ECONNRESET);
        w = wire_open();
        wire_send(w, "GET /ever HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "HTTP/1.1 200");
        wire_close(w); /* mid-response */
        CHECK_INT(coro_sleep(50), 0);
        CHECK(seen.result == -EPIPE || seen.result == -ECONNRESET);
        w = wire_open();
        wire_send(w, "GET /cancel HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(coro_sleep(20), 0);
        wire_close(w);
        CHECK_INT(coro_sleep(20), 0);
        CHECK_INT(seen.result, -ECANCELED);
        w = wire_open();
        wire_send(w, "GET /told HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(coro_sleep(20), 0);
        CHECK_INT(seen.gone, 0);
        wire_close(w);
        CHECK_INT(coro_sleep(20), 0);
        CHECK_INT(seen.gone, 1);
        CHECK_INT(seen.ended, 4);
        struct http_stats st;
        http_server_stats(server, &st);
        CHECK_INT(st.connections_open, 0);
        serve_end();
}

/* A client that ends its side after the request still gets its answer. */
static void do_half_close(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "GET /stream HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(stream_shutdown(w->s), 0);
        CHECK(has(wire_rest(w), "2\r\nde\r\n0\r\n\r\n"));
        wire_close(w);
        serve_end();
}

static void do_caps(void *arg)
{
        start(&(struct http_limits){ .per_address = 2, .requests_running = 1 });
        struct wire *a = wire_open(), *b = wire_open(), *c = wire_open();
        const char *all = wire_rest(c);

        CHECK(has(all, "HTTP/1.1 503 ") && has(all, "Retry-After: ") && has(all, "\"code\":\"overloaded\""));
        wire_close(c);
        wire_send(a, "GET /told HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(coro_sleep(20), 0);
        wire_send(b, "GET /b HTTP/1.1\r\n" H "\r\n");
        CHECK(has(wire_rest(b), "HTTP/1.1 503 "));
        wire_close(b);
        seen.go = true;
        wire_expect(a, "\r\n\r\nlate");
        wire_close(a);
        CHECK_INT(coro_sleep(20), 0);
        a = wire_open(); /* the counts went down again */
        wire_send(a, "GET /a HTTP/1.1\r\n" H "\r\n");
        wire_expect(a, "\r\n\r\n/a");
        wire_close(a);
        serve_end();

        start(&(struct http_limits){ .connections = 1 });
        a = wire_open();
        b = wire_open();
        CHECK(has(wire_rest(b), "HTTP/1.1 503 "));
        wire_close(a);
        wire_close(b);
        serve_end();
}

static void do_misuse(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w,
                  "GET /misuse HTTP/1.1\r\n" H "\r\nGET /silent HTTP/1.1\r\n" H "\r\nGET /../x HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nabcHTTP/1.1 500 ");
        wire_expect(w, "\"code\":\"internal\"}HTTP/1.1 200");
        wire_expect(w, "Content-Length: 0\r\n"); /* no clean path, no path */
        wire_send(w, "GET /abort HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "3\r\nabc\r\n");
        CHECK(cstr_eq(wire_rest(w), ""));
        wire_close(w);
        w = wire_open();
        wire_send(w, "GET /short HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "Content-Length: 10\r\n");
        CHECK(has(wire_rest(w), "\r\n\r\nabc"));
        wire_close(w);
        serve_end();
}

static void do_upgrade(void *arg)
{
        start(NULL);
        struct wire *w = wire_open();

        wire_send(w, "GET /raw HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "HTTP/1.1 400 ");
        wire_expect(w, "}");
        wire_send(w, "GET /raw HTTP/1.1\r\n" H "Connection: upgrade\r\nUpgrade: echo\r\n\r\nearly");
        wire_expect(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nearly");
        wire_send(w, "late");
        wire_expect(w, "late");
        wire_close(w);
        serve_end();
}

static void coroutine_fn stop_now(void *arg)
{
        int64_t *took = arg;
        int64_t since = loop_now();

        http_server_stop(server, *took);
        *took = loop_now() - since;
}

static void do_stop(void *arg)
{
        int64_t took = 5000;
        start(NULL);
        struct wire *idle = wire_open(), *running = wire_open(), *half = wire_open();

        wire_send(running, "GET /told HTTP/1.1\r\n" H "\r\n");
        wire_send(half, "GET /told HT");
        CHECK_INT(coro_sleep(20), 0);
        CHECK(coro_start(stop_now, &took, 0, "stop") != NULL);
        CHECK(cstr_eq(wire_rest(idle), ""));
        CHECK(cstr_eq(wire_rest(half), ""));
        struct stream *s;
        CHECK_INT(stream_connect_tcp("127.0.0.1", port, MS_MAX, &s, NULL), -ECONNREFUSED);
        CHECK_INT(coro_sleep(100), 0);
        seen.go = true;
        const char *all = wire_rest(running);
        CHECK(has(all, "\r\n\r\nlate") && has(all, "Connection: close\r\n"));
        while (took == 5000)
                CHECK_INT(coro_sleep(5), 0);
        CHECK(took >= 90 && took < 2000);
        http_server_free(server);
        wire_close(idle);
        wire_close(half);
        wire_close(running);

        start(NULL); /* one that does not end by itself */
        running = wire_open();
        wire_send(running, "GET /cancel HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(coro_sleep(20), 0);
        http_server_stop(server, 50);
        CHECK_INT(seen.result, -ECANCELED);
        CHECK(cstr_eq(wire_rest(running), ""));
        wire_close(running);
        http_server_free(server);

        start(NULL); /* without stopping first */
        running = wire_open();
        wire_send(running, "GET /cancel HTTP/1.1\r\n" H "\r\n");
        CHECK_INT(coro_sleep(20), 0);
        http_server_free(server);
        CHECK_INT(coro_sleep(20), 0);
        CHECK_INT(seen.result, -ECANCELED);
        wire_close(running);
}

static void do_take(void *arg)
{
        struct wire *w = xcalloc(1, sizeof *w);
        struct stream *theirs;
        int pair[2], freed = 0;

        start(NULL);
        w->in = BUF_MAX(16 << 20);
        CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        CHECK_INT(stream_from_fd(pair[0], &w->s, NULL), 0);
        CHECK_INT(stream_from_fd(pair[1], &theirs, NULL), 0);
        http_server_take(server, theirs, &freed, count_gone);
        wire_send(w, "GET /attached HTTP/1.1\r\n" H "\r\nGET /a HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "\r\n\r\n0HTTP/1.1 200 OK\r\n");
        wire_expect(w, "\r\n\r\n/a");
        CHECK_INT(freed, 0);
        wire_close(w);
        while (!freed)
                CHECK_INT(coro_sleep(1), 0);
        CHECK_INT(freed, 1);
        serve_end();
        CHECK_INT(freed, 1);
}

#define TEST(name)                            \
        static void test_##name(void **state) \
        {                                     \
                run(do_##name, NULL);         \
        }

TEST(keep_alive)
TEST(old_version)
TEST(refused)
TEST(time)
TEST(expect)
TEST(unread)
TEST(vanish)
TEST(half_close)
TEST(caps)
TEST(misuse)
TEST(upgrade)
TEST(stop)
TEST(take)

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(test_keep_alive), LOOP_TEST(test_old_version), LOOP_TEST(test_refused),
                LOOP_TEST(test_time),       LOOP_TEST(test_expect),      LOOP_TEST(test_unread),
                LOOP_TEST(test_vanish),     LOOP_TEST(test_half_close),  LOOP_TEST(test_caps),
                LOOP_TEST(test_misuse),     LOOP_TEST(test_upgrade),     LOOP_TEST(test_stop),
                LOOP_TEST(test_take),
        };

        return cmocka_run_group_tests_name("http server", tests, NULL, NULL);
}
