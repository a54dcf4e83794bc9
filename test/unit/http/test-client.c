/* The client against our own server and against raw listeners that misbehave. */
#include "http-test.h"

#include <sys/resource.h>

/* Freed memory must not hide in ASan's quarantine while we measure. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
        return "quarantine_size_mb=4";
}

#define BIG ((size_t) 100 << 20)

static size_t received;

static void coroutine_fn count(struct call *c)
{
        char *p = xmalloc(65536), text[32];
        ssize_t n;

        received = 0;
        while ((n = call_read(c, p, 65536)) > 0)
                received += (size_t) n;
        free(p);
        if (n < 0)
                return;
        int len = snprintf(text, sizeof text, "%zu", received);
        (void) call_reply(c, 200, "text/plain", text, (size_t) len);
}

static void coroutine_fn echo(struct call *c)
{
        char *p = xmalloc(65536);
        ssize_t n = call_start(c, 200, "x/y", -1);

        while (n == 0 && (n = call_read(c, p, 65536)) > 0)
                n = call_write(c, p, (size_t) n);
        free(p);
}

static void coroutine_fn big(struct call *c)
{
        char *p = xcalloc(1, 65536);
        int r = call_start(c, 200, "x/y", -1);

        for (size_t i = 0; r == 0 && i < BIG; i += 65536)
                r = call_write(c, p, 65536);
        free(p);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        struct str p = call_path(c);

        if (str_eq(p, STR("/count")))
                count(c);
        else if (str_eq(p, STR("/echo")))
                echo(c);
        else if (str_eq(p, STR("/big")))
                big(c);
        else if (str_eq(p, STR("/slow")))
                (void) coro_sleep(300);
        else if (str_eq(p, STR("/early"))) /* an answer before the body */
                (void) call_reply(c, 403, "text/plain", "no", 2);
        else if (str_eq(p, STR("/host")))
                (void) call_reply(c, 200, NULL, call_host(c).p, call_host(c).n);
        else
                (void) call_reply(c, 200, "text/plain", "hello", 5);
}

static struct http_client *client(void)
{
        struct url u = origin();

        return http_client_new(&u);
}

static void get(struct http_client *h, const struct http_request *q, unsigned status, const char *body)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct hc *x = NULL;
        struct err e = { 0 };
        bool not_sent = true;

        if (hc_open(h, q, &x, &not_sent, &e) < 0 || hc_answer(x, &e) < 0 || hc_read_all(x, &b, MS_MAX, &e) < 0) {
                fprintf(stderr, "%s %s: %s\n", q->method, q->path, err_text(&e));
                abort();
        }
        CHECK(!not_sent);
        CHECK_INT(hc_status(x), status);
        if (body && strcmp(buf_cstr(&b), body) != 0) {
                fprintf(stderr, "%s instead of %s\n", buf_cstr(&b), body);
                abort();
        }
        hc_close(x);
}

#define GET(p) (&(struct http_request){ .method = "GET", .path = p })

static void do_reuse(void *arg)
{
        struct http_stats st;

        serve_with(NULL, handler);
        struct http_client *h = client();
        for (int i = 0; i < 5; i++)
                get(h, GET("/"), 200, "hello");
        get(h, &(struct http_request){ .method = "HEAD", .path = "/" }, 200, "");
        get(h, &(struct http_request){ .method = "POST", .path = "/count", .body = "abc", .body_len = 3 }, 200, "3");
        get(h, &(struct http_request){ .method = "POST", .path = "/count" }, 200, "0");
        http_server_stats(server, &st);
        CHECK_INT(st.connections_total, 1);
        get(h, &(struct http_request){ .method = "GET", .path = "/", .fresh = true }, 200, "hello");
        http_server_stats(server, &st);
        CHECK_INT(st.connections_total, 2);
        const char *const headers[] = { "Host", "example.test:80", "X", "y", NULL };
        get(h, &(struct http_request){ .method = "GET", .path = "/host", .headers = headers }, 200, "example.test:80");
        /* Not read to its end: the connection is not kept. */
        struct hc *x;
        struct err e;
        char c;
        CHECK_INT(hc_open(h, GET("/big"), &x, NULL, &e), 0);
        CHECK_INT(hc_answer(x, &e), 0);
        CHECK_INT(hc_read(x, &c, 1, MS_MAX), 1);
        hc_close(x);
        get(h, GET("/"), 200, "hello");
        http_client_free(h);
        serve_end();
}

static void do_refused(void *arg)
{
        const char *const cl[] = { "Content-Length", "3", NULL }, *const split[] = { "X", "a\r\nY: b", NULL };
        struct err e;
        struct hc *x;
        bool not_sent = false;

        serve_with(NULL, handler);
        struct http_client *h = client();
        CHECK_INT(hc_open(h, &(struct http_request){ .method = "GET", .path = "/", .headers = cl }, &x, &not_sent, &e),
                  -EINVAL);
        CHECK(not_sent);
        CHECK_INT(hc_open(h, &(struct http_request){ .method = "GET", .path = "/", .headers = split }, &x, NULL, &e),
                  -EINVAL);
        CHECK_INT(hc_open(h, GET("/a b"), &x, NULL, &e), -EINVAL);
        get(h, GET("/"), 200, "hello");
        serve_end();
        not_sent = false;
        CHECK_INT(hc_open(h, GET("/"), &x, &not_sent, &e), -ECONNREFUSED);
        CHECK(not_sent);
        http_client_free(h);
}

/* 100 MiB through, and back at the same time, with a bounded amount of memory on both sides (which are one process
 * here). */
static void coroutine_fn feed(void *arg)
{
        struct hc *x = arg;
        char *p = xcalloc(1, 65536);

        for (size_t i = 0; i < BIG; i += 65536)
                CHECK_INT(hc_write(x, p, 65536), 0);
        CHECK_INT(hc_write_end(x), 0);
        free(p);
}

static long peak_kib(void)
{
        struct rusage u;

        getrusage(RUSAGE_SELF, &u);
        return u.ru_maxrss;
}

static void do_big(void *arg)
{
        struct hc *x;
        struct err e;

        serve_with(NULL, handler);
        struct http_client *h = client();
        get(h, GET("/"), 200, "hello");
        long before = peak_kib();
        const struct http_request up = { .method = "POST", .path = "/count", .streamed = true };
        CHECK_INT(hc_open(h, &up, &x, NULL, &e), 0);
        feed(x);
        CHECK_INT(hc_answer(x, &e), 0);
        CHECK_INT(received, BIG);
        _cleanup_buf_ struct buf text = BUF_MAX(100);
        CHECK_INT(hc_read_all(x, &text, MS_MAX, &e), 0);
        CHECK(cstr_eq(buf_cstr(&text), "104857600"));
        hc_close(x);

        const struct http_request both = { .method = "POST", .path = "/echo", .streamed = true };
        CHECK_INT(hc_open(h, &both, &x, NULL, &e), 0);
        CHECK(coro_start(feed, x, 0, "feed") != NULL);
        CHECK_INT(hc_answer(x, &e), 0);
        char *p = xmalloc(65536);
        size_t total = 0;
        ssize_t n;
        while ((n = hc_read(x, p, 65536, MS_MAX)) > 0)
                total += (size_t) n;
        CHECK_INT(n, 0);
        CHECK_INT(total, BIG);
        hc_close(x);

        CHECK_INT(hc_open(h, GET("/big"), &x, NULL, &e), 0);
        CHECK_INT(hc_answer(x, &e), 0);
        for (total = 0; (n = hc_read(x, p, 65536, MS_MAX)) > 0;)
                total += (size_t) n;
        CHECK_INT(total, BIG);
        hc_close(x);
        free(p);
        fprintf(stderr, "3 x 100 MiB: peak grew by %ld KiB\n", peak_kib() - before);
        CHECK(peak_kib() - before < 24 << 10);
        struct http_stats st;
        http_server_stats(server, &st);
        CHECK_INT(st.connections_total, 1);
        http_client_free(h);
        serve_end();
}

/* An answer that comes while the body is still being written: it arrives, and the writer is told. */
static void do_early(void *arg)
{
        char *p = xcalloc(1, 65536);
        struct hc *x;
        struct err e;
        serve_with(NULL, handler);
        struct http_client *h = client();
        const struct http_request q = { .method = "POST", .path = "/early", .streamed = true };
        CHECK_INT(hc_open(h, &q, &x, NULL, &e), 0);
        CHECK_INT(hc_write(x, p, 1000), 0);
        CHECK_INT(hc_answer(x, &e), 0);
        CHECK_INT(hc_status(x), 403);
        hc_close(x); /* not sent whole: not kept */
        free(p);
        http_client_free(h);
        serve_end();
}

static void coroutine_fn abort_soon(void *arg)
{
        CHECK_INT(coro_sleep(20), 0);
        hc_abort(arg);
}

static void do_abort(void *arg)
{
        struct hc *x;
        struct err e;

        serve_with(NULL, handler);
        struct http_client *h = client();
        CHECK_INT(hc_open(h, GET("/slow"), &x, NULL, &e), 0);
        CHECK(coro_start(abort_soon, x, 0, "abort") != NULL);
        CHECK_INT(hc_answer(x, &e), -ECANCELED);
        CHECK_INT(hc_answer(x, &e), -ECANCELED);
        CHECK_INT(hc_read(x, &e, 1, MS_MAX), -ECANCELED);
        hc_close(x);
        const struct http_request q = { .method = "GET", .path = "/slow", .answer_ms = 30 };
        CHECK_INT(hc_open(h, &q, &x, NULL, &e), 0);
        CHECK_INT(hc_answer(x, &e), -ETIMEDOUT);
        hc_close(x);
        http_client_free(h);
        serve_end();
}

/* A server of fixed answers: each connection gets the next script, one piece per head that arrives. */
struct script {
        const char *const *pieces; /* one connection: answers to its requests, NULL ends it; then the next connection */
        struct listener *l;
        int connections;
};

static void coroutine_fn play(void *arg)
{
        struct stream *s = arg;
        extern struct script script;
        char p[4096];

        script.connections++;
        while (*script.pieces) {
                ssize_t n = stream_read(s, p, sizeof p, MS_MAX);

                if (n <= 0)
                        break;
                const char *piece = *script.pieces++;
                if (stream_write(s, piece, strlen(piece), MS_MAX) < 0)
                        break;
        }
        if (!*script.pieces)
                script.pieces++;
        stream_close_after_flush(s, 1000);
}

struct script script;

static void on_accept(struct stream *s, void *arg)
{
        CHECK(coro_start(play, s, 0, "play") != NULL);
}

static void play_start(const char *const *pieces)
{
        script = (struct script){ .pieces = pieces };
        CHECK_INT(listen_tcp("127.0.0.1", 0, 16, on_accept, NULL, &script.l, NULL), 0);
        port = listener_port(script.l);
}

#define OK(n, body) "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\n\r\n" body

static void do_retry(void *arg)
{
        /* The first connection answers once and ends; the question after that must come again on a second one. */
        static const char *const pieces[] = {
                OK(1, "a"), "", NULL, OK(1, "b"), OK(1, "c") "x", NULL, OK(1, "d"), NULL
        };
        struct http_client *h;

        play_start(pieces);
        h = client();
        get(h, GET("/"), 200, "a");
        get(h, GET("/"), 200, "b"); /* its first try was read and not answered */
        CHECK_INT(script.connections, 2);
        get(h, GET("/"), 200, "c");
        get(h, GET("/"), 200, "d"); /* bytes nobody asked for: that connection is not used again */
        CHECK_INT(script.connections, 3);
        http_client_free(h);
        listener_close(script.l);
}

static void do_bad_answers(void *arg)
{
        static const char *const pieces[] = {
                "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
                NULL,
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
                NULL,
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil the end",
                NULL,
                "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
                NULL,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                NULL,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc",
                NULL,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nraw",
                NULL,
        };
        static const int expect[] = { -EPROTO, -EPROTO, 0, -EPIPE, -EPIPE, -EPROTO };

        play_start(pieces);
        struct http_client *h = client();
        for (size_t i = 0; i < ARRAY_LEN(expect); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(1000);
                struct hc *x;
                struct err e;

                CHECK_INT(hc_open(h, GET("/"), &x, NULL, &e), 0);
                int r = hc_answer(x, &e);
                if (r == 0)
                        r = hc_read_all(x, &b, MS_MAX, &e);
                CHECK_INT(r, expect[i]);
                if (r == 0)
                        CHECK(cstr_eq(buf_cstr(&b), "until the end"));
                CHECK(hc_take_stream(x) == NULL);
                hc_close(x);
        }
        struct hc *x;
        struct err e;
        char p[4];
        CHECK_INT(hc_open(h, GET("/"), &x, NULL, &e), 0);
        CHECK_INT(hc_answer(x, &e), 0);
        struct stream *s = hc_take_stream(x);
        hc_close(x);
        CHECK_INT(stream_read_full(s, p, 3, MS_MAX), 0);
        CHECK(memcmp(p, "raw", 3) == 0);
        stream_close(s);
        http_client_free(h);
        listener_close(script.l);
}

static int coroutine_fn dial_pair(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e)
{
        return stream_connect_tcp("127.0.0.1", *(unsigned *) arg, timeout_ms, ret, e);
}

static void do_dial(void *arg)
{
        struct url u;

        serve_with(NULL, handler);
        CHECK_INT(url_parse("http://box.internal:8080/", &u, NULL), 0);
        struct http_client *h = http_client_new(&u);
        http_client_set_dial(h, dial_pair, &port);
        get(h, GET("/host"), 200, "box.internal:8080");
        http_client_free(h);
        serve_end();
}

#define TEST(name)                            \
        static void test_##name(void **state) \
        {                                     \
                run(do_##name, NULL);         \
        }

TEST(reuse)
TEST(refused)
TEST(big)
TEST(early)
TEST(abort)
TEST(retry)
TEST(bad_answers)
TEST(dial)

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(test_reuse), LOOP_TEST(test_refused), LOOP_TEST(test_big),         LOOP_TEST(test_early),
                LOOP_TEST(test_abort), LOOP_TEST(test_retry),   LOOP_TEST(test_bad_answers), LOOP_TEST(test_dial),
        };

        return cmocka_run_group_tests_name("http client", tests, NULL, NULL);
}
