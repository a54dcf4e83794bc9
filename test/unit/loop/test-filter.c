/* What a filter such as TLS needs of stream_impl.h, shown by the smallest one: each byte is XORed on its way. */
#include "loop-test.h"

#include "loop/stream_impl.h"

#define MIB ((size_t) 1 << 20)

struct xorred {
        struct stream s;
        struct stream *inner;
        unsigned wants;
        char held[4096]; /* read from below, not yet asked for: bytes that no descriptor knows of */
        size_t held_off, held_len;
};

static struct xorred *self(const struct stream *s)
{
        return container_of(s, struct xorred, s);
}

static ssize_t xor_try_read(struct stream *s, void *p, size_t n)
{
        struct xorred *x = self(s);
        ssize_t r;

        if (x->held_len == 0) {
                r = stream_try_read(x->inner, x->held, sizeof(x->held));
                if (r <= 0)
                        return r;
                for (ssize_t i = 0; i < r; i++)
                        x->held[i] ^= 0x55;
                x->held_off = 0;
                x->held_len = (size_t) r;
        }
        n = min_size(n, x->held_len);
        memcpy(p, x->held + x->held_off, n);
        x->held_off += n;
        x->held_len -= n;
        return (ssize_t) n;
}

static ssize_t xor_try_write(struct stream *s, const void *p, size_t n)
{
        char block[1000];

        n = min_size(n, sizeof(block));
        for (size_t i = 0; i < n; i++)
                block[i] = ((const char *) p)[i] ^ 0x55;
        return stream_try_write(self(s)->inner, block, n);
}

static void xor_want(struct stream *s, unsigned events)
{
        struct xorred *x = self(s);

        x->wants = events;
        if ((events & STREAM_READABLE) && x->held_len > 0)
                stream_kick(s, STREAM_READABLE);
        stream_want(x->inner, events);
}

static void inner_ready(void *arg, unsigned events)
{
        struct xorred *x = arg;

        stream_ready(&x->s, events & (x->wants | STREAM_HANGUP));
}

static int xor_shutdown(struct stream *s)
{
        return stream_shutdown(self(s)->inner);
}

static void xor_close(struct stream *s)
{
        struct xorred *x = self(s);

        stream_set_ready(x->inner, NULL, NULL);
        stream_closep(&x->inner);
}

static int xor_fd(const struct stream *s)
{
        return stream_fd(self(s)->inner);
}

static const char *xor_peer(struct stream *s)
{
        return stream_peer(self(s)->inner);
}

static const struct stream_ops xor_ops = { .try_read = xor_try_read,
                                           .try_write = xor_try_write,
                                           .want = xor_want,
                                           .shutdown = xor_shutdown,
                                           .close = xor_close,
                                           .fd = xor_fd,
                                           .peer = xor_peer };

static struct stream *xor_new(struct stream *inner)
{
        struct xorred *x = xcalloc(1, sizeof(*x));

        stream_setup(&x->s, &xor_ops);
        x->inner = inner;
        stream_set_ready(inner, inner_ready, x);
        return &x->s;
}

/* Two filters, one at each end: what goes in comes out; in between it looks different. */
static void make_filtered(struct stream **a, struct stream **b)
{
        make_tcp_pair(a, b);
        *a = xor_new(*a);
        *b = xor_new(*b);
}

struct side {
        struct stream *s;
        bool done;
        int hangups, ends;
        struct buf got;
};

static void echo_all(void *arg)
{
        struct side *x = arg;
        char b[5000];
        ssize_t n;

        while ((n = stream_read(x->s, b, sizeof(b), MS_MAX)) > 0)
                CHECK_INT(stream_write(x->s, b, (size_t) n, MS_MAX), 0);
        CHECK_INT(n, 0);
        CHECK_INT(stream_flush(x->s, MS_MAX), 0);
        stream_close(x->s);
        x->done = true;
}

static void send_mib(void *arg)
{
        struct side *x = arg;
        _cleanup_free_ char *data = xmalloc(MIB);

        for (size_t i = 0; i < MIB; i++)
                data[i] = (char) (i * 31 >> 3);
        CHECK_INT(stream_write(x->s, data, MIB, MS_MAX), 0);
        CHECK_INT(stream_shutdown(x->s), 0);
        x->done = true;
}

static void through(void *arg)
{
        struct side a = { 0 }, b = { 0 };
        _cleanup_free_ char *got = xmalloc(MIB);
        char c;

        make_filtered(&a.s, &b.s);
        coro_start(echo_all, &b, 0, "echo");
        coro_start(send_mib, &a, 0, "send");
        CHECK_INT(stream_read_full(a.s, got, MIB, MS_MAX), 0);
        for (size_t i = 0; i < MIB; i++)
                CHECK(got[i] == (char) (i * 31 >> 3));
        CHECK_INT(stream_read(a.s, &c, 1, MS_MAX), 0);
        CHECK(a.done && b.done);
        CHECK(strncmp(stream_peer(a.s), "127.0.0.1:", 10) == 0);
        CHECK(stream_fd(a.s) >= 0);
        stream_close(a.s);
}

static void on_data(void *arg, const void *p, size_t n)
{
        CHECK_INT(buf_add(&((struct side *) arg)->got, p, n), 0);
}

static void on_end(void *arg, int r)
{
        CHECK_INT(r, 0);
        ((struct side *) arg)->ends++;
}

static void on_hangup(void *arg)
{
        ((struct side *) arg)->hangups++;
}

static void settle(void)
{
        CHECK_INT(coro_sleep(10), 0);
}

static void every_way_of_reading(void *arg)
{
        struct side a = { .got = BUF_MAX(1000) }, b = { 0 };
        char c[10];

        make_filtered(&a.s, &b.s);
        stream_watch(a.s, on_hangup, &a);
        CHECK_INT(stream_write(b.s, "watched-", 8, MS_MAX), 0);
        settle();
        CHECK_INT(a.hangups, 0);
        CHECK_INT(stream_read(a.s, c, 3, MS_MAX), 3);
        stream_passive(a.s, on_data, on_end, &a);
        CHECK_INT(stream_post(b.s, "passive-", 8, 100), 0);
        settle();
        CHECK(str_eq(buf_str(&a.got), STR("ched-passive-")));
        stream_pause(a.s, true);
        CHECK_INT(stream_post(b.s, "paused", 6, 100), 0);
        settle();
        CHECK_INT(a.got.len, 13);
        stream_pause(a.s, false);
        settle();
        CHECK(str_eq(buf_str(&a.got), STR("ched-passive-paused")));
        stream_passive(a.s, NULL, NULL, NULL);
        /* One byte of the filter's held ones at a time, though the descriptor is silent. */
        CHECK_INT(stream_write(b.s, "held", 4, MS_MAX), 0);
        for (int i = 0; i < 4; i++) {
                CHECK_INT(stream_read(a.s, c, 1, MS_MAX), 1);
                CHECK(c[0] == "held"[i]);
                if (i == 1)
                        stream_watch(a.s, NULL, NULL);
        }
        CHECK_INT(stream_read(a.s, c, 1, 10), -ETIMEDOUT);
        stream_watch(a.s, on_hangup, &a);
        stream_close(b.s);
        settle();
        CHECK_INT(a.hangups, 1);
        CHECK_INT(stream_read(a.s, c, 1, MS_MAX), 0);
        stream_close(a.s);
        buf_done(&a.got);
}

static void slow_reader(void *arg)
{
        struct stream *a, *b;
        _cleanup_free_ char *big = xcalloc(1, 16 * MIB);
        char c;

        make_filtered(&a, &b);
        CHECK_INT(stream_write(a, big, 16 * MIB, 30), -ETIMEDOUT);
        CHECK(stream_queued(a) <= 2 * STREAM_HIGH_WATER);
        stream_close(b);
        settle();
        CHECK(stream_write(a, big, 16 * MIB, MS_MAX) < 0);
        CHECK(stream_dead(a));
        CHECK(stream_read(a, &c, 1, MS_MAX) <= 0);
        stream_close(a);
}

static void read_then_closed(void *arg)
{
        struct side *x = arg;
        char c;

        CHECK_INT(stream_read(x->s, &c, 1, -1), -ECANCELED);
        x->done = true;
}

static void close_in_many_ways(void *arg)
{
        struct side a = { 0 }, b = { 0 };
        char text[4] = { 0 };

        make_filtered(&a.s, &b.s);
        coro_start(read_then_closed, &a, 0, "read");
        settle();
        CHECK(!a.done);
        stream_close(a.s);
        settle();
        CHECK(a.done);
        CHECK_INT(stream_read(b.s, text, 1, MS_MAX), 0);
        stream_close(b.s);

        make_filtered(&a.s, &b.s);
        CHECK_INT(stream_post(a.s, "bye", 3, 100), 0);
        stream_close_after_flush(a.s, MS_MAX);
        CHECK_INT(stream_read_full(b.s, text, 3, MS_MAX), 0);
        CHECK(strcmp(text, "bye") == 0);
        CHECK_INT(stream_read(b.s, text, 1, MS_MAX), 0);
        stream_close(b.s);
}

static void filters_carry_all_bytes(void **state)
{
        run(through, NULL);
}

static void filters_know_every_way_of_reading(void **state)
{
        run(every_way_of_reading, NULL);
}

static void filters_pass_back_pressure_on(void **state)
{
        run(slow_reader, NULL);
}

static void filters_close(void **state)
{
        run(close_in_many_ways, NULL);
}

/* Memory runs out in the middle of a message: an error, and no half message followed by others. */
static void queue_fails(void *arg)
{
        struct stream *a, *b;
        static char big[8 << 20];

        make_pair(&a, &b);
        mem_fail_after(1);
        CHECK_INT(stream_post(a, big, sizeof(big), sizeof(big)), -ENOMEM);
        mem_fail_after(0);
        CHECK(stream_dead(a));
        CHECK_INT(stream_post(a, "x", 1, 100), -ENOMEM);
        CHECK_INT(stream_write(a, "x", 1, 100), -ENOMEM);
        stream_close(a);
        mem_fail_after(1);
        CHECK_INT(stream_unread(b, "x", 1), -ENOMEM);
        mem_fail_after(1);
        CHECK(!coro_start(echo_all, NULL, 0, "no memory"));
        mem_fail_after(0);
        stream_close(b);
}

static void memory_may_run_out(void **state)
{
        run(queue_fails, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(filters_carry_all_bytes),
                LOOP_TEST(filters_know_every_way_of_reading),
                LOOP_TEST(filters_pass_back_pressure_on),
                LOOP_TEST(filters_close),
                LOOP_TEST(memory_may_run_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
