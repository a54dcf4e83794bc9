/* The passive tunnel: all bytes both ways, half-closes, back-pressure, endings; and the sockets a stranger shares. */
#include "loop-test.h"

#include <netinet/in.h>
#include <sys/time.h>

#define MIB ((size_t) 1 << 20)

struct ended {
        bool done;
        int r;
};

static void on_end(void *arg, int r)
{
        struct ended *e = arg;

        CHECK(!e->done);
        e->done = true;
        e->r = r;
}

struct flow {
        struct stream *s;
        size_t n;
        unsigned seed;
        bool done;
};

static void send_all(void *arg)
{
        struct flow *f = arg;
        _cleanup_free_ unsigned *data = xmalloc(f->n);

        for (size_t i = 0; i < f->n / sizeof(unsigned); i++)
                data[i] = f->seed * (unsigned) i;
        CHECK_INT(stream_write(f->s, data, f->n, MS_MAX), 0);
        CHECK_INT(stream_shutdown(f->s), 0);
        f->done = true;
}

static void receive_all(struct stream *s, size_t n, unsigned seed)
{
        _cleanup_free_ unsigned *data = xmalloc(n);
        char c;

        CHECK_INT(stream_read_full(s, data, n, MS_MAX), 0);
        for (size_t i = 0; i < n / sizeof(unsigned); i++)
                CHECK(data[i] == seed * (unsigned) i);
        CHECK_INT(stream_read(s, &c, 1, MS_MAX), 0);
}

static void until(const bool *done)
{
        for (int i = 0; i < 10000 && !*done; i++)
                CHECK_INT(coro_sleep(1), 0);
        CHECK(*done);
}

struct set {
        struct stream *left, *right;
        struct tunnel *t;
        struct ended e;
};

static void set_up(struct set *s, int64_t idle_ms)
{
        struct stream *a, *b;

        *s = (struct set){ 0 };
        make_tcp_pair(&s->left, &a);
        make_pair(&b, &s->right);
        s->t = tunnel_start(a, b, idle_ms, on_end, &s->e);
}

static void set_down(struct set *s)
{
        stream_close(s->left);
        stream_close(s->right);
}

static void both_ways(void *arg)
{
        struct set s;
        size_t before = coro_count();

        (void) arg;
        set_up(&s, -1);
        CHECK_INT(coro_count(), before); /* no stack */
        struct flow l = { s.left, 5 * MIB, 3, false }, r = { s.right, 4 * MIB, 7, false };
        coro_start(send_all, &l, 0, "left");
        coro_start(send_all, &r, 0, "right");
        receive_all(s.left, 4 * MIB, 7);
        receive_all(s.right, 5 * MIB, 3);
        until(&s.e.done);
        CHECK_INT(s.e.r, 0);
        set_down(&s);
}

/* A reader that does not read stops the writer, and the tunnel keeps little. */
static void back_pressure(void *arg)
{
        _cleanup_free_ char *block = xcalloc(1, MIB);
        struct set s;
        size_t sent = 0;

        (void) arg;
        set_up(&s, -1);
        while (sent < 256 * MIB && stream_write(s.left, block, 64 << 10, 300) == 0)
                sent += 64 << 10;
        CHECK(sent < 64 * MIB);
        CHECK(tunnel_moved(s.t) <= loop_now());
        tunnel_close(s.t);
        CHECK(!s.e.done);
        set_down(&s);
        CHECK_INT(coro_sleep(1), 0);
}

static void bytes_before_it_began(void *arg)
{
        struct stream *left, *a, *b, *right;
        struct ended e = { 0 };
        char got[8] = "";

        (void) arg;
        make_tcp_pair(&left, &a);
        make_pair(&b, &right);
        CHECK_INT(stream_unread(a, "early", 5), 0);
        (void) tunnel_start(a, b, -1, on_end, &e);
        CHECK_INT(stream_read_full(right, got, 5, MS_MAX), 0);
        CHECK_INT(memcmp(got, "early", 5), 0);
        stream_close(left);
        CHECK_INT(stream_read(right, got, 1, MS_MAX), 0); /* the end goes through */
        CHECK_INT(stream_write(right, "late", 4, MS_MAX), 0);
        CHECK_INT(stream_shutdown(right), 0);
        until(&e.done);
        stream_close(right);
}

static void idle(void *arg)
{
        struct set s;

        (void) arg;
        set_up(&s, 50);
        until(&s.e.done);
        CHECK_INT(s.e.r, -ETIMEDOUT);
        char c;
        CHECK_INT(stream_read(s.left, &c, 1, MS_MAX), 0);
        set_down(&s);
}

/* Whoever holds a copy can make the socket blocking and make its close wait: neither stops the loop. */
static void shared(void *arg)
{
        struct linger forever = { .l_onoff = 1, .l_linger = 30000 };
        struct stream *s;
        int fds[2];
        char c;

        (void) arg;
        make_tcp_fds(fds);
        int copy = dup(fds[0]);
        CHECK(copy >= 0);
        CHECK_INT(stream_from_shared_fd(fds[0], &s, NULL), 0);
        CHECK_INT(fcntl(copy, F_SETFL, 0), 0);
        CHECK_INT(stream_read(s, &c, 1, 50), -ETIMEDOUT);
        _cleanup_free_ char *block = xcalloc(1, MIB);
        int r = 0;
        for (int i = 0; i < 64 && r == 0; i++)
                r = stream_write(s, block, MIB, 50);
        CHECK_INT(r, -ETIMEDOUT);
        CHECK_INT(setsockopt(copy, SOL_SOCKET, SO_LINGER, &forever, sizeof(forever)), 0);
        close(copy);
        stream_close(s); /* the last one, with bytes unsent */
        close(fds[1]);
}

static void test_both_ways(void **state)
{
        (void) state;
        run(both_ways, NULL);
}

static void test_back_pressure(void **state)
{
        (void) state;
        run(back_pressure, NULL);
}

static void test_bytes_before(void **state)
{
        (void) state;
        run(bytes_before_it_began, NULL);
}

static void test_idle(void **state)
{
        (void) state;
        run(idle, NULL);
}

static void test_shared(void **state)
{
        (void) state;
        run(shared, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(test_both_ways), LOOP_TEST(test_back_pressure), LOOP_TEST(test_bytes_before),
                LOOP_TEST(test_idle),      LOOP_TEST(test_shared),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
