#include "loop-test.h"

#define MIB ((size_t) 1 << 20)

struct end {
        struct stream *s;
        size_t send, got;
        unsigned seed;
        bool half_close, done;
        int result;
};

static void send_all(void *arg)
{
        struct end *e = arg;
        _cleanup_free_ unsigned *data = xmalloc(e->send);

        for (size_t i = 0; i < e->send / sizeof(unsigned); i++)
                data[i] = e->seed * (unsigned) i;
        CHECK_INT(stream_write(e->s, data, e->send, MS_MAX), 0);
        CHECK_INT(stream_shutdown(e->s), 0);
        e->done = true;
}

static void receive(struct end *e, size_t n, unsigned seed)
{
        _cleanup_free_ unsigned *data = xmalloc(n);
        char c;

        CHECK_INT(stream_read_full(e->s, data, n, MS_MAX), 0);
        for (size_t i = 0; i < n / sizeof(unsigned); i++)
                CHECK(data[i] == seed * (unsigned) i);
        CHECK_INT(stream_read(e->s, &c, 1, MS_MAX), 0);
}

struct tunnel {
        struct stream *a, *b;
        int64_t idle;
        int result;
        bool done;
};

static void tunnel(void *arg)
{
        struct tunnel *t = arg;

        t->result = pump_both(t->a, t->b, t->idle);
        t->done = true;
        stream_close(t->a);
        stream_close(t->b);
}

static void open_tunnel(struct tunnel *t, struct end *left, struct end *right)
{
        make_tcp_pair(&left->s, &t->a);
        make_pair(&t->b, &right->s);
}

static void until(const bool *done)
{
        for (int i = 0; i < 5000 && !*done; i++)
                CHECK_INT(coro_sleep(1), 0);
        CHECK(*done);
}

static void both_ways(void *arg)
{
        struct tunnel t = { .idle = MS_MAX };
        struct end left = { .send = 3 * MIB, .seed = 3 }, right = { .send = 2 * MIB, .seed = 5 };

        open_tunnel(&t, &left, &right);
        coro_start(tunnel, &t, 0, "tunnel");
        coro_start(send_all, &left, 0, "left");
        coro_start(send_all, &right, 0, "right");
        receive(&left, 2 * MIB, 5);
        receive(&right, 3 * MIB, 3);
        until(&t.done);
        CHECK_INT(t.result, 0);
        stream_close(left.s);
        stream_close(right.s);
}

static void both_ways_with_all_bytes(void **state)
{
        run(both_ways, NULL);
}

/* One side has said all; the other may answer for as long as it likes. */
static void half_close(void *arg)
{
        struct tunnel t = { .idle = MS_MAX };
        struct end left = { .send = 8, .seed = 1 }, right = { .send = MIB, .seed = 9 };

        open_tunnel(&t, &left, &right);
        coro_start(tunnel, &t, 0, "tunnel");
        coro_start(send_all, &left, 0, "left");
        receive(&right, 8, 1);
        CHECK_INT(coro_sleep(20), 0);
        CHECK(!t.done);
        coro_start(send_all, &right, 0, "right");
        receive(&left, MIB, 9);
        until(&t.done);
        CHECK_INT(t.result, 0);
        stream_close(left.s);
        stream_close(right.s);
}

static void half_closed_tunnels_go_on(void **state)
{
        run(half_close, NULL);
}

static void idle(void *arg)
{
        struct tunnel t = { .idle = 60 };
        struct end left = { 0 }, right = { 0 };
        int64_t start;
        char c;

        open_tunnel(&t, &left, &right);
        coro_start(tunnel, &t, 0, "tunnel");
        start = clock_ms();
        /* One direction alone keeps both alive. */
        for (int i = 0; i < 6; i++) {
                CHECK_INT(coro_sleep(25), 0);
                CHECK(!t.done);
                CHECK_INT(stream_write(left.s, "x", 1, MS_MAX), 0);
                CHECK_INT(stream_read(right.s, &c, 1, MS_MAX), 1);
        }
        until(&t.done);
        CHECK_INT(t.result, -ETIMEDOUT);
        CHECK(clock_ms() - start >= 6 * 25 + 55);
        CHECK_INT(stream_read(left.s, &c, 1, MS_MAX), 0);
        stream_close(left.s);
        stream_close(right.s);
}

static void a_tunnel_is_idle_when_neither_side_moves(void **state)
{
        run(idle, NULL);
}

static void broken(void *arg)
{
        struct tunnel t = { .idle = -1 };
        struct end left = { 0 }, right = { 0 };

        open_tunnel(&t, &left, &right);
        if (arg) { /* the second direction fails */
                struct stream *s = t.a;

                t.a = t.b;
                t.b = s;
        }
        coro_start(tunnel, &t, 0, "tunnel");
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(setsockopt(stream_fd(left.s), SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)),
                  0);
        stream_close(left.s);
        until(&t.done); /* the other direction, which waits for the right end, is stopped */
        CHECK_INT(t.result, -ECONNRESET);
        stream_close(right.s);
}

static void an_error_ends_both_directions(void **state)
{
        run(broken, NULL);
        run(broken, (void *) 1);
}

static void cancel(void *arg)
{
        struct tunnel t = { .idle = -1 };
        struct end left = { 0 }, right = { 0 };
        size_t before = coro_count();

        open_tunnel(&t, &left, &right);
        struct coro *c = coro_start(tunnel, &t, 0, "tunnel");
        CHECK_INT(coro_sleep(5), 0);
        coro_cancel(c);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(t.done);
        CHECK_INT(t.result, -ECANCELED);
        CHECK_INT(coro_count(), before);
        stream_close(left.s);
        stream_close(right.s);
        /* Also when only the second direction is left. */
        t.done = false;
        open_tunnel(&t, &left, &right);
        c = coro_start(tunnel, &t, 0, "tunnel");
        stream_shutdown(left.s);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(!t.done);
        coro_cancel(c);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(t.done);
        CHECK_INT(t.result, -ECANCELED);
        CHECK_INT(coro_count(), before);
        stream_close(left.s);
        stream_close(right.s);
}

static void cancelling_ends_both_directions(void **state)
{
        run(cancel, NULL);
}

static void slow_end(void *arg)
{
        struct tunnel t = { .idle = MS_MAX };
        struct end left = { 0 }, right = { 0 };
        static char block[65536];
        size_t sent = 0;

        open_tunnel(&t, &left, &right);
        coro_start(tunnel, &t, 0, "tunnel");
        CHECK_INT(setsockopt(stream_fd(left.s), SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int)), 0);
        while (stream_write(left.s, block, sizeof(block), 60) == 0)
                sent += sizeof(block);
        /* The tunnel passed the back-pressure on instead of buffering. */
        CHECK(stream_queued(t.b) <= 2 * STREAM_HIGH_WATER);
        CHECK_INT(stream_read_full(right.s, block, sizeof(block), MS_MAX), 0);
        stream_close(left.s);
        stream_close(right.s);
        until(&t.done);
}

static void back_pressure_passes_through(void **state)
{
        run(slow_end, NULL);
}

static void one_way(void *arg)
{
        struct stream *a, *b, *c, *d;
        static char block[100000];

        make_pair(&a, &b);
        make_pair(&c, &d);
        CHECK_INT(stream_post(a, block, sizeof(block), sizeof(block)), 0);
        CHECK_INT(stream_unread(b, "put back", 8), 0);
        CHECK_INT(stream_shutdown(a), 0);
        CHECK_INT(pump(b, c, MS_MAX), sizeof(block) + 8);
        CHECK_INT(stream_read_full(d, block, 8, MS_MAX), 0);
        CHECK(memcmp(block, "put back", 8) == 0);
        CHECK_INT(stream_read_full(d, block, sizeof(block), MS_MAX), 0);
        CHECK_INT(stream_read(d, block, 1, MS_MAX), 0);
        stream_close(a);
        CHECK_INT(pump(d, c, 20), 0);
        stream_close(b);
        stream_close(c);
        stream_close(d);
}

static void one_way_counts_bytes(void **state)
{
        run(one_way, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(both_ways_with_all_bytes),
                LOOP_TEST(half_closed_tunnels_go_on),
                LOOP_TEST(a_tunnel_is_idle_when_neither_side_moves),
                LOOP_TEST(an_error_ends_both_directions),
                LOOP_TEST(cancelling_ends_both_directions),
                LOOP_TEST(back_pressure_passes_through),
                LOOP_TEST(one_way_counts_bytes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
