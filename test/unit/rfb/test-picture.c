/* Pictures: what is encoded is what was there, and never larger than an image block may be, whatever it shows. */
#include "rfb/picture.h"

#include "base/mem.h"

#include <spng.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct picture make(unsigned width, unsigned height, bool noise)
{
        struct picture p;
        uint32_t seed = 1;

        assert_int_equal(picture_init(&p, width, height), 0);
        for (size_t i = 0; i < (size_t) width * height * 4; i++) {
                seed = seed * 1664525u + 1013904223u;
                p.rgbx[i] = noise ? (unsigned char) (seed >> 24) : (unsigned char) (i % 4 * 60 + (i / 4 / width) % 8);
        }
        return p;
}

static unsigned char *decode(const struct picture_encoded *im, unsigned *width, unsigned *height)
{
        unsigned char *rgb;

        if (im->format == PICTURE_PNG) {
                spng_ctx *c = spng_ctx_new(0);
                struct spng_ihdr head;
                size_t n;

                assert_int_equal(spng_set_png_buffer(c, im->bytes.p, im->bytes.len), 0);
                assert_int_equal(spng_get_ihdr(c, &head), 0);
                assert_int_equal(spng_decoded_image_size(c, SPNG_FMT_RGB8, &n), 0);
                rgb = malloc(n);
                assert_non_null(rgb);
                assert_int_equal(spng_decode_image(c, rgb, n, SPNG_FMT_RGB8, 0), 0);
                spng_ctx_free(c);
                *width = head.width;
                *height = head.height;
                return rgb;
        }
        tjhandle h = tjInitDecompress();
        int w, hh, sub, space;
        assert_int_equal(tjDecompressHeader3(h, (unsigned char *) im->bytes.p, im->bytes.len, &w, &hh, &sub, &space),
                         0);
        rgb = malloc((size_t) w * (size_t) hh * 3);
        assert_non_null(rgb);
        assert_int_equal(tjDecompress2(h, (unsigned char *) im->bytes.p, im->bytes.len, rgb, w, 0, hh, TJPF_RGB, 0), 0);
        tjDestroy(h);
        *width = (unsigned) w;
        *height = (unsigned) hh;
        return rgb;
}

static void test_png_is_exact(void **state)
{
        struct picture p = make(321, 123, false);
        struct picture_encoded im;
        struct err e = { 0 };
        unsigned width, height;

        (void) state;
        assert_int_equal(picture_encode(&p, PICTURE_ANY, PICTURE_PIXELS_MAX, PICTURE_BYTES_MAX, &im, &e), 0);
        assert_int_equal(im.format, PICTURE_PNG);
        unsigned char *rgb = decode(&im, &width, &height);
        assert_int_equal(width, 321);
        assert_int_equal(height, 123);
        for (size_t i = 0; i < (size_t) width * height; i++)
                assert_memory_equal(rgb + i * 3, p.rgbx + i * 4, 3);
        free(rgb);
        buf_done(&im.bytes);
        picture_done(&p);
}

static void test_jpeg_is_close(void **state)
{
        struct picture p = make(64, 64, false);
        struct picture_encoded im;
        struct err e = { 0 };
        unsigned width, height, w2, h2;

        (void) state;
        assert_int_equal(picture_encode(&p, PICTURE_JPEG, PICTURE_PIXELS_MAX, PICTURE_BYTES_MAX, &im, &e), 0);
        assert_int_equal(im.format, PICTURE_JPEG);
        assert_string_equal(picture_mime(im.format), "image/jpeg");
        unsigned char *rgb = decode(&im, &width, &height);
        assert_int_equal(width, 64);
        for (size_t i = 0; i < (size_t) width * height; i++)
                for (size_t k = 0; k < 3; k++)
                        assert_in_range(rgb[i * 3 + k] + 24, p.rgbx[i * 4 + k] + 12, p.rgbx[i * 4 + k] + 36);
        assert_true(jpeg_size((unsigned char *) im.bytes.p, im.bytes.len, &w2, &h2));
        assert_int_equal(w2, 64);
        assert_int_equal(h2, 64);
        free(rgb);
        buf_done(&im.bytes);
        picture_done(&p);
}

/* The limits hold for the worst there is, in each format, and proportions are kept. */
static void test_limits(void **state)
{
        static const unsigned sizes[][2] = { { 1280, 800 }, { 3840, 2160 }, { 200, 6000 }, { 32767, 40 } };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (int f = PICTURE_ANY; f <= PICTURE_JPEG; f++) {
                        struct picture p = make(sizes[i][0], sizes[i][1], true);
                        struct picture_encoded im;
                        struct err e = { 0 };

                        assert_int_equal(picture_encode(&p, (enum picture_format) f, PICTURE_PIXELS_MAX,
                                                        PICTURE_BYTES_MAX, &im, &e),
                                         0);
                        assert_in_range(im.bytes.len, 1, PICTURE_BYTES_MAX);
                        assert_in_range((uint64_t) im.width * im.height, 1, PICTURE_PIXELS_MAX);
                        assert_int_equal(im.format, f == PICTURE_PNG ? PICTURE_PNG : PICTURE_JPEG);
                        double want = (double) sizes[i][0] / sizes[i][1], got = (double) im.width / im.height;
                        assert_true(got > want * 0.9 && got < want * 1.1);
                        buf_done(&im.bytes);
                        picture_done(&p);
                }
}

static void test_what_cannot_fit(void **state)
{
        struct picture p = make(100, 100, true);
        struct picture_encoded im;
        struct err e = { 0 };

        (void) state;
        assert_int_equal(picture_encode(&p, PICTURE_JPEG, 1000, 20, &im, &e), -5);
        assert_null(im.bytes.p);
        picture_done(&p);
}

static void test_scaling_averages(void **state)
{
        struct picture p, q;

        (void) state;
        assert_int_equal(picture_init(&p, 4, 2), 0);
        for (int i = 0; i < 8; i++)
                memset(p.rgbx + i * 4, i % 4 < 2 ? 10 : 200, 4);
        memset(p.rgbx, 50, 4);
        assert_int_equal(picture_scale(&p, 2, 1, &q), 0);
        assert_int_equal(q.rgbx[0], 20); /* 50 10 10 10 */
        assert_int_equal(q.rgbx[4], 200);
        picture_done(&p);
        picture_done(&q);
}

static void test_jpeg_size_of_garbage(void **state)
{
        unsigned char bad[64] = { 0xff, 0xd8, 0xff, 0xe0, 0xff, 0xff };
        unsigned w, h;

        (void) state;
        for (size_t n = 0; n <= sizeof bad; n++)
                assert_false(jpeg_size(bad, n, &w, &h));
        assert_false(jpeg_size((const unsigned char *) "\x89PNG\r\n\x1a\n0000000000000", 20, &w, &h));
        memset(bad + 2, 0xff, sizeof bad - 2);
        assert_false(jpeg_size(bad, sizeof bad, &w, &h));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_png_is_exact),     cmocka_unit_test(test_jpeg_is_close),
                cmocka_unit_test(test_limits),           cmocka_unit_test(test_what_cannot_fit),
                cmocka_unit_test(test_scaling_averages), cmocka_unit_test(test_jpeg_size_of_garbage),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
