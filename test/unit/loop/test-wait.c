#include "loop-test.h"

static struct waitq q;
static int order[100], order_n;
static size_t counter;

static void wait_and_note(void *arg)
{
        CHECK_INT(waitq_wait(&q, -1), 0);
        order[order_n++] = (int) (intptr_t) arg;
}

static void waiters_wake_in_order(void **state)
{
        waitq_init(&q);
        order_n = 0;
        waitq_wake(&q); /* nobody: forgotten, a waitq is a condition */
        for (intptr_t i = 0; i < 10; i++)
                coro_start(wait_and_note, (void *) i, 0, "waiter");
        loop_run();
        assert_false(waitq_empty(&q));
        waitq_wake(&q);
        waitq_wake(&q);
        assert_int_equal(order_n, 0);
        loop_run();
        assert_int_equal(order_n, 2);
        waitq_wake_all(&q);
        loop_run();
        assert_int_equal(order_n, 10);
        for (int i = 0; i < 10; i++)
                assert_int_equal(order[i], i);
        assert_true(waitq_empty(&q));
}

static void wait_times_out(void *arg)
{
        int64_t t = clock_ms();

        CHECK_INT(waitq_wait(&q, 30), -ETIMEDOUT);
        CHECK(clock_ms() - t >= 29);
        CHECK(waitq_empty(&q));
        CHECK_INT(waitq_wait(&q, 0), -ETIMEDOUT);
        CHECK_INT(coro_sleep(0), 0);
        CHECK_INT(coro_sleep(-5), 0);
}

static void waits_time_out(void **state)
{
        waitq_init(&q);
        run(wait_times_out, NULL);
}

struct expect {
        int result;
        int64_t timeout;
};

static void wait_expecting(void *arg)
{
        const struct expect *x = arg;

        CHECK_INT(waitq_wait(&q, x->timeout), x->result);
        counter++;
}

/* A wake that meets a waiter whose wait has just ended otherwise goes to the next one. */
static void a_wake_is_not_lost_on_the_cancelled(void **state)
{
        const struct expect cancelled = { -ECANCELED, -1 }, woken = { 0, -1 };

        waitq_init(&q);
        counter = 0;
        struct coro *a = coro_start(wait_expecting, (void *) (uintptr_t) &cancelled, 0, "a");
        coro_start(wait_expecting, (void *) (uintptr_t) &woken, 0, "b");
        loop_run();
        coro_cancel(a);
        waitq_wake(&q); /* before a has run */
        loop_run();
        assert_int_equal(counter, 2);
}

static void a_wake_before_the_cancellation_counts(void **state)
{
        const struct expect woken = { 0, -1 }, never = { -ECANCELED, -1 };

        waitq_init(&q);
        counter = 0;
        struct coro *a = coro_start(wait_expecting, (void *) (uintptr_t) &woken, 0, "a");
        struct coro *b = coro_start(wait_expecting, (void *) (uintptr_t) &never, 0, "b");
        loop_run();
        waitq_wake(&q);
        coro_cancel(a);
        loop_run();
        assert_int_equal(counter, 1);
        coro_cancel(b);
        loop_run();
        assert_int_equal(counter, 2);
}

static void wake_from_timer(void *arg)
{
        waitq_wake(&q);
}

/* Deadline of a and the wake in the same turn: whatever a gets, exactly one unit of progress happens. */
static int got_wake, got_timeout;

static void wait_counting(void *arg)
{
        int r = waitq_wait(&q, (int64_t) (intptr_t) arg);

        if (r == 0)
                got_wake++;
        else
                got_timeout += r == -ETIMEDOUT;
}

static void a_wake_is_not_lost_on_the_late(void **state)
{
        for (int64_t at = 0; at < 8; at++) {
                struct timer *t;

                waitq_init(&q);
                got_wake = got_timeout = 0;
                coro_start(wait_counting, (void *) 4, 0, "late");
                coro_start(wait_counting, (void *) 30, 0, "patient");
                t = timer_start(at, 0, wake_from_timer, NULL);
                loop_run();
                timer_stop(&t);
                assert_true(got_wake <= 1);
                assert_int_equal(got_wake + got_timeout, 2);
        }
}

static void cancel_wait(void *arg)
{
        CHECK_INT(waitq_wait(&q, -1), -ECANCELED);
        CHECK(waitq_empty(&q));
        CHECK_INT(waitq_wait(&q, -1), -ECANCELED);
        CHECK(waitq_empty(&q));
        counter++;
}

static void cancelled_waits_leave_the_queue(void **state)
{
        waitq_init(&q);
        counter = 0;
        struct coro *c = coro_start(cancel_wait, NULL, 0, "c");
        loop_run();
        coro_cancel(c);
        loop_run();
        assert_int_equal(counter, 1);
}

/* Semaphores */

static struct sem sem;
static int inside, most;

static void work(void *arg)
{
        for (int i = 0; i < 5; i++) {
                CHECK_INT(sem_take(&sem, -1), 0);
                inside++;
                most = inside > most ? inside : most;
                if (i == 0)
                        order[order_n++] = (int) (intptr_t) arg;
                CHECK_INT(coro_yield(), 0);
                inside--;
                sem_give(&sem);
        }
}

static void a_semaphore_is_fair(void **state)
{
        sem_init_n(&sem, 3);
        order_n = inside = most = 0;
        for (intptr_t i = 0; i < 30; i++)
                coro_start(work, (void *) i, 0, "worker");
        loop_run();
        assert_int_equal(most, 3);
        assert_int_equal(order_n, 30);
        for (int i = 0; i < 30; i++)
                assert_int_equal(order[i], i); /* a second take never overtakes a first */
        assert_int_equal(sem.free, 3);
}

static void take_expecting(void *arg)
{
        const struct expect *x = arg;
        int r = sem_take(&sem, x->timeout);

        CHECK_INT(r, x->result);
        counter++;
        if (r == 0)
                sem_give(&sem);
}

static void a_unit_is_not_lost_on_the_cancelled(void **state)
{
        const struct expect cancelled = { -ECANCELED, -1 }, late = { -ETIMEDOUT, 5 }, got = { 0, -1 };

        sem_init_n(&sem, 0);
        counter = 0;
        struct coro *a = coro_start(take_expecting, (void *) (uintptr_t) &cancelled, 0, "a");
        coro_start(take_expecting, (void *) (uintptr_t) &late, 0, "b");
        loop_run(); /* b's deadline passes */
        coro_start(take_expecting, (void *) (uintptr_t) &got, 0, "c");
        coro_start(take_expecting, (void *) (uintptr_t) &got, 0, "d");
        coro_cancel(a);
        sem_give(&sem);
        loop_run();
        assert_int_equal(counter, 4);
        assert_int_equal(sem.free, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(waiters_wake_in_order),
                LOOP_TEST(waits_time_out),
                LOOP_TEST(a_wake_is_not_lost_on_the_cancelled),
                LOOP_TEST(a_wake_before_the_cancellation_counts),
                LOOP_TEST(a_wake_is_not_lost_on_the_late),
                LOOP_TEST(cancelled_waits_leave_the_queue),
                LOOP_TEST(a_semaphore_is_fair),
                LOOP_TEST(a_unit_is_not_lost_on_the_cancelled),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
