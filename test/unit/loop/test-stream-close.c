#include "loop-test.h"

#define MIB ((size_t) 1 << 20)
#define MORE (64 * MIB) /* than the kernel may ever hold of a connection on loopback */

struct op {
        struct stream *s;
        int kind;
        int result;
        bool done;
};

static void do_op(void *arg)
{
        struct op *o = arg;
        _cleanup_free_ char *big = xcalloc(1, MORE);

        switch (o->kind) {
        case 0:
                o->result = (int) stream_read(o->s, big, 10, -1);
                break;
        case 1:
                o->result = stream_write(o->s, big, MORE, -1);
                break;
        case 2:
                o->result = stream_flush(o->s, -1);
                break;
        case 3:
                o->result = stream_read_full(o->s, big, 4 * MIB, 5000);
                break;
        case 4:
                o->result = (int) pump(o->s, o->s, -1);
                break;
        }
        o->done = true;
}

static void close_during(void *arg)
{
        for (int kind = 0; kind < 5; kind++) {
                struct op o = { .kind = kind };
                struct stream *b;
                char block[100000] = { 0 };

                make_pair(&o.s, &b);
                if (kind == 2)
                        while (stream_queued(o.s) == 0)
                                CHECK_INT(stream_post(o.s, block, sizeof(block), MIB), 0);
                coro_start(do_op, &o, CORO_STACK_LARGE, "op");
                CHECK_INT(coro_sleep(5), 0);
                CHECK(!o.done);
                stream_close(o.s);
                CHECK(!o.done); /* never inline */
                CHECK_INT(coro_sleep(5), 0);
                CHECK(o.done);
                CHECK_INT(o.result, -ECANCELED);
                stream_close(b);
        }
}

static void closing_ends_what_waits(void **state)
{
        run(close_during, NULL);
}

static void close_read_and_write(void *arg)
{
        struct op r = { .kind = 0 }, w = { .kind = 1 };
        struct stream *b;

        make_tcp_pair(&r.s, &b);
        w.s = r.s;
        coro_start(do_op, &r, CORO_STACK_LARGE, "read");
        coro_start(do_op, &w, CORO_STACK_LARGE, "write");
        CHECK_INT(coro_sleep(5), 0);
        stream_close(r.s);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(r.done && w.done);
        CHECK_INT(r.result, -ECANCELED);
        CHECK_INT(w.result, -ECANCELED);
        stream_close(b);
}

static void both_directions_end(void **state)
{
        run(close_read_and_write, NULL);
}

/* Closed, cancelled and woken all in one turn. */
static void close_and_cancel(void *arg)
{
        struct op o = { .kind = 0 };
        struct stream *b;

        make_pair(&o.s, &b);
        struct coro *c = coro_start(do_op, &o, CORO_STACK_LARGE, "op");
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(stream_write(b, "x", 1, MS_MAX), 0);
        coro_cancel(c);
        stream_close(o.s);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(o.done);
        CHECK_INT(o.result, -ECANCELED);
        stream_close(b);
}

static void close_meets_cancel(void **state)
{
        run(close_and_cancel, NULL);
}

/* Close after flush */

static void drain_slowly(void *arg)
{
        struct op *o = arg;
        static char sink[50000];
        ssize_t n;

        while ((n = stream_read(o->s, sink, sizeof(sink), MS_MAX)) > 0) {
                o->kind += (int) n;
                CHECK_INT(coro_sleep(1), 0);
        }
        o->result = (int) n;
        o->done = true;
        stream_close(o->s);
}

static void after_flush(void *arg)
{
        _cleanup_free_ char *big = xcalloc(8, MIB); /* more than loopback sockets take at once */

        for (int tcp = 0; tcp < 2; tcp++) {
                struct op o = { .kind = 0 };
                struct stream *a;

                if (tcp)
                        make_tcp_pair(&a, &o.s);
                else
                        make_pair(&a, &o.s);
                CHECK_INT(stream_post(a, big, 8 * MIB, 8 * MIB), 0);
                CHECK(stream_queued(a) > 0);
                stream_close_after_flush(a, MS_MAX);
                coro_start(drain_slowly, &o, 0, "drain");
                while (!o.done)
                        CHECK_INT(coro_sleep(1), 0);
                CHECK_INT(o.result, 0);
                CHECK_INT(o.kind, 8 * MIB);
        }
}

static void queued_bytes_still_arrive(void **state)
{
        int64_t t = clock_ms();

        run(after_flush, NULL);
        assert_true(clock_ms() - t < 10000); /* and nothing lingers to its limit */
}

/* The peer is still sending when the answer is given and the connection closed (an upload that is refused). */
static void send_much_then_read(void *arg)
{
        struct op *o = arg;
        static char block[100000];
        char answer[6];

        for (int i = 0; i < 30; i++) {
                CHECK_INT(stream_write(o->s, block, sizeof(block), MS_MAX), 0);
                CHECK_INT(coro_sleep(1), 0);
        }
        o->result = stream_read_full(o->s, answer, 6, MS_MAX);
        CHECK_INT(o->result, 0);
        CHECK(memcmp(answer, "refuse", 6) == 0);
        o->done = true;
        stream_close(o->s);
}

static void refused_upload(void *arg)
{
        struct op o = { .kind = 0 };
        struct stream *a;
        char c[100];

        make_tcp_pair(&a, &o.s);
        coro_start(send_much_then_read, &o, 0, "upload");
        CHECK_INT(stream_read(a, c, sizeof(c), MS_MAX), sizeof(c));
        CHECK_INT(stream_post(a, "refuse", 6, 100), 0);
        stream_close_after_flush(a, MS_MAX);
        while (!o.done)
                CHECK_INT(coro_sleep(1), 0);
}

static void an_answer_survives_unread_input(void **state)
{
        run(refused_upload, NULL);
}

/* Whether the peer, which has ended its writing, takes bytes no more. */
static bool is_gone(struct stream *s)
{
        for (int i = 0; i < 5; i++) {
                if (stream_post(s, "x", 1, 100) < 0)
                        return true;
                CHECK_INT(coro_sleep(2), 0);
        }
        return false;
}

static void flush_limit(void *arg)
{
        _cleanup_free_ char *big = xcalloc(1, MIB);
        struct stream *a, *b;
        int64_t t = clock_ms();

        make_pair(&a, &b);
        CHECK_INT(stream_post(a, big, MIB, MIB), 0);
        stream_close_after_flush(a, 30);
        CHECK_INT(coro_sleep(60), 0);
        /* Dropped at the limit: the end comes before the mebibyte. */
        size_t got = 0;
        ssize_t n;
        while ((n = stream_read(b, big, MIB, MS_MAX)) > 0)
                got += (size_t) n;
        CHECK(n == 0 && got < MIB);
        CHECK(clock_ms() - t < 10000);
        stream_close(b);
        /* A peer that never closes holds no stream for ever: the limit after the flush is short. */
        make_tcp_pair(&a, &b);
        stream_close_after_flush(a, 40);
        CHECK_INT(stream_read(b, big, 10, MS_MAX), 0);
        CHECK_INT(coro_sleep(80), 0);
        CHECK(is_gone(b));
        stream_close(b);
        make_tcp_pair(&a, &b);
        stream_close_after_flush(a, MS_MAX);
        CHECK_INT(stream_read(b, big, 10, MS_MAX), 0);
        CHECK_INT(coro_sleep(2100), 0);
        CHECK(is_gone(b));
        stream_close(b);
        stream_close_after_flush(NULL, 5);
        stream_close(NULL);
}

static void flushing_has_a_limit(void **state)
{
        run(flush_limit, NULL);
}

static void leave_lingering(void *arg)
{
        static char big[8 << 20];
        struct stream *a, **b = arg;

        make_tcp_pair(&a, b);
        CHECK_INT(stream_post(a, big, sizeof(big), sizeof(big)), 0);
        stream_close_after_flush(a, MS_MAX);
        loop_stop();
}

static void the_end_of_the_loop_waits_for_none(void **state)
{
        struct stream *b = NULL;
        int64_t t = clock_ms();

        coro_start(leave_lingering, &b, 0, "leave");
        loop_run();
        loop_done();
        assert_true(clock_ms() - t < 2000);
        stream_close(b);
}

static void waits_during_close_after_flush(void *arg)
{
        struct op o = { .kind = 0 };
        struct stream *b;
        char c;

        make_pair(&o.s, &b);
        coro_start(do_op, &o, CORO_STACK_LARGE, "op");
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(stream_post(o.s, "bye", 3, 10), 0);
        stream_close_after_flush(o.s, MS_MAX);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(o.done);
        CHECK_INT(o.result, -ECANCELED);
        for (int i = 0; i < 3; i++)
                CHECK_INT(stream_read(b, &c, 1, MS_MAX), 1);
        CHECK_INT(stream_read(b, &c, 1, MS_MAX), 0);
        stream_close(b);
}

static void close_after_flush_ends_what_waits(void **state)
{
        run(waits_during_close_after_flush, NULL);
}

static size_t descriptors(void)
{
        size_t n = 0;

        for (int fd = 0; fd < 1000; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

static void open_and_close(void *arg)
{
        size_t before = descriptors();

        for (int i = 0; i < 500; i++) {
                struct stream *a, *b;

                make_pair(&a, &b);
                CHECK_INT(stream_write(a, "x", 1, MS_MAX), 0);
                char c;
                CHECK_INT(stream_read(b, &c, 1, MS_MAX), 1);
                stream_close(a);
                stream_close(b);
        }
        CHECK_INT(descriptors(), before); /* at once, not on some later turn */
}

static void no_descriptor_is_left(void **state)
{
        run(open_and_close, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(closing_ends_what_waits),
                LOOP_TEST(both_directions_end),
                LOOP_TEST(close_meets_cancel),
                LOOP_TEST(queued_bytes_still_arrive),
                LOOP_TEST(an_answer_survives_unread_input),
                LOOP_TEST(flushing_has_a_limit),
                LOOP_TEST(the_end_of_the_loop_waits_for_none),
                LOOP_TEST(close_after_flush_ends_what_waits),
                LOOP_TEST(no_descriptor_is_left),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
