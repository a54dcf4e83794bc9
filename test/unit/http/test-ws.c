/* WebSocket: our server side against frames written by hand (RFC 6455 §5). */
#include "http-test.h"

#include "http/ws.h"

#define H "Host: a\r\n"
#define HANDSHAKE                                                                                \
        "GET / HTTP/1.1\r\n" H                                                                   \
        "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n" \
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: other, binary\r\n\r\n"

static int last; /* what ws_recv said at the end */

static void coroutine_fn spam(void *arg)
{
        struct ws *w = arg;

        for (int i = 0; i < 50; i++)
                CHECK_INT(ws_send(w, false, "spam", 4), 0);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct ws *w;

        last = 1;
        if (ws_accept(c, "binary", 200000, &w) < 0)
                return;
        while ((last = ws_recv(w, &b, MS_MAX)) > 0) {
                struct str s = buf_str(&b);

                if (str_eq(s, STR("bye"))) {
                        ws_close(w, 1001, "going");
                        break;
                }
                if (str_eq(s, STR("spam")))
                        CHECK(coro_start(spam, w, 0, "spam") != NULL);
                if (ws_send(w, last == 2, s.p, s.n) < 0)
                        break;
        }
        ws_free(w);
}

static void frame(struct wire *w, unsigned first, const char *p, size_t n)
{
        struct buf b = BUF_MAX(1 << 20);
        static const unsigned char mask[4] = { 1, 2, 3, 4 };

        CHECK_INT(buf_addc(&b, (char) first), 0);
        if (n < 126) {
                CHECK_INT(buf_addc(&b, (char) (0x80 | n)), 0);
        } else if (n < 65536) {
                unsigned char len[3] = { 0x80 | 126, (unsigned char) (n >> 8), (unsigned char) n };
                CHECK_INT(buf_add(&b, len, 3), 0);
        } else {
                unsigned char len[9] = {
                        0x80 | 127,       0, 0, 0, 0, 0, (unsigned char) (n >> 16), (unsigned char) (n >> 8),
                        (unsigned char) n
                };
                CHECK_INT(buf_add(&b, len, 9), 0);
        }
        CHECK_INT(buf_add(&b, mask, 4), 0);
        for (size_t i = 0; i < n; i++)
                CHECK_INT(buf_addc(&b, (char) (p[i] ^ mask[i % 4])), 0);
        CHECK_INT(stream_write(w->s, b.p, b.len, MS_MAX), 0);
        buf_done(&b);
}

static struct wire *open_ws(void)
{
        struct wire *w = wire_open();

        wire_send(w, HANDSHAKE);
        wire_expect(w, "HTTP/1.1 101 ");
        wire_expect(w, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"); /* the example of §1.3 */
        wire_expect(w, "Sec-WebSocket-Protocol: binary\r\n\r\n");
        return w;
}

static void do_echo(void *arg)
{
        serve_with(NULL, handler);
        struct wire *w = open_ws();
        char *big = xcalloc(1, 100001);

        frame(w, 0x81, "hello", 5);
        wire_expect(w, "\x81\x05hello");
        frame(w, 0x82, "\x80\xff", 2);
        wire_expect(w, "\x82\x02\x80\xff");
        frame(w, 0x01, "frag", 4); /* in three parts, a ping between them */
        frame(w, 0x00, "men", 3);
        frame(w, 0x89, "ping", 4);
        wire_expect(w, "\x8a\x04ping");
        frame(w, 0x80, "ted", 3);
        wire_expect(w, "\x81\x0a"
                       "fragmented");
        frame(w, 0x81, "", 0);
        frame(w, 0x81, "x", 1);
        wire_expect(w, "\x81");
        wire_expect(w, "\x81\x01x");
        memset(big, 'b', 100000);
        frame(w, 0x81, big, 100000);
        wire_expect(w, "\x81\x7f");
        wire_expect(w, big + 1);
        frame(w, 0x81, "spam", 4); /* two writers at once: frames stay whole */
        for (int i = 0; i < 51; i++)
                wire_expect(w, "\x81\x04spam");
        frame(w, 0x81, "bye", 3);
        wire_expect(w, "\x88\x07\x03\xe9going");
        frame(w, 0x88, "\x03\xe9", 2);
        CHECK(cstr_eq(wire_rest(w), ""));
        free(big);
        wire_close(w);
        serve_end();
}

static void ended(struct wire *w, int expect)
{
        (void) wire_rest(w);
        wire_close(w);
        for (int i = 0; last > 0 && i < 1000; i++)
                CHECK_INT(coro_sleep(2), 0);
        CHECK_INT(last, expect);
}

static void do_ends(void *arg)
{
        char *big = xcalloc(1, 200001);

        serve_with(NULL, handler);
        struct wire *w = open_ws();
        frame(w, 0x88, "\x03\xe8", 2); /* a close is answered with the same code */
        wire_expect(w, "\x88\x02\x03\xe8");
        ended(w, 0);

        w = open_ws();
        frame(w, 0x82, big, 200001); /* too large: 1009 */
        wire_expect(w, "\x88\x02\x03\xf1");
        ended(w, -EPROTO);

        w = open_ws();
        for (int i = 0; i < 3; i++) /* too large in parts */
                frame(w, i ? 0x00 : 0x02, big, 80000);
        wire_expect(w, "\x88\x02\x03\xf1");
        ended(w, -EPROTO);

        w = open_ws();
        CHECK_INT(stream_write(w->s, "\x81\x05hello", 7, MS_MAX), 0); /* not masked, §5.1 */
        wire_expect(w, "\x88\x02\x03\xea");
        ended(w, -EPROTO);

        w = open_ws();
        frame(w, 0x81, "\xff\xfe", 2); /* text that is no UTF-8: 1007 */
        wire_expect(w, "\x88\x02\x03\xef");
        ended(w, -EPROTO);

        w = open_ws();
        frame(w, 0xf1, "x", 1); /* reserved bits */
        wire_expect(w, "\x88\x02\x03\xea");
        ended(w, -EPROTO);

        w = open_ws();
        wire_close(w); /* without a word */
        for (int i = 0; last > 0 && i < 1000; i++)
                CHECK_INT(coro_sleep(2), 0);
        CHECK(last == -EPIPE || last == -ECONNRESET);
        free(big);
        serve_end();
}

static void do_handshake(void *arg)
{
        serve_with(NULL, handler);
        struct wire *w = wire_open();

        wire_send(w, "GET / HTTP/1.1\r\n" H "\r\n");
        wire_expect(w, "HTTP/1.1 426 Upgrade Required\r\n");
        wire_expect(w, "Sec-WebSocket-Version: 13\r\n");
        wire_expect(w, "}");
        wire_send(w, "GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
        wire_expect(w, "HTTP/1.1 426 ");
        wire_expect(w, "}");
        wire_send(w, "GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: c2hvcnQ=\r\n\r\n");
        wire_expect(w, "HTTP/1.1 400 ");
        wire_close(w);
        serve_end();
}

#define TEST(name)                            \
        static void test_##name(void **state) \
        {                                     \
                run(do_##name, NULL);         \
        }

TEST(echo)
TEST(ends)
TEST(handshake)

int main(void)
{
        const struct CMUnitTest tests[] = { LOOP_TEST(test_echo), LOOP_TEST(test_ends), LOOP_TEST(test_handshake) };

        return cmocka_run_group_tests_name("http websocket", tests, NULL, NULL);
}
