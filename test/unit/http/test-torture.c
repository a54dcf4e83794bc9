/*
 * The n-th allocation of a size a stranger chose fails, for every n until nothing fails any more: the server may cut
 * that connection or answer 500, and must serve the next one as if nothing had been. The client is a thread with
 * blocking sockets, which allocates nothing that could be hit.
 */
#include "http-test.h"

#include "http/ws.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>

#define H "Host: a\r\n"
#define ROUNDS_MAX 400

static const char script[] =
        "GET /hello?a=b HTTP/1.1\r\n" H "\r\n"
        "POST /all HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
        "POST /all HTTP/1.1\r\n" H "Content-Length: 4\r\n\r\nabcd"
        "GET /stream HTTP/1.1\r\n" H "\r\n"
        "GET /events HTTP/1.1\r\n" H "\r\n"
        "GET /ws HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        "\x81\x84\0\0\0\0ping";

static void on_close(void *arg)
{
        *(bool *) arg = true;
}

static void coroutine_fn events(struct call *c)
{
        bool closed = false;

        if (sse_start(c) < 0 || sse_event(c, "a", NULL, STR("b")) < 0)
                return;
        struct sse *s = sse_detach(c, 1000, on_close, &closed);
        if (!s)
                return;
        (void) sse_post(s, NULL, NULL, STR("x"));
        if (!closed)
                sse_close(s);
        CHECK(closed);
}

static void coroutine_fn socket_echo(struct call *c)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1000);
        struct ws *w;
        int r;

        if (ws_accept(c, NULL, 1000, &w) < 0)
                return;
        while ((r = ws_recv(w, &b, 2000)) > 0)
                if (ws_send(w, r == 2, b.p, b.len) < 0)
                        break;
        ws_free(w);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        struct str p = call_path(c);

        if (str_eq(p, STR("/all"))) {
                _cleanup_buf_ struct buf b = BUF_MAX(100);
                struct err e;

                if (call_read_all(c, &b, &e) < 0)
                        (void) call_reply_error(c, 500, "internal", "%s", err_text(&e));
                else
                        (void) call_reply(c, 200, NULL, b.p, b.len);
        } else if (str_eq(p, STR("/stream"))) {
                if (call_start(c, 200, "text/plain", -1) == 0)
                        (void) call_write(c, "abc", 3);
        } else if (str_eq(p, STR("/events"))) {
                events(c);
        } else if (str_eq(p, STR("/ws"))) {
                socket_echo(c);
        } else {
                (void) call_add_header(c, "X", "y");
                (void) call_reply(c, 200, NULL, "hello", 5);
        }
}

struct client {
        pthread_t thread;
        volatile bool done;
        bool whole; /* everything was answered, to the end of the WebSocket */
};

static void *client_main(void *arg)
{
        struct client *x = arg;
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct timeval limit = { .tv_sec = 10 };
        static char in[65536];
        size_t n = 0;
        ssize_t r;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
        CHECK_INT(connect(fd, (struct sockaddr *) (void *) &to, sizeof to), 0);
        CHECK_INT(send(fd, script, sizeof script - 1, MSG_NOSIGNAL), sizeof script - 1);
        while ((r = recv(fd, in + n, sizeof in - n, 0)) > 0) {
                n += (size_t) r;
                if (n >= 6 && memcmp(in + n - 6, "\x81\x04ping", 6) == 0)
                        CHECK_INT(send(fd, "\x88\x82\0\0\0\0\x03\xe8", 8, MSG_NOSIGNAL), 8);
        }
        CHECK(r == 0 || errno == ECONNRESET);
        close(fd);
        x->whole = memmem(in, n, "\x81\x04ping", 6) && memmem(in, n, "\x88\x02\x03\xe8", 4);
        x->done = true;
        return NULL;
}

static bool exchange(void)
{
        struct client x = { 0 };

        CHECK_INT(pthread_create(&x.thread, NULL, client_main, &x), 0);
        while (!x.done)
                CHECK_INT(coro_sleep(1), 0);
        pthread_join(x.thread, NULL);
        return x.whole;
}

static void do_torture(void *arg)
{
        unsigned n = 1, clean = 0;

        serve_with(NULL, handler);
        for (; n < ROUNDS_MAX && clean < 5; n++) {
                mem_fail_after(n);
                bool whole = exchange();
                mem_fail_after(0);
                clean = whole ? clean + 1 : 0;
                CHECK(exchange());
        }
        fprintf(stderr, "%u rounds\n", n);
        CHECK(n > 10 && n < ROUNDS_MAX);
        serve_end();
}

static void test_torture(void **state)
{
        run(do_torture, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = { LOOP_TEST(test_torture) };

        return cmocka_run_group_tests_name("http torture", tests, NULL, NULL);
}
