#include "loop-test.h"

#include <sys/stat.h>
#include <time.h>

#define MIB ((size_t) 1 << 20)

static void fill(char *p, size_t n, unsigned seed)
{
        for (size_t i = 0; i < n; i++)
                p[i] = (char) ((seed = seed * 1664525 + 1013904223) >> 24);
}

struct peer {
        struct stream *s;
        size_t n;
        size_t chunk;
        int result;
        bool done;
};

static void echo_all(void *arg)
{
        struct peer *p = arg;
        char b[5000];
        ssize_t n;

        while ((n = stream_read(p->s, b, sizeof(b), MS_MAX)) > 0)
                CHECK_INT(stream_write(p->s, b, (size_t) n, MS_MAX), 0);
        CHECK_INT(n, 0);
        CHECK_INT(stream_flush(p->s, MS_MAX), 0);
        stream_close(p->s);
        p->done = true;
}

/* p is on the caller's stack. */
static void until_done(struct peer *p)
{
        while (!p->done)
                CHECK_INT(coro_sleep(1), 0);
}

static void write_all(void *arg)
{
        struct peer *p = arg;
        _cleanup_free_ char *data = xmalloc(p->n);

        fill(data, p->n, 7);
        for (size_t at = 0; at < p->n; at += p->chunk)
                CHECK_INT(stream_write(p->s, data + at, min_size(p->chunk, p->n - at), MS_MAX), 0);
        CHECK_INT(stream_shutdown(p->s), 0);
        CHECK_INT(stream_shutdown(p->s), 0);
        CHECK_INT(stream_write(p->s, "x", 1, MS_MAX), -EPIPE);
        CHECK_INT(stream_post(p->s, "x", 1, 100), -EPIPE);
        p->done = true;
}

static void exchange(struct stream *a, struct stream *b, size_t chunk)
{
        struct peer server = { .s = b }, writer = { .s = a, .n = MIB, .chunk = chunk };
        _cleanup_free_ char *want = xmalloc(MIB);
        _cleanup_free_ char *got = xmalloc(MIB);
        char c;

        fill(want, MIB, 7);
        coro_start(echo_all, &server, 0, "echo");
        coro_start(write_all, &writer, 0, "write");
        CHECK_INT(stream_read_full(a, got, MIB, MS_MAX), 0);
        CHECK(memcmp(want, got, MIB) == 0);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 0); /* half closed by us, then closed by the other */
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 0); /* the end stays the end */
        CHECK_INT(stream_read_full(a, &c, 1, MS_MAX), -ENODATA);
        CHECK(server.done && writer.done);
        CHECK(stream_dead(a));
        stream_close(a);
}

static void ping_pong(void *arg)
{
        struct stream *a, *b;

        for (size_t chunk = 1000; chunk <= MIB; chunk *= 32) {
                make_pair(&a, &b);
                exchange(a, b, chunk);
                make_tcp_pair(&a, &b);
                exchange(a, b, chunk);
        }
}

static void a_mebibyte_there_and_back(void **state)
{
        run(ping_pong, NULL);
}

static void small_messages(void *arg)
{
        struct stream *a, *b;
        char c[8];

        make_tcp_pair(&a, &b);
        struct peer server = { .s = b };
        coro_start(echo_all, &server, 0, "echo");
        for (int i = 0; i < 2000; i++) {
                CHECK_INT(stream_write(a, &i, sizeof(i), MS_MAX), 0);
                CHECK_INT(stream_read_full(a, c, sizeof(i), MS_MAX), 0);
                CHECK(memcmp(&i, c, sizeof(i)) == 0);
        }
        stream_close(a);
        until_done(&server);
}

static void many_small_messages(void **state)
{
        run(small_messages, NULL);
}

/* Back-pressure */

static void flood(void *arg)
{
        struct peer *p = arg;
        char block[10000] = { 0 };

        while (p->result == 0) {
                p->result = stream_write(p->s, block, sizeof(block), MS_MAX);
                if (p->result == 0)
                        p->n += sizeof(block);
        }
        p->done = true;
}

static void slow_reader(void *arg)
{
        struct stream *a, *b;
        static char sink[100000];

        make_tcp_pair(&a, &b);
        CHECK_INT(setsockopt(stream_fd(a), SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int)), 0);
        struct peer writer = { .s = a };
        coro_start(flood, &writer, 0, "flood");
        CHECK_INT(coro_sleep(50), 0);
        size_t stuck = writer.n;
        CHECK(!writer.done && stuck > 0);
        /* At most the high water and one message are ours; the rest is in the kernel's buffers. */
        CHECK(stream_queued(a) > STREAM_HIGH_WATER && stream_queued(a) <= 2 * STREAM_HIGH_WATER);
        CHECK_INT(coro_sleep(50), 0);
        CHECK_INT(writer.n, stuck);
        /* Nothing was read ahead on the other side either: its bytes still wait in the kernel. */
        size_t read = 0;
        while (read < stuck) {
                ssize_t n = stream_read(b, sink, sizeof(sink), MS_MAX);

                CHECK(n > 0);
                read += (size_t) n;
        }
        CHECK_INT(coro_sleep(20), 0);
        CHECK(writer.n > stuck);
        stream_close(b);
        CHECK_INT(coro_sleep(20), 0);
        CHECK(writer.done && (writer.result == -EPIPE || writer.result == -ECONNRESET));
        CHECK(stream_dead(a));
        CHECK_INT(stream_queued(a), 0);
        CHECK_INT(stream_write(a, "x", 1, MS_MAX), writer.result);
        CHECK(stream_flush(a, MS_MAX) < 0);
        stream_close(a);
}

static void a_writer_waits_for_its_reader(void **state)
{
        run(slow_reader, NULL);
}

static void stuck_write(void *arg)
{
        struct stream *a, *b;
        _cleanup_free_ char *big = xcalloc(1, 8 * MIB);
        int64_t t;

        make_pair(&a, &b);
        t = clock_ms();
        CHECK_INT(stream_write(a, big, 8 * MIB, 50), -ETIMEDOUT);
        CHECK(clock_ms() - t >= 49 && clock_ms() - t < MS_MAX);
        CHECK(stream_queued(a) <= 2 * STREAM_HIGH_WATER);
        CHECK_INT(stream_flush(a, 20), -ETIMEDOUT);
        stream_close(a);
        stream_close(b);
}

static void drip(void *arg)
{
        struct peer *p = arg;
        static char sink[2000];

        while (!p->done) {
                if (coro_sleep(3) < 0 || stream_read(p->s, sink, sizeof(sink), MS_MAX) <= 0)
                        break;
        }
        stream_close(p->s);
}

static void slow_is_not_stuck(void *arg)
{
        struct stream *a, *b;
        _cleanup_free_ char *big = xcalloc(1, MIB / 4);
        int64_t t = clock_ms();

        make_pair(&a, &b);
        CHECK_INT(setsockopt(stream_fd(a), SOL_SOCKET, SO_SNDBUF, &(int){ 4096 }, sizeof(int)), 0);
        struct peer reader = { .s = b };
        coro_start(drip, &reader, 0, "drip");
        /* Takes far longer than the limit, but bytes move all the time. */
        CHECK_INT(stream_write(a, big, MIB / 4, 50), 0);
        CHECK(clock_ms() - t > 150);
        reader.done = true;
        stream_close(a);
        CHECK_INT(coro_sleep(30), 0);
}

static void write_deadlines(void **state)
{
        run(stuck_write, NULL);
        run(slow_is_not_stuck, NULL);
}

static void flushed_is_with_the_kernel(void *arg)
{
        struct stream *a, *b;
        _cleanup_free_ char *big = xcalloc(1, MIB);

        make_pair(&a, &b);
        struct peer writer = { .s = a, .n = MIB, .chunk = MIB };
        coro_start(write_all, &writer, 0, "write");
        CHECK_INT(stream_read_full(b, big, MIB / 2, MS_MAX), 0);
        CHECK_INT(stream_read_full(b, big, MIB / 2, MS_MAX), 0);
        CHECK_INT(stream_flush(a, MS_MAX), 0);
        CHECK_INT(stream_queued(a), 0);
        stream_close(a);
        stream_close(b);
}

static void flush_waits_for_the_kernel(void **state)
{
        run(flushed_is_with_the_kernel, NULL);
}

/* Reading */

static void deadlines(void *arg)
{
        struct stream *a, *b;
        char c[10];
        int64_t t = clock_ms();

        make_pair(&a, &b);
        CHECK_INT(stream_read(a, c, 10, 30), -ETIMEDOUT);
        CHECK(clock_ms() - t >= 29);
        CHECK_INT(stream_read(a, c, 10, 0), -ETIMEDOUT);
        CHECK_INT(stream_read(a, c, 0, 0), -EINVAL);
        after_polling();
        CHECK_INT(stream_read(a, c, 10, 0), -ETIMEDOUT);
        after_polling();
        CHECK_INT(stream_write(b, "abc", 3, MS_MAX), 0);
        CHECK_INT(stream_read(a, c, 10, 0), 3); /* what is there is found without waiting */
        CHECK_INT(stream_write(b, "abc", 3, MS_MAX), 0);
        CHECK_INT(stream_read_full(a, c, 4, 20), -ETIMEDOUT);
        CHECK_INT(stream_write(b, "def", 3, MS_MAX), 0);
        CHECK_INT(stream_read(a, c, 10, MS_MAX), 3);
        CHECK(memcmp(c, "def", 3) == 0);
        CHECK(!stream_dead(a));
        stream_close(a);
        stream_close(b);
}

static void read_deadlines(void **state)
{
        run(deadlines, NULL);
}

static void put_back(void *arg)
{
        struct stream *a, *b;
        static char big[65537];
        char c[20];

        make_pair(&a, &b);
        CHECK_INT(stream_write(b, "world", 5, MS_MAX), 0);
        CHECK_INT(stream_unread(a, "lo ", 3), 0);
        CHECK_INT(stream_unread(a, "hel", 3), 0);
        CHECK_INT(stream_read(a, c, 2, 0), 2);
        CHECK_INT(stream_unread(a, c, 2), 0);
        CHECK_INT(stream_read_full(a, c, 11, MS_MAX), 0);
        CHECK(memcmp(c, "hello world", 11) == 0);
        CHECK_INT(stream_unread(a, big, sizeof(big)), -ENOBUFS);
        CHECK_INT(stream_unread(a, big, 65536), 0);
        CHECK_INT(stream_read_full(a, big, 65536, 0), 0);
        CHECK_INT(stream_unread(a, "", 0), 0);
        /* Also after the end. */
        stream_close(b);
        CHECK_INT(stream_read(a, c, 1, MS_MAX), 0);
        CHECK_INT(stream_unread(a, "x", 1), 0);
        CHECK_INT(stream_read(a, c, 20, MS_MAX), 1);
        CHECK_INT(stream_read(a, c, 20, MS_MAX), 0);
        stream_close(a);
}

static void bytes_are_put_back(void **state)
{
        run(put_back, NULL);
}

static void reset(void *arg)
{
        struct stream *a, *b;
        char c;

        make_tcp_pair(&a, &b);
        CHECK_INT(setsockopt(stream_fd(b), SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)), 0);
        stream_close(b);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), -ECONNRESET);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), -ECONNRESET);
        CHECK(stream_dead(a));
        stream_close(a);
}

static void a_reset_is_an_error(void **state)
{
        run(reset, NULL);
}

struct cancelled {
        struct stream *s;
        int result;
        bool write;
};

static void wait_cancelled(void *arg)
{
        struct cancelled *x = arg;
        _cleanup_free_ char *big = xcalloc(1, 4 * MIB);

        x->result = x->write ? stream_write(x->s, big, 4 * MIB, -1) : (int) stream_read(x->s, big, 1, -1);
        CHECK_INT(stream_read(x->s, big, 1, -1), -ECANCELED);
        CHECK_INT(stream_write(x->s, big, 1, -1), -ECANCELED);
}

static void cancel_both(void *arg)
{
        struct stream *a, *b;
        char c;

        make_pair(&a, &b);
        struct cancelled r = { .s = a }, w = { .s = b, .write = true };
        struct coro *cr = coro_start(wait_cancelled, &r, 0, "read");
        CHECK_INT(coro_sleep(5), 0);
        coro_cancel(cr);
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(r.result, -ECANCELED);
        struct coro *cw = coro_start(wait_cancelled, &w, 0, "write");
        CHECK_INT(coro_sleep(5), 0);
        coro_cancel(cw);
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(w.result, -ECANCELED);
        /* The streams live on. */
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 1);
        CHECK_INT(stream_write(a, "x", 1, MS_MAX), 0);
        CHECK_INT(stream_read(b, &c, 1, MS_MAX), 1);
        stream_close(a);
        stream_close(b);
}

static void waits_are_cancelled(void **state)
{
        run(cancel_both, NULL);
}

/* Bytes that arrive in the same turn as the deadline or a cancellation are not lost. */
static void racing_reader(void *arg)
{
        struct peer *p = arg;
        char c[100];

        while (p->n < 200) {
                ssize_t n = stream_read(p->s, c, sizeof(c), 1);

                CHECK(n > 0 || n == -ETIMEDOUT);
                if (n > 0)
                        p->n += (size_t) n;
        }
        p->done = true;
}

static void race(void *arg)
{
        struct stream *a, *b;

        make_pair(&a, &b);
        struct peer p = { .s = a };
        coro_start(racing_reader, &p, 0, "racer");
        for (int i = 0; i < 200; i++) {
                CHECK_INT(stream_write(b, "x", 1, MS_MAX), 0);
                CHECK_INT(coro_sleep(1), 0);
        }
        CHECK_INT(coro_sleep(10), 0);
        CHECK(p.done);
        stream_close(a);
        stream_close(b);
}

static void deadlines_lose_no_bytes(void **state)
{
        run(race, NULL);
}

static void second_reader(void *arg)
{
        struct stream *s = arg;
        char c;

        CHECK_INT(stream_read(s, &c, 1, MS_MAX), -EBUSY);
}

static void two_readers(void *arg)
{
        struct stream *a, *b;
        char c;

        make_pair(&a, &b);
        struct peer p = { .s = b };
        coro_start(echo_all, &p, 0, "first");
        CHECK_INT(coro_sleep(5), 0);
        coro_start(second_reader, b, 0, "second");
        CHECK_INT(coro_sleep(5), 0);
        CHECK_INT(stream_write(a, "x", 1, MS_MAX), 0);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 1);
        stream_close(a);
        until_done(&p);
}

static void a_second_reader_is_refused(void **state)
{
        run(two_readers, NULL);
}

/* A fast pair of peers must leave room for others. */
static void spin_read(void *arg)
{
        struct peer *p = arg;
        char c[100];

        while (!p->done && stream_read(p->s, c, sizeof(c), -1) > 0)
                p->n++;
}

static void fairness(void *arg)
{
        _cleanup_close_ int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        struct stream *s;

        CHECK(zero >= 0);
        CHECK_INT(stream_from_fd(zero, &s, NULL), 0);
        (void) steal_fd(&zero);
        struct peer p = { .s = s };
        coro_start(spin_read, &p, 0, "spin");
        CHECK_INT(coro_sleep(20), 0);
        CHECK(p.n > 100);
        p.done = true;
        CHECK_INT(coro_sleep(5), 0);
        stream_close(s);
}

static void a_fast_peer_starves_nobody(void **state)
{
        run(fairness, NULL);
}

/* Bytes that nobody reads make no turn of the loop. */
static void unread_bytes(void *arg)
{
        struct stream *a, *b;
        char c;

        make_pair(&a, &b);
        CHECK_INT(stream_read(a, &c, 1, 5), -ETIMEDOUT); /* registered from now on */
        CHECK_INT(stream_write(b, "xy", 2, MS_MAX), 0);
        CHECK_INT(coro_sleep(5), 0);
        clock_t cpu = clock();
        CHECK_INT(coro_sleep(100), 0);
        CHECK(clock() - cpu < CLOCKS_PER_SEC / 40);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 1);
        stream_close(a);
        stream_close(b);
}

static void unread_bytes_cost_nothing(void **state)
{
        run(unread_bytes, NULL);
}

/* Pipes and files */

static void pipes(void *arg)
{
        struct stream *r, *w;
        char c[10];
        int fds[2];

        CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
        CHECK_INT(stream_from_fd(fds[0], &r, NULL), 0);
        CHECK_INT(stream_from_fd(fds[1], &w, NULL), 0);
        CHECK_INT(stream_write(w, "abc", 3, MS_MAX), 0);
        CHECK_INT(stream_shutdown(w), 0); /* the reader sees the end though w is not closed */
        CHECK_INT(stream_read_full(r, c, 3, MS_MAX), 0);
        CHECK_INT(stream_read(r, c, 3, MS_MAX), 0);
        CHECK_INT(stream_write(w, "abc", 3, MS_MAX), -EPIPE);
        CHECK(strcmp(stream_peer(w), "pipe") == 0);
        CHECK_INT(stream_fd(w), -1);
        stream_close(r);
        stream_close(w);
        CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
        CHECK_INT(stream_from_fd(fds[1], &w, NULL), 0);
        close(fds[0]);
        CHECK_INT(stream_write(w, "abc", 3, MS_MAX), -EPIPE);
        stream_close(w);
}

static void files(void *arg)
{
        struct stream *s;
        struct stat st;
        char path[] = "/tmp/loop-test-XXXXXX";
        char c[10];
        int fd = mkostemp(path, O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK_INT(stream_from_fd(fd, &s, NULL), 0);
        for (int i = 0; i < 1000; i++)
                CHECK_INT(stream_write(s, "0123456789", 10, MS_MAX), 0);
        CHECK_INT(stream_flush(s, MS_MAX), 0);
        CHECK_INT(fstat(fd, &st), 0);
        CHECK_INT(st.st_size, 10000);
        CHECK_INT(lseek(fd, 9990, SEEK_SET), 9990);
        CHECK_INT(stream_read(s, c, 10, MS_MAX), 10);
        CHECK_INT(stream_read(s, c, 10, MS_MAX), 0);
        stream_close(s);
        unlink(path);
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        CHECK_INT(stream_from_fd(fd, &s, NULL), 0);
        CHECK_INT(stream_read(s, c, 10, MS_MAX), 0);
        CHECK_INT(stream_write(s, c, 10, MS_MAX), 0);
        stream_close(s);
        CHECK_INT(stream_from_fd(12345, &s, NULL), -EBADF);
}

static void pipes_and_files_are_streams_too(void **state)
{
        run(pipes, NULL);
        run(files, NULL);
}

/* A stream that nobody uses keeps no loop running, wanted or not by the lazy registration. */
static struct stream *idle_a, *idle_b;

static void leave_idle(void *arg)
{
        char c;

        make_pair(&idle_a, &idle_b);
        CHECK_INT(stream_read(idle_a, &c, 1, 5), -ETIMEDOUT);
}

static void idle_streams_keep_no_loop(void **state)
{
        run(leave_idle, NULL);
        stream_close(idle_a);
        stream_closep(&idle_b);
        assert_null(idle_b);
        stream_closep(&idle_b);
}

/* Owners may also come after the loop has gone. */
static void streams_outlive_the_loop(void **state)
{
        run(leave_idle, NULL);
        stream_watch(idle_a, (void (*)(void *)) free, NULL);
        loop_done();
        stream_close(idle_a);
        stream_close(idle_b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(a_mebibyte_there_and_back),
                LOOP_TEST(many_small_messages),
                LOOP_TEST(a_writer_waits_for_its_reader),
                LOOP_TEST(write_deadlines),
                LOOP_TEST(flush_waits_for_the_kernel),
                LOOP_TEST(read_deadlines),
                LOOP_TEST(bytes_are_put_back),
                LOOP_TEST(a_reset_is_an_error),
                LOOP_TEST(waits_are_cancelled),
                LOOP_TEST(deadlines_lose_no_bytes),
                LOOP_TEST(a_second_reader_is_refused),
                LOOP_TEST(a_fast_peer_starves_nobody),
                LOOP_TEST(unread_bytes_cost_nothing),
                LOOP_TEST(pipes_and_files_are_streams_too),
                LOOP_TEST(idle_streams_keep_no_loop),
                LOOP_TEST(streams_outlive_the_loop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
