#include "loop-test.h"

#include <signal.h>
#include <sys/wait.h>

static int fired;
static int order[200], order_n;
static struct timer *self;

static void count(void *arg)
{
        fired++;
}

static void note(void *arg)
{
        order[order_n++] = (int) (intptr_t) arg;
}

static void timers_fire_in_order_of_deadline(void **state)
{
        struct timer *t[100];

        order_n = 0;
        for (intptr_t i = 0; i < 100; i++)
                t[i] = timer_start((i * 37 % 10) * 4, 0, note, (void *) i);
        loop_run();
        assert_int_equal(order_n, 100);
        /* By deadline, and in the order of starting where equal. */
        for (int i = 1; i < 100; i++) {
                int a = order[i - 1], b = order[i];
                int ka = a * 37 % 10, kb = b * 37 % 10;

                assert_true(ka < kb || (ka == kb && a < b));
        }
        for (int i = 0; i < 100; i++)
                timer_stop(&t[i]);
}

static void stop_self(void *arg)
{
        fired++;
        timer_stop(&self);
        assert_null(self);
}

static void a_timer_stops_inside_its_own_callback(void **state)
{
        fired = 0;
        self = timer_start(1, 0, stop_self, NULL);
        loop_run();
        assert_int_equal(fired, 1);
        self = timer_start(1, 1, stop_self, NULL);
        loop_run();
        assert_int_equal(fired, 2);
        timer_stop(&self); /* NULL is fine */
}

static void stop_after_three(void *arg)
{
        if (++fired == 3)
                timer_stop(&self);
}

static void timers_repeat(void **state)
{
        int64_t t = clock_ms();

        fired = 0;
        self = timer_start(5, 10, stop_after_three, NULL);
        loop_run();
        assert_int_equal(fired, 3);
        assert_true(clock_ms() - t >= 24);
}

static void again(void *arg)
{
        if (++fired < 3)
                timer_reset(self, 2);
}

static void a_fired_timer_starts_again(void **state)
{
        fired = 0;
        self = timer_start(1, 0, again, NULL);
        loop_run();
        assert_int_equal(fired, 3);
        timer_stop(&self);
}

static void reset_moves_the_deadline(void **state)
{
        struct timer *t = timer_start(100000, 0, count, NULL);
        int64_t start = clock_ms();

        fired = 0;
        timer_reset(t, 5);
        loop_run();
        assert_int_equal(fired, 1);
        assert_true(clock_ms() - start < 10000);
        timer_stop(&t);
}

static struct timer *victim;

static void kill_victim(void *arg)
{
        timer_stop(&victim);
}

static void a_timer_stops_another_that_is_due(void **state)
{
        struct timer *killer = timer_start(2, 0, kill_victim, NULL);

        fired = 0;
        victim = timer_start(2, 0, count, NULL);
        loop_run();
        assert_int_equal(fired, 0);
        timer_stop(&killer);
}

static void busy(void)
{
        int64_t t = clock_ms();

        while (clock_ms() - t < 60)
                ;
}

static void busy_then_sleep(void *arg)
{
        int64_t t;

        for (int i = 0; i < 2; i++) {
                if (i == 1)
                        after_polling();
                busy();
                t = clock_ms();
                CHECK_INT(coro_sleep(40), 0);
                CHECK(clock_ms() - t >= 39); /* not counted from the start of the turn */
        }
        after_polling();
        int64_t stale = loop_now();
        busy();
        CHECK(deadline_in(100) >= stale + 159);
}

static void a_deadline_counts_from_now(void **state)
{
        run(busy_then_sleep, NULL);
}

static void zero_forever(void *arg)
{
        fired++;
        timer_reset(self, 0);
        if (fired == 1000)
                loop_stop();
}

static void read_byte(void *arg)
{
        struct stream *s = arg;
        char c;

        CHECK_INT(stream_read(s, &c, 1, MS_MAX), 1);
        CHECK(fired < 1000);
        stream_close(s);
}

static void a_timer_of_no_time_starves_nobody(void **state)
{
        struct stream *a, *b;

        fired = 0;
        make_pair(&a, &b);
        coro_start(read_byte, a, 0, "reader");
        self = timer_start(0, 0, zero_forever, NULL);
        assert_int_equal(stream_post(b, "x", 1, 10), 0);
        loop_run();
        assert_int_equal(fired, 1000);
        timer_stop(&self);
        stream_close(b);
}

static void many_random_timers(void **state)
{
        struct timer *t[500];
        unsigned seed = 1;

        fired = 0;
        for (int i = 0; i < 500; i++)
                t[i] = timer_start((seed = seed * 1103515245 + 12345) % 40, 0, count, NULL);
        for (int i = 0; i < 500; i += 3)
                timer_stop(&t[i]);
        for (int i = 1; i < 500; i += 3)
                timer_reset(t[i], (seed = seed * 1103515245 + 12345) % 40);
        loop_run();
        assert_int_equal(fired, 500 - 167);
        for (int i = 0; i < 500; i++)
                timer_stop(&t[i]);
}

static void sleeper(void *arg)
{
        CHECK_INT(coro_sleep((int64_t) (intptr_t) arg), 0);
        fired++;
}

static void many_sleepers(void **state)
{
        fired = 0;
        for (intptr_t i = 0; i < 2000; i++)
                coro_start(sleeper, (void *) (i * 7919 % 50), 0, "sleeper");
        loop_run();
        assert_int_equal(fired, 2000);
}

/* Deferred calls */

static void defer_again(void *arg)
{
        order[order_n++] = (int) (intptr_t) arg;
        if ((intptr_t) arg < 3)
                loop_defer(defer_again, (char *) arg + 1);
}

static void deferred_calls_come_later_and_in_order(void **state)
{
        order_n = 0;
        loop_defer(note, (void *) 10);
        loop_defer(defer_again, (void *) 1);
        loop_defer(note, (void *) 11);
        assert_int_equal(order_n, 0);
        loop_run();
        const int expected[] = { 10, 1, 11, 2, 3 };
        assert_int_equal(order_n, 5);
        assert_memory_equal(order, expected, sizeof(expected));
        loop_defer(note, NULL); /* left over at loop_done: runs or is freed */
}

/* Signals */

static int caught;

static void on_signal(int signum, void *arg)
{
        assert_int_equal(signum, SIGUSR1);
        caught++;
        if (arg)
                loop_stop();
}

static void raise_usr1(void *arg)
{
        kill(getpid(), SIGUSR1);
}

static void nothing(void *arg) {}

static void signals_run_on_the_loop(void **state)
{
        struct timer *alive = timer_start(MS_MAX, 0, nothing, NULL);

        caught = 0;
        assert_int_equal(loop_on_signal(SIGUSR1, on_signal, NULL), 0);
        assert_int_equal(loop_on_signal(SIGUSR1, on_signal, (void *) 1), 0); /* replaces */
        loop_defer(raise_usr1, NULL);
        loop_run();
        assert_int_equal(caught, 1);
        timer_stop(&alive);
        loop_run(); /* a handler alone keeps nothing running */
        assert_int_equal(loop_on_signal(SIGUSR1, NULL, NULL), 0);
        assert_int_equal(loop_on_signal(SIGKILL, on_signal, NULL), -EINVAL);
}

static void stop_twice(void *arg)
{
        loop_stop();
        loop_stop();
}

static void the_loop_stops_and_runs_again(void **state)
{
        struct timer *t = timer_start(MS_MAX, 0, nothing, NULL);

        loop_defer(stop_twice, NULL);
        loop_run();
        timer_stop(&t);
        fired = 0;
        loop_defer(count, NULL);
        loop_run();
        assert_int_equal(fired, 1);
}

/* Offloaded work */

static int double_it(void *arg)
{
        usleep(5000);
        return *(int *) arg * 2;
}

static int fail_it(void *arg)
{
        return -EIO;
}

static void do_offload(void *arg)
{
        int n = 21;

        CHECK_INT(offload(double_it, &n), 42);
        CHECK_INT(offload(fail_it, NULL), -EIO);
        fired++;
}

static void work_is_offloaded(void **state)
{
        fired = 0;
        for (int i = 0; i < 20; i++)
                coro_start(do_offload, NULL, 0, "offload");
        loop_run();
        assert_int_equal(fired, 20);
}

static int misbehave(void *arg)
{
        loop_defer(count, NULL);
        return 0;
}

static void do_misbehave(void *arg)
{
        (void) offload(misbehave, NULL);
}

static void another_thread_is_found_out(void **state)
{
        pid_t pid = fork();
        int st;

        if (pid == 0) {
                struct err e;

                signal(SIGABRT, SIG_DFL);
                close(2);
                loop_done();
                if (loop_init(&e) < 0)
                        _exit(1);
                coro_start(do_misbehave, NULL, 0, "misbehave");
                loop_run();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        assert_int_equal(WTERMSIG(st), SIGABRT);
}

static int slow(void *arg)
{
        usleep(50000);
        *(int *) arg = 7;
        return 1;
}

static void offload_cancelled(void *arg)
{
        int n = 0; /* on this stack: leaving early would let the thread write into the void */

        CHECK_INT(offload(slow, &n), 1);
        CHECK_INT(n, 7);
        CHECK_INT(coro_park(-1), -ECANCELED);
        fired++;
}

static void offloaded_work_outlasts_cancellation(void **state)
{
        fired = 0;
        struct coro *c = coro_start(offload_cancelled, NULL, 0, "offload");
        loop_defer((void (*)(void *)) coro_cancel, c);
        loop_run();
        assert_int_equal(fired, 1);
}

static void offload_at_the_end(void **state)
{
        fired = 0;
        coro_start(offload_cancelled, NULL, 0, "offload");
        loop_defer(stop_twice, NULL);
        loop_run();
        loop_done();
        assert_int_equal(fired, 1);
}

static void resolve(void *arg)
{
        struct err e = { 0 };
        char addr[64];

        CHECK_INT(resolve_host("127.0.0.1", addr, sizeof(addr), &e), 0);
        CHECK(strcmp(addr, "127.0.0.1") == 0);
        CHECK_INT(resolve_host("::1", addr, sizeof(addr), &e), 0);
        CHECK(strcmp(addr, "::1") == 0);
        CHECK_INT(resolve_host("localhost", addr, sizeof(addr), &e), 0);
        CHECK(strcmp(addr, "127.0.0.1") == 0 || strcmp(addr, "::1") == 0);
        CHECK(resolve_host("127.0.0.1", addr, 4, &e) < 0);
        int r = resolve_host("no-such-host.invalid", addr, sizeof(addr), &e);
        CHECK(r < 0 && r != -ETIMEDOUT);
        CHECK(strstr(e.msg, "no-such-host.invalid"));
}

static void names_resolve(void **state)
{
        run(resolve, NULL);
}

static void deadlines(void **state)
{
        assert_int_equal(deadline_left(deadline_in(-1)), -1);
        assert_int_equal(deadline_left(deadline_in(INT64_MAX)), -1);
        assert_int_equal(deadline_left(deadline_in(0)), 0);
        assert_int_equal(deadline_left(deadline_in(500)), 500);
        assert_int_equal(deadline_left(loop_now() - 5), 0);
}

static void a_second_loop_is_refused(void **state)
{
        struct err e;

        assert_int_equal(loop_init(&e), -EALREADY);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(timers_fire_in_order_of_deadline),
                LOOP_TEST(a_timer_stops_inside_its_own_callback),
                LOOP_TEST(timers_repeat),
                LOOP_TEST(a_fired_timer_starts_again),
                LOOP_TEST(reset_moves_the_deadline),
                LOOP_TEST(a_timer_stops_another_that_is_due),
                LOOP_TEST(a_deadline_counts_from_now),
                LOOP_TEST(a_timer_of_no_time_starves_nobody),
                LOOP_TEST(many_random_timers),
                LOOP_TEST(many_sleepers),
                LOOP_TEST(deferred_calls_come_later_and_in_order),
                LOOP_TEST(signals_run_on_the_loop),
                LOOP_TEST(the_loop_stops_and_runs_again),
                LOOP_TEST(work_is_offloaded),
                LOOP_TEST(another_thread_is_found_out),
                LOOP_TEST(offloaded_work_outlasts_cancellation),
                LOOP_TEST(offload_at_the_end),
                LOOP_TEST(names_resolve),
                LOOP_TEST(deadlines),
                LOOP_TEST(a_second_loop_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
