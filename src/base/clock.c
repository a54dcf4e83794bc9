#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define DAY_MS INT64_C(86400000)
#define YEAR_0000_MS (INT64_C(-719528) * DAY_MS)
#define YEAR_10000_MS (INT64_C(2932897) * DAY_MS)

static int64_t now_us(clockid_t id)
{
        struct timespec t;

        (void) clock_gettime(id, &t);
        return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_ms(void)
{
        return now_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_us(void)
{
        return now_us(CLOCK_MONOTONIC);
}

int64_t wall_ms(void)
{
        return now_us(CLOCK_REALTIME) / 1000;
}

/* Days since 1970-01-01 of a proleptic Gregorian date; years are counted from March so that the leap day is last. */
static int64_t days_of(int64_t y, unsigned m, unsigned d)
{
        y += 400 - (m <= 2); /* 400 years are a whole cycle; keeps the division positive from year 0 on */
        int64_t era = y / 400, in_era = y % 400;
        int64_t in_year = (153 * (int64_t) (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;

        return (era - 1) * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static void date_of(int64_t days, int *y, int *m, int *d)
{
        days += 719468 + 146097;
        int64_t era = days / 146097, doe = days % 146097;
        int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
        int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        int64_t mp = (5 * doy + 2) / 153;

        *d = (int) (doy - (153 * mp + 2) / 5 + 1);
        *m = (int) (mp < 10 ? mp + 3 : mp - 9);
        *y = (int) (yoe + (era - 1) * 400 + (*m <= 2));
}

char *rfc3339(int64_t unix_ms, char out[RFC3339_LEN])
{
        int y, m, d;

        /* The text has room for four digits of year and no sign. */
        if (unix_ms < YEAR_0000_MS)
                unix_ms = YEAR_0000_MS;
        if (unix_ms >= YEAR_10000_MS)
                unix_ms = YEAR_10000_MS - 1;
        int64_t days = (unix_ms - YEAR_0000_MS) / DAY_MS + YEAR_0000_MS / DAY_MS;
        int ms = (int) (unix_ms - days * DAY_MS);
        date_of(days, &y, &m, &d);
        (void) snprintf(out, RFC3339_LEN, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned) y % 10000,
                        (unsigned) m % 100, (unsigned) d % 100, (unsigned) ms / 3600000 % 100,
                        (unsigned) ms / 60000 % 60, (unsigned) ms / 1000 % 60, (unsigned) ms % 1000);
        return out;
}

/* Takes n digits from the front of s; the value must lie between min and max. */
static bool take_num(struct str *s, size_t n, unsigned min, unsigned max, unsigned *ret)
{
        uint64_t v;

        if (s->n < n || parse_u64(str_n(s->p, n), max, &v) < 0 || v < min)
                return false;
        *ret = (unsigned) v;
        *s = str_n(s->p + n, s->n - n);
        return true;
}

static bool take_char(struct str *s, char upper)
{
        if (!s->n || (s->p[0] != upper && !(upper >= 'A' && s->p[0] == upper + ('a' - 'A'))))
                return false;
        *s = str_n(s->p + 1, s->n - 1);
        return true;
}

static bool take_fraction(struct str *s, unsigned *ret_ms)
{
        unsigned scale = 100;
        bool any = false;

        *ret_ms = 0;
        if (!take_char(s, '.'))
                return true;
        for (unsigned digit; take_num(s, 1, 0, 9, &digit); any = true) {
                *ret_ms += digit * scale;
                scale /= 10; /* past milliseconds the digits weigh nothing */
        }
        return any;
}

static bool take_offset(struct str *s, int64_t *ret_ms)
{
        unsigned h, m;

        *ret_ms = 0;
        if (take_char(s, 'Z'))
                return true;
        bool west = take_char(s, '-');
        if (!west && !take_char(s, '+'))
                return false;
        if (!take_num(s, 2, 0, 23, &h) || !take_char(s, ':') || !take_num(s, 2, 0, 59, &m))
                return false;
        *ret_ms = (west ? -60000 : 60000) * (int64_t) (h * 60 + m);
        return true;
}

static unsigned days_in_month(unsigned y, unsigned m)
{
        static const unsigned char days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
        bool leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);

        return m == 2 && leap ? 29 : days[m - 1];
}

int rfc3339_parse(struct str s, int64_t *ret_unix_ms)
{
        unsigned y, mon, d, h, min, sec, ms;
        int64_t offset;

        if (!take_num(&s, 4, 0, 9999, &y) || !take_char(&s, '-') || !take_num(&s, 2, 1, 12, &mon) ||
            !take_char(&s, '-') || !take_num(&s, 2, 1, days_in_month(y, mon), &d) || !take_char(&s, 'T'))
                return -EINVAL;
        /* Second 60 is a leap second and becomes the first instant after it, as in Unix time. */
        if (!take_num(&s, 2, 0, 23, &h) || !take_char(&s, ':') || !take_num(&s, 2, 0, 59, &min) ||
            !take_char(&s, ':') || !take_num(&s, 2, 0, 60, &sec) || !take_fraction(&s, &ms))
                return -EINVAL;
        if (!take_offset(&s, &offset) || s.n)
                return -EINVAL;
        *ret_unix_ms = days_of(y, mon, d) * DAY_MS + (int64_t) ((h * 60 + min) * 60 + sec) * 1000 + ms - offset;
        return 0;
}
