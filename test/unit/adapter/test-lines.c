#include "adapter/lines.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct buf got = BUF_MAX(65536);

static int note(struct str line, void *arg)
{
        if (!line.p)
                return buf_adds(&got, "TOO LONG|");
        (void) buf_addstr(&got, line);
        return buf_addc(&got, '|');
}

static void expect(const char *text)
{
        assert_string_equal(buf_cstr(&got), text);
        buf_clear(&got);
}

static void any_pieces(void **state)
{
        static const char text[] = "one\n\r\n   \ntwo\r\nthr\xc3\xa9\xc3\xa9\nlast";

        for (size_t piece = 1; piece < sizeof text; piece++) {
                struct lines l;

                lines_init(&l, 100);
                for (size_t at = 0; at < sizeof text - 1; at += piece) {
                        size_t n = sizeof text - 1 - at < piece ? sizeof text - 1 - at : piece;

                        assert_int_equal(lines_feed(&l, text + at, n, note, NULL), 0);
                }
                expect("one|two|thr\xc3\xa9\xc3\xa9|");
                assert_int_equal(lines_end(&l, note, NULL), 0);
                expect("last|");
                lines_done(&l);
        }
}

static void over_the_limit(void **state)
{
        struct lines l;

        lines_init(&l, 4);
        for (const char *p = "1234\n12345\nok\n1234567"; *p; p++)
                assert_int_equal(lines_feed(&l, p, 1, note, NULL), 0);
        assert_int_equal(lines_feed(&l, "89\nyes\n", 7, note, NULL), 0);
        expect("1234|TOO LONG|ok|TOO LONG|yes|");
        assert_int_equal(lines_feed(&l, "123456\nab\n", 10, note, NULL), 0);
        expect("TOO LONG|ab|");
        lines_done(&l);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(any_pieces), cmocka_unit_test(over_the_limit) };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        buf_done(&got);
        return r;
}
