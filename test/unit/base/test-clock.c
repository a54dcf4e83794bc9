#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void monotonic_never_goes_back(void **state)
{
        int64_t last = clock_us();

        for (int i = 0; i < 10000; i++) {
                int64_t now = clock_us();

                assert_true(now >= last);
                last = now;
        }
        assert_true(last / 1000 <= clock_ms());
        assert_true(clock_ms() - last / 1000 < 60000);
}

static void monotonic_advances(void **state)
{
        const struct timespec nap = { .tv_nsec = 20 * 1000 * 1000 };
        int64_t us = clock_us(), ms = clock_ms();

        (void) nanosleep(&nap, NULL);
        assert_true(clock_us() - us >= 20000);
        assert_true(clock_ms() - ms >= 19);
}

static void wall_is_unix_time(void **state)
{
        int64_t before = (int64_t) time(NULL) * 1000;
        int64_t now = wall_ms();

        assert_true(now >= before - 1000 && now < before + 60000);
}

static const struct {
        int64_t ms;
        const char *text;
} known[] = {
        { 0, "1970-01-01T00:00:00.000Z" },
        { -1, "1969-12-31T23:59:59.999Z" },
        { 1767323045678, "2026-01-02T03:04:05.678Z" },
        { 951782400000, "2000-02-29T00:00:00.000Z" },
        { 951868800000, "2000-03-01T00:00:00.000Z" },
        { 4107542400000, "2100-03-01T00:00:00.000Z" },
        { 4107542399999, "2100-02-28T23:59:59.999Z" },
        { 253402300799999, "9999-12-31T23:59:59.999Z" },
        { -62167219200000, "0000-01-01T00:00:00.000Z" },
};

static void known_times(void **state)
{
        for (size_t i = 0; i < ARRAY_LEN(known); i++) {
                char out[RFC3339_LEN];
                int64_t back;

                assert_ptr_equal(rfc3339(known[i].ms, out), out);
                assert_string_equal(out, known[i].text);
                assert_int_equal(rfc3339_parse(str_of(out), &back), 0);
                assert_true(back == known[i].ms);
        }
}

static void out_of_range_is_clamped(void **state)
{
        char out[RFC3339_LEN];

        assert_string_equal(rfc3339(INT64_MAX, out), "9999-12-31T23:59:59.999Z");
        assert_string_equal(rfc3339(253402300800000, out), "9999-12-31T23:59:59.999Z");
        assert_string_equal(rfc3339(INT64_MIN, out), "0000-01-01T00:00:00.000Z");
}

static void agrees_with_the_c_library(void **state)
{
        for (int i = 0; i < 20000; i++) {
                uint64_t random;
                char out[RFC3339_LEN], want[RFC3339_LEN];
                struct tm tm;
                int64_t back;

                random_bytes(&random, sizeof random);
                int64_t s = (int64_t) (random % 315569520000) - 62167219200;
                time_t t = (time_t) s;
                assert_non_null(gmtime_r(&t, &tm));
                assert_int_equal(strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S", &tm) > 0, 1);
                (void) rfc3339(s * 1000 + 7, out);
                assert_string_equal(out + 19, ".007Z");
                if (tm.tm_year >= -900) /* %Y does not pad */
                        assert_memory_equal(out, want, 19);
                assert_int_equal(rfc3339_parse(str_of(out), &back), 0);
                assert_true(back == s * 1000 + 7);
        }
}

static int64_t parse(const char *s)
{
        int64_t v = INT64_MIN;

        return rfc3339_parse(str_of(s), &v) == 0 ? v : INT64_MIN;
}

static void other_spellings(void **state)
{
        assert_true(parse("1970-01-01T00:00:01Z") == 1000);
        assert_true(parse("1970-01-01t00:00:01z") == 1000);
        assert_true(parse("1970-01-01T00:00:00.1Z") == 100);
        assert_true(parse("1970-01-01T00:00:00.1239999999999Z") == 123);
        assert_true(parse("1970-01-01T01:00:00+01:00") == 0);
        assert_true(parse("1969-12-31T23:30:00.5-00:30") == 500);
        assert_true(parse("1970-01-01T00:00:00-00:00") == 0);
        assert_true(parse("1990-12-31T23:59:60Z") == parse("1991-01-01T00:00:00Z"));
}

static void refusals(void **state)
{
        static const char *const invalid[] = { "",
                                               "1970",
                                               "1970-01-01",
                                               "1970-01-01T00:00:00",
                                               "1970-01-01 00:00:00Z",
                                               "1970-01-01T00:00Z",
                                               "1970-01-01T00:00:00.Z",
                                               "1970-01-01T00:00:00,5Z",
                                               "1970-01-01T00:00:00Zx",
                                               " 1970-01-01T00:00:00Z",
                                               "1970-00-01T00:00:00Z",
                                               "1970-13-01T00:00:00Z",
                                               "1970-01-00T00:00:00Z",
                                               "1970-04-31T00:00:00Z",
                                               "1900-02-29T00:00:00Z",
                                               "2026-02-29T00:00:00Z",
                                               "1970-01-01T24:00:00Z",
                                               "1970-01-01T00:60:00Z",
                                               "1970-01-01T00:00:61Z",
                                               "1970-01-01T00:00:00+24:00",
                                               "1970-01-01T00:00:00+00:60",
                                               "1970-01-01T00:00:00+0000",
                                               "1970-01-01T00:00:00+00",
                                               "19700-01-01T00:00:00Z",
                                               "-970-01-01T00:00:00Z",
                                               "1970-1-01T00:00:00Z" };
        int64_t v = 42;

        for (size_t i = 0; i < ARRAY_LEN(invalid); i++)
                if (rfc3339_parse(str_of(invalid[i]), &v) != -EINVAL)
                        fail_msg("accepted %s", invalid[i]);
        assert_true(v == 42);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(monotonic_never_goes_back), cmocka_unit_test(monotonic_advances),
                cmocka_unit_test(wall_is_unix_time),         cmocka_unit_test(known_times),
                cmocka_unit_test(out_of_range_is_clamped),   cmocka_unit_test(agrees_with_the_c_library),
                cmocka_unit_test(other_spellings),           cmocka_unit_test(refusals),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
