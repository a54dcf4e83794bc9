#include "loop-test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

static size_t counter;

static void count_one(void *arg)
{
        counter++;
}

static void many_created_and_ended(void **state)
{
        coro_set_max(20000);
        counter = 0;
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 10000; i++)
                        assert_non_null(coro_start(count_one, NULL, 0, "one"));
                assert_int_equal(coro_count(), 10000);
                loop_run();
                assert_int_equal(coro_count(), 0);
        }
        assert_int_equal(counter, 30000);
}

static void park_for_ever(void *arg)
{
        CHECK_INT(coro_park(-1), 0);
        counter++;
}

static void the_maximum_is_kept(void **state)
{
        struct coro *c[5];

        coro_set_max(5);
        for (int i = 0; i < 5; i++)
                assert_non_null(c[i] = coro_start(park_for_ever, NULL, 0, "parked"));
        assert_null(coro_start(park_for_ever, NULL, 0, "too many"));
        loop_run(); /* nothing left to wait for: they are parked without any event to come */
        assert_int_equal(coro_count(), 5);
        counter = 0;
        for (int i = 0; i < 5; i++) {
                assert_true(coro_parked(c[i]));
                coro_wake(c[i]);
                coro_wake(c[i]); /* no-op */
                assert_false(coro_parked(c[i]));
        }
        assert_int_equal(counter, 0); /* never inline */
        loop_run();
        assert_int_equal(counter, 5);
        coro_set_max(20000);
}

static int order[300], order_n;

static void note_order(void *arg)
{
        for (int i = 0; i < 3; i++) {
                order[order_n++] = (int) (intptr_t) arg;
                CHECK_INT(coro_yield(), 0);
        }
}

static void wakes_are_first_in_first_out(void **state)
{
        order_n = 0;
        for (intptr_t i = 0; i < 100; i++)
                coro_start(note_order, (void *) i, 0, "order");
        loop_run();
        assert_int_equal(order_n, 300);
        for (int i = 0; i < 300; i++)
                assert_int_equal(order[i], i % 100);
}

static struct coro *parked[10];

static void park_and_note(void *arg)
{
        intptr_t i = (intptr_t) arg;

        parked[i] = coro_self();
        CHECK_INT(coro_park(-1), 0);
        order[order_n++] = (int) i;
}

static void wake_shuffled(void *arg)
{
        for (int i = 0; i < 10; i++)
                coro_wake(parked[i * 7 % 10]);
        CHECK_INT(order_n, 0);
}

static void wake_order_is_that_of_the_calls(void **state)
{
        order_n = 0;
        for (intptr_t i = 0; i < 10; i++)
                coro_start(park_and_note, (void *) i, 0, "park");
        coro_start(wake_shuffled, NULL, 0, "wake");
        loop_run();
        assert_int_equal(order_n, 10);
        for (int i = 0; i < 10; i++)
                assert_int_equal(order[i], i * 7 % 10);
}

static size_t __attribute__((noinline)) deep(size_t levels)
{
        volatile char frame[512];

        memset((char *) frame, (int) levels, sizeof(frame));
        if (levels > 0 && levels % 16 == 0)
                CHECK_INT(coro_yield(), 0);
        return levels == 0 ? 0 : deep(levels - 1) + (frame[100] == (char) levels);
}

static void use_depth(void *arg)
{
        size_t levels = (size_t) (uintptr_t) arg;

        CHECK_INT(deep(levels), levels);
        counter++;
}

static void deep_stacks_hold(void **state)
{
        counter = 0;
        for (int i = 0; i < 50; i++) {
                coro_start(use_depth, (void *) 70, 0, "deep");
                coro_start(use_depth, (void *) 300, CORO_STACK_LARGE, "deeper");
                coro_start(use_depth, (void *) 700, (size_t) 1 << 20, "own size");
        }
        loop_run();
        assert_int_equal(counter, 150);
}

static volatile size_t depth_limit = SIZE_MAX;

/* Not a tail call, and not provably endless. */
static size_t __attribute__((noinline)) overflow(size_t n)
{
        volatile char frame[256];

        frame[0] = (char) n;
        return n >= depth_limit ? 0 : overflow(n + 1) + (size_t) frame[0];
}

static void overflow_stack(void *arg)
{
        counter = overflow(0);
}

static void the_guard_page_kills(void **state)
{
        pid_t pid = fork();
        int st;

        if (pid == 0) {
                /* The handler of ASan or cmocka would run on the broken stack; what matters is the fault. */
                signal(SIGSEGV, SIG_DFL);
                signal(SIGBUS, SIG_DFL);
                coro_start(overflow_stack, NULL, 0, "overflow");
                loop_run();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        assert_true(WTERMSIG(st) == SIGSEGV || WTERMSIG(st) == SIGBUS);
}

static void suspend_forbidden(void *arg)
{
        coro_forbid();
        coro_forbid();
        coro_permit();
        (void) coro_yield();
}

static void end_forbidden(void *arg)
{
        coro_forbid();
}

static void dies(void (*fn)(void *arg))
{
        pid_t pid = fork();
        int st;

        if (pid == 0) {
                signal(SIGABRT, SIG_DFL);
                close(2);
                coro_start(fn, NULL, 0, "dies");
                loop_run();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        assert_int_equal(WTERMSIG(st), SIGABRT);
}

static void unshield_too_often(void *arg)
{
        coro_unshield();
}

static void broken_rules_abort(void **state)
{
        dies(suspend_forbidden);
        dies(end_forbidden);
        dies(unshield_too_often);
}

static void forbid_then_go_on(void *arg)
{
        coro_forbid();
        coro_forbid();
        coro_permit();
        coro_permit();
        CHECK_INT(coro_yield(), 0);
        CHECK_INT(coro_sleep(1), 0);
}

static void forbid_nests(void **state)
{
        run(forbid_then_go_on, NULL);
}

/* Cancellation */

static void sticky(void *arg)
{
        CHECK(!coro_cancelled());
        CHECK_INT(coro_park(-1), -ECANCELED);
        CHECK(coro_cancelled());
        CHECK_INT(coro_park(-1), -ECANCELED);
        CHECK_INT(coro_sleep(100), -ECANCELED);
        CHECK_INT(coro_yield(), -ECANCELED);
        CHECK_INT(coro_check(), -ECANCELED);

        coro_shield();
        CHECK_INT(coro_check(), 0);
        CHECK_INT(coro_sleep(2), 0);
        coro_shield();
        coro_unshield();
        CHECK_INT(coro_park(1), -ETIMEDOUT);
        coro_unshield();
        CHECK_INT(coro_park(-1), -ECANCELED);
        counter++;
}

static void cancellation_is_sticky_and_shielded(void **state)
{
        counter = 0;
        struct coro *c = coro_start(sticky, NULL, 0, "sticky");
        loop_run();
        coro_cancel(c);
        coro_cancel(c);
        loop_run();
        assert_int_equal(counter, 1);
}

static void cancelled_before_start(void *arg)
{
        CHECK(coro_cancelled());
        CHECK_INT(coro_park(-1), -ECANCELED);
        counter++;
}

static void cancelled_before_it_started_it_still_runs(void **state)
{
        counter = 0;
        coro_cancel(coro_start(cancelled_before_start, NULL, 0, "early"));
        loop_run();
        assert_int_equal(counter, 1);
}

static void shielded(void *arg)
{
        coro_shield();
        CHECK_INT(coro_park(-1), 0); /* the cancellation does not end it, the wake does */
        coro_unshield();
        CHECK_INT(coro_park(-1), -ECANCELED);
        counter++;
}

static void a_shielded_wait_is_not_cancelled(void **state)
{
        counter = 0;
        struct coro *c = coro_start(shielded, NULL, 0, "shielded");
        loop_run();
        coro_cancel(c);
        loop_run();
        assert_int_equal(counter, 0);
        coro_wake(c);
        loop_run();
        assert_int_equal(counter, 1);
}

static void first_wins(void *arg)
{
        int *expected = arg;

        CHECK_INT(coro_park(5), *expected);
        counter++;
}

static void wake_and_cancel(void *arg)
{
        struct coro **pair = arg;

        coro_wake(pair[0]);
        coro_cancel(pair[0]);
        coro_cancel(pair[1]);
        coro_wake(pair[1]);
}

static void whoever_ends_a_wait_first_wins(void **state)
{
        int zero = 0, cancelled = -ECANCELED, timeout = -ETIMEDOUT;
        struct coro *c;

        counter = 0;
        c = coro_start(first_wins, &zero, 0, "wake first");
        struct coro *d = coro_start(first_wins, &cancelled, 0, "cancel first");
        coro_start(first_wins, &timeout, 0, "timeout");
        struct coro *pair[] = { c, d };
        loop_defer(wake_and_cancel, pair);
        loop_run();
        assert_int_equal(counter, 3);
}

static void hold_secret(void *arg)
{
        /* Nothing else knows this memory. */
        char *volatile p = xmalloc(4321);

        memset((char *) p, 1, 4321);
        CHECK_INT(coro_park(-1), -ECANCELED);
        free((void *) p);
        counter++;
}

static void leaks_see_parked_stacks(void **state)
{
        counter = 0;
        struct coro *c[100];
        for (int i = 0; i < 100; i++)
                c[i] = coro_start(hold_secret, NULL, i % 2 ? CORO_STACK_LARGE : 0, "secret");
        loop_run();
#if defined(__SANITIZE_ADDRESS__)
        assert_int_equal(__lsan_do_recoverable_leak_check(), 0);
#endif
        for (int i = 0; i < 100; i++)
                coro_cancel(c[i]);
        loop_run();
        assert_int_equal(counter, 100);
}

static void parked_at_the_end(void *arg)
{
        _cleanup_free_ char *p = xmalloc(10);

        p[0] = 1;
        CHECK_INT(coro_park(-1), -ECANCELED);
        coro_shield();
        CHECK_INT(coro_sleep(20), 0); /* cleanup that waits gets its time */
        coro_unshield();
        counter++;
}

static void loop_done_cancels_what_is_left(void **state)
{
        counter = 0;
        for (int i = 0; i < 20; i++)
                coro_start(parked_at_the_end, NULL, 0, "left");
        loop_done();
        assert_int_equal(counter, 20);
        assert_int_equal(coro_count(), 0);
        loop_done(); /* harmless */
}

static int seen, seen_parked;

static void each(const struct coro *c, const char *name, bool is_parked, void *arg)
{
        CHECK(c);
        CHECK(strcmp(name, "listed") == 0);
        seen++;
        seen_parked += is_parked;
}

static void coroutines_are_listed(void **state)
{
        struct coro *a = coro_start(park_for_ever, NULL, 0, "listed");

        loop_run();
        struct coro *b = coro_start(park_for_ever, NULL, 0, "listed");
        seen = seen_parked = 0;
        coro_each(each, NULL);
        assert_int_equal(seen, 2);
        assert_int_equal(seen_parked, 1);
        loop_run();
        coro_wake(a);
        coro_wake(b);
        loop_run();
        assert_null(coro_self());
}

static void started_within(void *arg)
{
        counter++;
        if (arg)
                CHECK(coro_start(started_within, (char *) arg - 1, 0, "within"));
}

static void coroutines_start_coroutines(void **state)
{
        counter = 0;
        coro_start(started_within, (void *) 50, 0, "first");
        loop_run();
        assert_int_equal(counter, 51);
}

static void deep_then_park(void *arg)
{
        char kept[5000];

        memset(kept, 'k', sizeof(kept));
        CHECK_INT(deep(60), 60);
        CHECK_INT(coro_park(-1), 0);
        for (size_t i = 0; i < sizeof(kept); i++)
                CHECK(kept[i] == 'k');
        CHECK_INT(deep(60), 60);
        counter++;
}

static struct coro *deep_parked[500];

static void park_deep_ones(void)
{
        counter = 0;
        for (int i = 0; i < 500; i++)
                deep_parked[i] = coro_start(deep_then_park, NULL, 0, "deep");
        loop_run();
}

static void trimming_keeps_what_is_in_use(void **state)
{
        park_deep_ones();
        for (int i = 0; i < 3; i++)
                coro_trim();
        for (int i = 0; i < 500; i++)
                coro_wake(deep_parked[i]);
        coro_trim();
        loop_run();
        assert_int_equal(counter, 500);
}

#ifndef __SANITIZE_ADDRESS__
static size_t resident_bytes(void)
{
        char line[128] = { 0 };
        FILE *f = fopen("/proc/self/statm", "r");
        unsigned long pages = 0;

        CHECK(f && fgets(line, sizeof(line), f));
        fclose(f);
        CHECK(strchr(line, ' '));
        pages = strtoul(strchr(line, ' '), NULL, 10);
        return pages * 4096;
}

static void long_waits_use_little(void **state)
{
        size_t before, trimmed;

        park_deep_ones();
        before = resident_bytes();
        coro_trim();
        coro_trim();
        trimmed = resident_bytes();
        /* Each went 30 KiB deep and waits with less than 12. */
        assert_true(before - trimmed > (size_t) 500 * 16384);
        for (int i = 0; i < 500; i++)
                coro_wake(deep_parked[i]);
        loop_run();
        assert_int_equal(counter, 500);
}

static void idle_stacks_go_back_to_the_kernel(void **state)
{
        size_t before = resident_bytes();

        for (int i = 0; i < 1000; i++)
                coro_start(use_depth, (void *) 70, 0, "deep");
        loop_run();
        /* A thousand stacks of 40 KiB were used; 64 may stay warm. */
        assert_true(resident_bytes() < before + ((size_t) 4 << 20));
}
#endif

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(many_created_and_ended),
                LOOP_TEST(the_maximum_is_kept),
                LOOP_TEST(wakes_are_first_in_first_out),
                LOOP_TEST(wake_order_is_that_of_the_calls),
                LOOP_TEST(deep_stacks_hold),
                LOOP_TEST(the_guard_page_kills),
                LOOP_TEST(broken_rules_abort),
                LOOP_TEST(forbid_nests),
                LOOP_TEST(cancellation_is_sticky_and_shielded),
                LOOP_TEST(cancelled_before_it_started_it_still_runs),
                LOOP_TEST(a_shielded_wait_is_not_cancelled),
                LOOP_TEST(whoever_ends_a_wait_first_wins),
                LOOP_TEST(leaks_see_parked_stacks),
                LOOP_TEST(loop_done_cancels_what_is_left),
                LOOP_TEST(coroutines_are_listed),
                LOOP_TEST(coroutines_start_coroutines),
                LOOP_TEST(trimming_keeps_what_is_in_use),
#ifndef __SANITIZE_ADDRESS__
                LOOP_TEST(long_waits_use_little),
                LOOP_TEST(idle_stacks_go_back_to_the_kernel),
#endif
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
