/* What boxes get of a disk that is smaller than what they were promised. */
#include "boxhost/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#define GIB (1ULL << 30)

static void test_reserve(void **state)
{
        (void) state;
        assert_int_equal(share_reserve(0), 256ULL << 20);
        assert_int_equal(share_reserve(40 * GIB), 2 * GIB);
        assert_int_equal(share_reserve(1000 * GIB), 4 * GIB);
}

static void test_divide(void **state)
{
        struct share_box b[4] = { { 100, 0 }, { 10, 0 }, { 100, 0 }, { 0, 0 } };

        (void) state;
        share_divide(1000, b, 4); /* enough for all */
        assert_int_equal(b[0].mine, 100);
        assert_int_equal(b[1].mine, 10);
        assert_int_equal(b[2].mine, 100);
        assert_int_equal(b[3].mine, 0);
        share_divide(110, b, 4); /* what small ones do not need goes to the others */
        assert_int_equal(b[0].mine, 50);
        assert_int_equal(b[1].mine, 10);
        assert_int_equal(b[2].mine, 50);
        share_divide(2, b, 4);
        assert_int_equal(b[0].mine + b[1].mine + b[2].mine + b[3].mine, 0); /* not even one each */
        share_divide(0, b, 4);
        for (size_t i = 0; i < 4; i++)
                assert_int_equal(b[i].mine, 0);
        share_divide(5, b, 0);
}

/* Whatever the figures, together they never get more than there is, nor anybody more than it has. */
static void test_never_too_much(void **state)
{
        (void) state;
        srand(1);
        for (int round = 0; round < 5000; round++) {
                struct share_box b[17];
                size_t n = (size_t) (rand() % 17) + 1;
                uint64_t left = (uint64_t) rand() % 3000, sum = 0, wanted = 0;
                for (size_t i = 0; i < n; i++) {
                        b[i] = (struct share_box){ .free = (uint64_t) rand() % 500 };
                        wanted += b[i].free;
                }
                share_divide(left, b, n);
                for (size_t i = 0; i < n; i++) {
                        assert_true(b[i].mine <= b[i].free);
                        sum += b[i].mine;
                }
                assert_true(sum <= left);
                assert_true(sum == wanted || sum + n > left); /* and nothing is held back but what does not divide */
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_reserve), cmocka_unit_test(test_divide),
                                            cmocka_unit_test(test_never_too_much) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
