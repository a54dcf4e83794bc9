#include "loop-test.h"

#include <time.h>

struct sink {
        struct buf got;
        struct stream *s;
        int ends, end_result, hangups, chunks;
        bool pause_each, stop_each, close_in_data, close_in_end;
};

static void on_data(void *arg, const void *p, size_t n)
{
        struct sink *k = arg;

        CHECK(n > 0);
        CHECK_INT(buf_add(&k->got, p, n), 0);
        k->chunks++;
        if (k->pause_each)
                stream_pause(k->s, true);
        if (k->stop_each)
                stream_passive(k->s, NULL, NULL, NULL);
        if (k->close_in_data)
                stream_closep(&k->s);
}

static void on_end(void *arg, int r)
{
        struct sink *k = arg;

        k->ends++;
        k->end_result = r;
        if (k->close_in_end)
                stream_closep(&k->s);
}

static void on_hangup(void *arg)
{
        ((struct sink *) arg)->hangups++;
}

static struct sink sink_new(void)
{
        return (struct sink){ .got = BUF_MAX((size_t) 64 << 20) };
}

#define CHECK_GOT(k, text) CHECK(str_eq(buf_str(&(k).got), STR(text)))

static void settle(void)
{
        CHECK_INT(coro_sleep(5), 0);
}

static void passive(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;

        make_pair(&k.s, &b);
        stream_passive(k.s, on_data, on_end, &k);
        CHECK_INT(stream_write(b, "one", 3, MS_MAX), 0);
        CHECK_INT(k.chunks, 0); /* never inline */
        settle();
        CHECK_GOT(k, "one");
        stream_pause(k.s, true);
        CHECK_INT(stream_write(b, "two", 3, MS_MAX), 0);
        settle();
        clock_t cpu = clock();
        CHECK_INT(coro_sleep(100), 0);
        CHECK(clock() - cpu < CLOCKS_PER_SEC / 40); /* paused is not polled */
        CHECK_GOT(k, "one");
        stream_pause(k.s, false);
        settle();
        CHECK_GOT(k, "onetwo");
        stream_close(b);
        settle();
        CHECK_INT(k.ends, 1);
        CHECK_INT(k.end_result, 0);
        settle();
        CHECK_INT(k.ends, 1);
        stream_close(k.s);
        buf_done(&k.got);
}

static void passive_reading(void **state)
{
        run(passive, NULL);
}

static void pending_first(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;
        char c[2];

        make_pair(&k.s, &b);
        CHECK_INT(stream_write(b, "zzrest", 6, MS_MAX), 0);
        CHECK_INT(stream_read(k.s, c, 2, MS_MAX), 2);
        CHECK_INT(stream_unread(k.s, "head-", 5), 0);
        stream_passive(k.s, on_data, on_end, &k);
        CHECK_INT(k.chunks, 0);
        settle();
        CHECK_GOT(k, "head-rest");
        /* Put back while passive, as a parser does that hands over to a coroutine. */
        stream_passive(k.s, NULL, NULL, NULL);
        CHECK_INT(stream_unread(k.s, "ag", 2), 0);
        CHECK_INT(stream_write(b, "ain", 3, MS_MAX), 0);
        settle();
        CHECK_GOT(k, "head-rest");
        char five[5];
        CHECK_INT(stream_read_full(k.s, five, 5, MS_MAX), 0);
        CHECK(memcmp(five, "again", 5) == 0);
        stream_passive(k.s, on_data, on_end, &k);
        CHECK_INT(stream_unread(k.s, "!", 1), 0);
        settle();
        CHECK_GOT(k, "head-rest!");
        stream_close(b);
        settle();
        CHECK_INT(k.ends, 1);
        /* Made passive again after the end: the end is told again. */
        stream_passive(k.s, on_data, on_end, &k);
        settle();
        CHECK_INT(k.ends, 2);
        stream_close(k.s);
        buf_done(&k.got);
}

static void bytes_put_back_come_first(void **state)
{
        run(pending_first, NULL);
}

static void callbacks(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;
        static char block[200000];

        /* Pausing in each callback: chunk by chunk. */
        make_pair(&k.s, &b);
        k.pause_each = true;
        stream_passive(k.s, on_data, on_end, &k);
        CHECK_INT(stream_post(b, block, sizeof(block), sizeof(block)), 0);
        for (int i = 1; k.got.len < sizeof(block); i++) {
                settle();
                CHECK_INT(k.chunks, i);
                settle();
                CHECK_INT(k.chunks, i);
                stream_pause(k.s, false);
        }
        settle();
        CHECK_INT(k.got.len, sizeof(block));
        stream_close(b);
        stream_pause(k.s, false);
        k.close_in_end = true;
        settle();
        CHECK(k.s == NULL && k.ends == 1);
        buf_done(&k.got);

        k = sink_new();
        make_pair(&k.s, &b);
        k.stop_each = true;
        stream_passive(k.s, on_data, on_end, &k);
        CHECK_INT(stream_post(b, block, sizeof(block), sizeof(block)), 0);
        settle();
        CHECK_INT(k.chunks, 1);
        k.stop_each = false;
        k.close_in_data = true;
        stream_passive(k.s, on_data, on_end, &k);
        settle();
        CHECK(k.s == NULL && k.chunks == 2 && k.ends == 0);
        stream_close(b);
        buf_done(&k.got);
}

static void callbacks_may_pause_stop_and_close(void **state)
{
        run(callbacks, NULL);
}

static void flow(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;
        static char block[100000];

        make_tcp_pair(&k.s, &b);
        CHECK_INT(setsockopt(stream_fd(b), SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int)), 0);
        stream_passive(k.s, on_data, on_end, &k);
        stream_pause(k.s, true);
        int r;
        size_t sent = 0;
        while ((r = stream_write(b, block, sizeof(block), 50)) == 0)
                sent += sizeof(block);
        CHECK_INT(r, -ETIMEDOUT);
        CHECK_INT(k.got.len, 0);
        stream_pause(k.s, false);
        for (int i = 0; i < 100 && k.got.len < sent; i++)
                settle();
        CHECK(k.got.len >= sent);
        stream_close(k.s);
        stream_close(b);
        buf_done(&k.got);
}

static void pausing_is_back_pressure(void **state)
{
        run(flow, NULL);
}

/* Posting */

static void post(void *arg)
{
        struct stream *a, *b;
        static char block[1000];
        size_t sent = 0;
        int r;

        make_pair(&a, &b);
        while ((r = stream_post(a, block, sizeof(block), 10000)) == 0)
                sent += sizeof(block);
        CHECK_INT(r, -EAGAIN);
        CHECK(stream_queued(a) > 9000 && stream_queued(a) <= 10000);
        CHECK_INT(stream_post(a, block, 1000, 500), -EAGAIN);
        CHECK(!stream_dead(a));
        while (sent > 0) {
                CHECK_INT(stream_read_full(b, block, sizeof(block), MS_MAX), 0);
                sent -= sizeof(block);
        }
        CHECK_INT(stream_queued(a), 0);
        CHECK_INT(stream_post(a, block, sizeof(block), 10000), 0);
        CHECK_INT(stream_post(a, block, 0, 0), 0);
        stream_close(b);
        while ((r = stream_post(a, block, sizeof(block), 10000)) == 0)
                settle();
        CHECK_INT(r, -EPIPE);
        stream_close(a);
}

static void a_slow_peer_is_told_by_post(void **state)
{
        run(post, NULL);
}

/* Watching */

static void watch(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;
        char c[10];

        make_pair(&k.s, &b);
        stream_watch(k.s, on_hangup, &k);
        CHECK_INT(stream_write(b, "abc", 3, MS_MAX), 0);
        settle();
        CHECK_INT(k.hangups, 0);
        CHECK_INT(stream_read(k.s, c, 2, MS_MAX), 2);
        CHECK_INT(stream_write(b, "def", 3, MS_MAX), 0);
        settle();
        CHECK_INT(stream_read_full(k.s, c, 4, 0), 0); /* side buffer first, nothing lost */
        CHECK(memcmp(c, "cdef", 4) == 0);
        CHECK_INT(stream_write(b, "last", 4, MS_MAX), 0);
        stream_close(b);
        CHECK_INT(k.hangups, 0);
        settle();
        CHECK_INT(k.hangups, 1);
        CHECK(stream_dead(k.s));
        CHECK_INT(stream_read(k.s, c, 10, MS_MAX), 4);
        CHECK_INT(stream_read(k.s, c, 10, MS_MAX), 0); /* the end that the watcher saw */
        settle();
        CHECK_INT(k.hangups, 1);
        /* Watching what is dead already: told, later. */
        stream_watch(k.s, on_hangup, &k);
        CHECK_INT(k.hangups, 1);
        settle();
        CHECK_INT(k.hangups, 2);
        stream_close(k.s);
}

static void the_watcher_sees_the_hang_up(void **state)
{
        run(watch, NULL);
}

static void watch_unwatched(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;

        make_pair(&k.s, &b);
        stream_watch(k.s, on_hangup, &k);
        settle();
        stream_watch(k.s, NULL, NULL);
        stream_close(b);
        settle();
        CHECK_INT(k.hangups, 0);
        CHECK(!stream_dead(k.s)); /* nobody looked */
        stream_close(k.s);

        /* Closed or unwatched between the event and its report. */
        make_pair(&k.s, &b);
        stream_close(b);
        char c;
        stream_watch(k.s, on_hangup, &k);
        CHECK_INT(stream_read(k.s, &c, 1, MS_MAX), 0);
        stream_watch(k.s, NULL, NULL);
        settle();
        CHECK_INT(k.hangups, 0);
        stream_watch(k.s, on_hangup, &k);
        stream_close(k.s);
        settle();
        CHECK_INT(k.hangups, 0);
}

static void watching_ends(void **state)
{
        run(watch_unwatched, NULL);
}

static void watch_bounded(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;
        static char block[100000];
        size_t sent = 0, got = 0;
        int r;

        make_tcp_pair(&k.s, &b);
        CHECK_INT(setsockopt(stream_fd(b), SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int)), 0);
        for (size_t i = 0; i < sizeof(block); i++)
                block[i] = (char) i;
        stream_watch(k.s, on_hangup, &k);
        while ((r = stream_post(b, block, sizeof(block), 3 * sizeof(block))) == 0) {
                sent += sizeof(block);
                settle();
        }
        CHECK_INT(r, -EAGAIN); /* the watcher reads only so much */
        CHECK_INT(k.hangups, 0);
        while (got < sent) {
                static char back[33333];
                ssize_t n = stream_read(k.s, back, sizeof(back), MS_MAX);

                CHECK(n > 0);
                for (ssize_t i = 0; i < n; i++)
                        CHECK(back[i] == block[(got + (size_t) i) % sizeof(block)]);
                got += (size_t) n;
        }
        CHECK_INT(k.hangups, 0);
#ifdef __linux__
        /* A full side buffer does not blind the watcher. */
        CHECK_INT(stream_post(b, block, sizeof(block), 3 * sizeof(block)), 0);
        CHECK_INT(stream_flush(b, MS_MAX), 0);
        settle();
        stream_close(b);
        settle();
        CHECK_INT(k.hangups, 1);
        CHECK(stream_dead(k.s));
        CHECK_INT(stream_read_full(k.s, block, sizeof(block), MS_MAX), 0);
        CHECK_INT(stream_read(k.s, block, 1, MS_MAX), 0);
#else
        stream_close(b);
#endif
        stream_close(k.s);
}

static void watching_is_bounded(void **state)
{
        run(watch_bounded, NULL);
}

static void reader(void *arg)
{
        struct sink *k = arg;
        char c[10];

        CHECK_INT(stream_read(k->s, c, 10, MS_MAX), 3);
        CHECK_INT(stream_read(k->s, c, 10, MS_MAX), 0);
        k->ends++;
}

static void watch_and_read(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;

        make_pair(&k.s, &b);
        stream_watch(k.s, on_hangup, &k);
        coro_start(reader, &k, 0, "reader");
        settle();
        CHECK_INT(stream_write(b, "abc", 3, MS_MAX), 0);
        settle();
        stream_close(b);
        settle();
        CHECK_INT(k.ends, 1);
        CHECK_INT(k.hangups, 1); /* whoever saw the end, the watcher is told */
        stream_close(k.s);
}

static void watching_and_reading_go_together(void **state)
{
        run(watch_and_read, NULL);
}

static void watch_write_error(void *arg)
{
        struct sink k = sink_new();
        struct stream *b;

        make_pair(&k.s, &b);
        stream_passive(k.s, on_data, on_end, &k);
        stream_pause(k.s, true);
        stream_watch(k.s, on_hangup, &k);
        stream_close(b);
        settle();
        CHECK_INT(k.hangups, 0);
        CHECK_INT(stream_post(k.s, "x", 1, 10), -EPIPE);
        CHECK_INT(k.hangups, 0);
        settle();
        CHECK_INT(k.hangups, 1);
        stream_close(k.s);
}

static void a_failed_write_is_a_hang_up(void **state)
{
        run(watch_write_error, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(passive_reading),
                LOOP_TEST(bytes_put_back_come_first),
                LOOP_TEST(callbacks_may_pause_stop_and_close),
                LOOP_TEST(pausing_is_back_pressure),
                LOOP_TEST(a_slow_peer_is_told_by_post),
                LOOP_TEST(the_watcher_sees_the_hang_up),
                LOOP_TEST(watching_ends),
                LOOP_TEST(watching_is_bounded),
                LOOP_TEST(watching_and_reading_go_together),
                LOOP_TEST(a_failed_write_is_a_hang_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
