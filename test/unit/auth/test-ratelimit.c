#include "test.h"

#include "auth/ratelimit.h"

#include <stdio.h>

static const struct limit_rule rule = { .free = 3, .base_ms = 1000, .max_ms = 8000, .forget_ms = 60000 };

static void test_backoff(void **state)
{
        struct ratelimit *l = ratelimit_new(64);
        int64_t now = 1000000;
        static const int64_t waits[] = { 1000, 2000, 4000, 8000, 8000, 8000 };

        (void) state;
        for (int i = 0; i < 3; i++)
                assert_int_equal(limit_charge(l, STR("a"), &rule, now), 0);
        for (size_t i = 0; i < COUNT(waits); i++) {
                assert_int_equal(limit_charge(l, STR("a"), &rule, now), 0);
                /* Tries meanwhile are not looked at and make it no longer. */
                assert_int_equal(limit_charge(l, STR("a"), &rule, now), waits[i]);
                assert_int_equal(limit_charge(l, STR("a"), &rule, now + 1), waits[i] - 1);
                assert_int_equal(limit_charge(l, STR("b"), &rule, now + (int64_t) i), i < 3 ? 0 : 0);
                limit_clear(l, STR("b"));
                now += waits[i];
        }
        assert_int_equal(limit_charge(l, STR("a"), &rule, now + 8000 + 60000), 0); /* forgotten */
        assert_int_equal(limit_charge(l, STR("a"), &rule, now + 8000 + 60000), 0);
        ratelimit_free(l);
}

static void test_refund_and_clear(void **state)
{
        struct ratelimit *l = ratelimit_new(64);

        (void) state;
        for (int i = 0; i < 100; i++) {
                assert_int_equal(limit_charge(l, STR("a"), &rule, 5), 0);
                limit_refund(l, STR("a"));
        }
        for (int i = 0; i < 4; i++)
                assert_int_equal(limit_charge(l, STR("a"), &rule, 5), 0);
        assert_true(limit_charge(l, STR("a"), &rule, 5) > 0);
        limit_clear(l, STR("a"));
        assert_int_equal(limit_charge(l, STR("a"), &rule, 5), 0);
        limit_refund(l, STR("never seen"));
        limit_clear(l, STR("never seen"));
        ratelimit_free(l);
}

/* A flood of other keys takes no memory, and does not wash away the counters that matter. */
static void test_flood(void **state)
{
        struct ratelimit *l = ratelimit_new(64);
        char key[32];

        (void) state;
        for (int i = 0; i < 4; i++)
                (void) limit_charge(l, STR("guessed"), &rule, 10);
        for (int i = 0; i < 100000; i++) {
                int n = snprintf(key, sizeof key, "flood-%d", i);

                (void) limit_charge(l, str_n(key, (size_t) n), &rule, 10);
        }
        assert_true(limit_used(l) <= 64);
        assert_true(limit_charge(l, STR("guessed"), &rule, 10) > 0);
        ratelimit_free(l);
}

static void test_rate(void **state)
{
        struct ratelimit *l = ratelimit_new(64);

        (void) state;
        for (int i = 0; i < 5; i++)
                assert_int_equal(limit_take(l, STR("r"), 5, 100, 1000), 0);
        assert_int_equal(limit_take(l, STR("r"), 5, 100, 1000), 100);
        assert_int_equal(limit_take(l, STR("r"), 5, 100, 1099), 1);
        assert_int_equal(limit_take(l, STR("r"), 5, 100, 1100), 0);
        assert_int_equal(limit_take(l, STR("r"), 5, 100, 1100), 100);
        for (int i = 0; i < 5; i++)
                assert_int_equal(limit_take(l, STR("r"), 5, 100, 9000), 0);
        assert_int_equal(limit_take(l, STR("r"), 5, 100, 9000), 100);
        ratelimit_free(l);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_backoff), cmocka_unit_test(test_refund_and_clear),
                                            cmocka_unit_test(test_flood), cmocka_unit_test(test_rate) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
