/* Times and sizes as people write them. */
#include "quantity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_durations(void **state)
{
        static const struct {
                const char *text;
                int64_t ms;
        } good[] = {
                { "1s", 1000 }, { "90s", 90000 }, { "10m", 600000 }, { "24h", 86400000 }, { "3650d", 315360000000 }
        };
        static const char *const bad[] = { "",    "s",  "10",  "0s",    "-1s", "1.5h",  " 1s",
                                           "1s ", "1S", "1ms", "3651d", "1w",  "Never", "99999999999999999999d" };
        int64_t ms = -1;

        (void) state;
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                assert_int_equal(parse_duration(good[i].text, false, &ms), 0);
                assert_int_equal(ms, good[i].ms);
        }
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_true(parse_duration(bad[i], true, &ms) < 0);
        assert_true(parse_duration("never", false, &ms) < 0);
        assert_int_equal(parse_duration("never", true, &ms), 0);
        assert_int_equal(ms, 0);
}

static void test_sizes(void **state)
{
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = { { "16M", 16ULL << 20 }, { "4G", 4ULL << 30 },     { "1T", 1ULL << 40 },
                     { "16384K", 16 << 20 }, { "16777216", 16 << 20 }, { "1024T", 1ULL << 50 } };
        static const char *const bad[] = { "",     "M",  "15M", "0",     "-1G",
                                           "1.5G", "1g", "4GB", "1025T", "99999999999999999999" };
        uint64_t bytes = 0;

        (void) state;
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                assert_int_equal(parse_bytes(good[i].text, &bytes), 0);
                assert_int_equal(bytes, good[i].bytes);
        }
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_true(parse_bytes(bad[i], &bytes) < 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_durations), cmocka_unit_test(test_sizes) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
