/* One picture by RFB: what a good server sends, and servers that lie. No byte of theirs is believed unchecked. */
#include "rfb/rfb.h"

#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* What the server says, all at once, and what it was told. */
static struct buf says = BUF_MAX(64 << 20), told = BUF_MAX(1 << 20);
static size_t at;

static int coroutine_fn read_said(void *arg, void *p, size_t n)
{
        (void) arg;
        if (n > says.len - at)
                return -ECONNRESET;
        memcpy(p, says.p + at, n);
        at += n;
        return 0;
}

static int coroutine_fn write_told(void *arg, const void *p, size_t n)
{
        (void) arg;
        return buf_add(&told, p, n);
}

static void say(const void *p, size_t n)
{
        assert_int_equal(buf_add(&says, p, n), 0);
}

static void say16(unsigned v)
{
        say((unsigned char[]){ (unsigned char) (v >> 8), (unsigned char) v }, 2);
}

static void say32(uint32_t v)
{
        say16(v >> 16);
        say16(v & 0xffff);
}

static int begin(void **state)
{
        (void) state;
        buf_clear(&says);
        buf_clear(&told);
        at = 0;
        return 0;
}

static void greet(unsigned width, unsigned height)
{
        static const unsigned char format[16] = { 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0 };

        say("RFB 003.008\n", 12);
        say("\1\1", 2); /* one security type: None */
        say32(0);
        say16(width);
        say16(height);
        say(format, sizeof format);
        say32(3);
        say("box", 3);
}

static void rectangle(unsigned x, unsigned y, unsigned width, unsigned height, int32_t encoding)
{
        say16(x);
        say16(y);
        say16(width);
        say16(height);
        say32((uint32_t) encoding);
}

/* Each pixel tells where it is. */
static void pixels(unsigned x, unsigned y, unsigned width, unsigned height)
{
        for (unsigned j = y; j < y + height; j++)
                for (unsigned i = x; i < x + width; i++)
                        say((unsigned char[]){ (unsigned char) i, (unsigned char) j, 7, 0 }, 4);
}

static void update(unsigned rectangles)
{
        say("\0\0", 2);
        say16(rectangles);
}

static int grab(struct rfb_region region, struct picture *p, unsigned screen[2], struct err *e)
{
        struct rfb_io io = { read_said, write_told, NULL };

        return rfb_grab(&io, &region, p, screen, e);
}

static void fails(struct rfb_region region, int code, const char *words)
{
        struct picture p = { 0 };
        struct err e = { 0 };
        unsigned screen[2];

        assert_int_equal(grab(region, &p, screen, &e), code);
        assert_null(p.rgbx);
        if (!strstr(err_text(&e), words))
                fail_msg("\"%s\" is not in \"%s\"", words, err_text(&e));
}

#define ALL ((struct rfb_region){ 0 })

static void test_whole_screen(void **state)
{
        struct picture p;
        struct err e = { 0 };
        unsigned screen[2];

        (void) state;
        greet(40, 30);
        update(2);
        rectangle(0, 0, 40, 10, 0);
        pixels(0, 0, 40, 10);
        rectangle(0, 10, 25, 20, 0);
        pixels(0, 10, 25, 20);
        say("\2", 1); /* a bell in between */
        say("\3\0\0\0", 4);
        say32(5);
        say("hello", 5);
        update(1);
        rectangle(25, 10, 15, 20, 0);
        pixels(25, 10, 15, 20);
        assert_int_equal(grab(ALL, &p, screen, &e), 0);
        assert_int_equal(at, says.len);
        assert_int_equal(screen[0], 40);
        assert_int_equal(screen[1], 30);
        assert_int_equal(p.width, 40);
        assert_int_equal(p.height, 30);
        for (unsigned y = 0; y < 30; y++)
                for (unsigned x = 0; x < 40; x++) {
                        assert_int_equal(p.rgbx[(y * 40 + x) * 4], x);
                        assert_int_equal(p.rgbx[(y * 40 + x) * 4 + 1], y);
                }
        picture_done(&p);
        /* version, "None", shared, pixel format, encodings, request */
        assert_int_equal(told.len, 12 + 1 + 1 + 20 + 8 + 10);
        assert_memory_equal(told.p + told.len - 10, "\3\0\0\0\0\0\0\50\0\36", 10);
}

static void test_region(void **state)
{
        struct picture p;
        struct err e = { 0 };
        unsigned screen[2];

        (void) state;
        greet(100, 100);
        update(1);
        rectangle(5, 5, 50, 50, 0); /* more than was asked for is cut */
        pixels(5, 5, 50, 50);
        assert_int_equal(grab((struct rfb_region){ 10, 20, 3, 2 }, &p, screen, &e), 0);
        assert_int_equal(p.width, 3);
        assert_int_equal(p.height, 2);
        assert_memory_equal(p.rgbx, "\12\24\7\0\13\24\7\0\14\24\7\0\12\25\7\0\13\25\7\0\14\25\7\0", 24);
        picture_done(&p);
        assert_memory_equal(told.p + told.len - 10, "\3\0\0\12\0\24\0\3\0\2", 10);
}

static void test_bad_region(void **state)
{
        static const struct rfb_region bad[] = { { 100, 0, 1, 1 },   { 0, 100, 1, 1 },        { 90, 0, 11, 1 },
                                                 { 0, 90, 1, 11 },   { 0, 0, 101, 1 },        { 0, 0, 1, 0 },
                                                 { 1, 1, 32767, 5 }, { 4294967295u, 0, 2, 2 } };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                begin(state);
                greet(100, 100);
                fails(bad[i], -ERANGE, "100 x 100");
        }
        begin(state);
        greet(32767, 32767);
        fails(ALL, -ERANGE, "smaller `region`");
}

static void test_versions(void **state)
{
        static const char *const bad[] = { "RFB 003.003\n", "RFB 003.007\n", "RFB 00x.008\n",
                                           "HTTP/1.1 200",  "RFB 003 008\n", "RFB 003.008 " };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                begin(state);
                say(bad[i], 12);
                fails(ALL, -EPROTO, "version");
        }
}

static void test_refusals(void **state)
{
        begin(state);
        say("RFB 003.008\n\0", 13);
        say32(9);
        say("too \033many", 9);
        fails(ALL, -EACCES, "too ?many"); /* a terminal's escapes do not pass */

        begin(state);
        say("RFB 003.008\n\1\2", 14);
        fails(ALL, -EACCES, "password");

        begin(state);
        say("RFB 003.008\n\1\1", 14);
        say32(1);
        say32(0xffffffff);
        fails(ALL, -EPROTO, "reason");
}

static void test_impossible_sizes(void **state)
{
        static const unsigned sizes[][2] = { { 0, 10 }, { 10, 0 }, { 65535, 10 }, { 10, 40000 } };

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                begin(state);
                greet(sizes[i][0], sizes[i][1]);
                fails(ALL, -EPROTO, "size");
        }
        begin(state);
        say("RFB 003.008\n\1\1", 14);
        say32(0);
        say16(10);
        say16(10);
        say("0123456789abcdef", 16);
        say32(0xfffffff0); /* the length of its name */
        fails(ALL, -EPROTO, "name");
}

static void test_rectangles_that_lie(void **state)
{
        static const unsigned bad[][4] = {
                { 0, 0, 11, 10 }, { 0, 0, 10, 11 }, { 10, 0, 1, 1 }, { 65535, 65535, 65535, 65535 }, { 5, 5, 6, 1 }
        };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                begin(state);
                greet(10, 10);
                update(1);
                rectangle(bad[i][0], bad[i][1], bad[i][2], bad[i][3], 0);
                pixels(0, 0, 10, 10);
                fails(ALL, -EPROTO, "outside");
        }
        begin(state);
        greet(10, 10);
        update(1);
        rectangle(0, 0, 10, 10, 5); /* hextile */
        fails(ALL, -EPROTO, "encoding");

        begin(state);
        greet(10, 10);
        say("\xfe", 1);
        fails(ALL, -EPROTO, "unknown message");

        begin(state);
        greet(10, 10);
        say("\3\0\0\0", 4);
        say32(0x7fffffff);
        fails(ALL, -EPROTO, "clipboard");
}

/* Neither empty updates without end nor the same pixels again and again keep us. */
static void test_no_end(void **state)
{
        begin(state);
        greet(10, 10);
        for (int i = 0; i < 10000; i++)
                update(0);
        fails(ALL, -EPROTO, "end");

        begin(state);
        greet(1000, 1000);
        update(65535);
        for (int i = 0; i < 40; i++) {
                rectangle(0, 0, 1000, 100, 0); /* outside of the region that was asked for */
                pixels(0, 0, 1000, 100);
        }
        fails((struct rfb_region){ 0, 900, 10, 10 }, -EPROTO, "more pixels");
}

static void test_cut_off_anywhere(void **state)
{
        size_t whole;

        greet(8, 8);
        update(1);
        rectangle(0, 0, 8, 8, 0);
        pixels(0, 0, 8, 8);
        whole = says.len;
        for (size_t n = 0; n < whole; n++) {
                says.len = n;
                at = 0;
                buf_clear(&told);
                fails(ALL, -ECONNRESET, "broke off");
        }
        says.len = whole;
        (void) state;
}

/* Pixels that never came are black, not what was in the memory before. */
static void test_nothing_of_ours_is_shown(void **state)
{
        struct picture p;
        struct err e = { 0 };
        unsigned screen[2];

        (void) state;
        greet(64, 64);
        update(2);
        rectangle(0, 0, 64, 32, 0);
        pixels(0, 0, 64, 32);
        rectangle(0, 0, 64, 32, 0); /* the upper half twice */
        pixels(0, 0, 64, 32);
        assert_int_equal(grab(ALL, &p, screen, &e), 0);
        for (unsigned i = 64 * 32 * 4; i < 64 * 64 * 4; i++)
                assert_int_equal(p.rgbx[i], 0);
        picture_done(&p);
}

static int finish(void **state)
{
        (void) state;
        buf_done(&says);
        buf_done(&told);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_whole_screen, begin),
                cmocka_unit_test_setup(test_region, begin),
                cmocka_unit_test(test_bad_region),
                cmocka_unit_test(test_versions),
                cmocka_unit_test(test_refusals),
                cmocka_unit_test(test_impossible_sizes),
                cmocka_unit_test(test_rectangles_that_lie),
                cmocka_unit_test(test_no_end),
                cmocka_unit_test_setup(test_cut_off_anywhere, begin),
                cmocka_unit_test_setup(test_nothing_of_ours_is_shown, begin),
        };

        return cmocka_run_group_tests(tests, NULL, finish);
}
