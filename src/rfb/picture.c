#include "rfb/picture.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <spng.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#define ROUNDS 8 /* of getting smaller; each takes at least a tenth off */

int picture_init(struct picture *p, unsigned width, unsigned height)
{
        /* Zeroed: what never comes must not be somebody else's memory. */
        *p = (struct picture){ width, height, calloc((size_t) width * height, 4) };
        return p->rgbx ? 0 : -ENOMEM;
}

void picture_done(struct picture *p)
{
        free(p->rgbx);
        p->rgbx = NULL;
}

const char *picture_mime(enum picture_format format)
{
        return format == PICTURE_JPEG ? "image/jpeg" : "image/png";
}

/* The mean of the source pixels that one target pixel stands for; their edges are rounded to whole pixels. */
static void average(const struct picture *p, unsigned x0, unsigned x1, unsigned y0, unsigned y1, unsigned char out[4])
{
        unsigned sum[3] = { 0 }, n = (x1 - x0) * (y1 - y0);

        if (n == 0)
                return;
        for (unsigned y = y0; y < y1; y++) {
                const unsigned char *s = p->rgbx + ((size_t) y * p->width + x0) * 4;

                for (unsigned x = x0; x < x1; x++, s += 4)
                        for (int i = 0; i < 3; i++)
                                sum[i] += s[i];
        }
        for (int i = 0; i < 3; i++)
                out[i] = (unsigned char) ((sum[i] + n / 2) / n);
}

static unsigned edge(unsigned i, unsigned from, unsigned to)
{
        return (unsigned) ((uint64_t) i * from / to);
}

int picture_scale(const struct picture *p, unsigned width, unsigned height, struct picture *ret)
{
        int r = picture_init(ret, width, height);

        for (unsigned y = 0; r == 0 && y < height; y++)
                for (unsigned x = 0; x < width; x++)
                        average(p, edge(x, p->width, width), edge(x + 1, p->width, width), edge(y, p->height, height),
                                edge(y + 1, p->height, height), ret->rgbx + ((size_t) y * width + x) * 4);
        return r;
}

/* Level 1 with the one filter that helps on screens: a third of the default's time, a few percent more bytes. */
static int encode_png(const struct picture *p, struct buf *out)
{
        struct spng_ihdr head = {
                .width = p->width, .height = p->height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR
        };
        size_t area = (size_t) p->width * p->height, n = 0;
        _cleanup_free_ unsigned char *rgb = try_malloc(area * 3), *png = NULL;
        spng_ctx *c = rgb ? spng_ctx_new(SPNG_CTX_ENCODER) : NULL;
        int r;

        if (!c)
                return -ENOMEM;
        for (size_t i = 0; i < area; i++) {
                rgb[i * 3] = p->rgbx[i * 4];
                rgb[i * 3 + 1] = p->rgbx[i * 4 + 1];
                rgb[i * 3 + 2] = p->rgbx[i * 4 + 2];
        }
        r = spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1);
        if (r == 0)
                r = spng_set_option(c, SPNG_IMG_COMPRESSION_LEVEL, 1);
        if (r == 0)
                r = spng_set_option(c, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_UP);
        if (r == 0)
                r = spng_set_ihdr(c, &head);
        if (r == 0)
                r = spng_encode_image(c, rgb, area * 3, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
        if (r == 0)
                png = spng_get_png_buffer(c, &n, &r);
        spng_ctx_free(c);
        if (r)
                return r == SPNG_EMEM ? -ENOMEM : -EIO;
        return buf_add(out, png, n) < 0 ? -E2BIG : 0; /* the buffer's limit is the image's */
}

static int encode_jpeg(const struct picture *p, int quality, struct buf *out)
{
        tjhandle h = tjInitCompress();
        unsigned char *jpeg = NULL;
        unsigned long n = 0;
        int r = h ? 0 : -ENOMEM;

        if (r == 0 && tjCompress2(h, p->rgbx, (int) p->width, 0, (int) p->height, TJPF_RGBX, &jpeg, &n,
                                  quality >= 80 ? TJSAMP_444 : TJSAMP_420, quality, 0) < 0)
                r = -EIO;
        if (r == 0 && buf_add(out, jpeg, n) < 0)
                r = -E2BIG;
        tjFree(jpeg);
        if (h)
                tjDestroy(h);
        return r;
}

static int encode_as(const struct picture *p, enum picture_format format, size_t bytes_max, struct picture_encoded *ret)
{
        static const int qualities[] = { 85, 60, 35 }; /* text stays sharp at 85, readable at 35 */
        int r = -E2BIG;

        for (size_t i = 0; r == -E2BIG && i < ARRAY_LEN(qualities); i++) {
                buf_done(&ret->bytes);
                ret->bytes = BUF_MAX(bytes_max);
                r = format == PICTURE_PNG ? encode_png(p, &ret->bytes) : encode_jpeg(p, qualities[i], &ret->bytes);
                if (format == PICTURE_PNG)
                        break;
        }
        ret->format = format;
        ret->width = p->width;
        ret->height = p->height;
        return r;
}

static unsigned scaled(unsigned side, double factor)
{
        double v = floor(side * factor);

        return v < 1 ? 1 : (unsigned) v;
}

int picture_encode(const struct picture *p, enum picture_format format, unsigned pixels_max, size_t bytes_max,
                   struct picture_encoded *ret, struct err *e)
{
        double area = (double) p->width * p->height, factor = area > pixels_max ? sqrt(pixels_max / area) : 1;
        int r = -E2BIG;

        *ret = (struct picture_encoded){ 0 };
        for (int i = 0; r == -E2BIG && i < ROUNDS; i++) {
                _cleanup_picture_ struct picture small = { 0 };
                const struct picture *q = p;

                if (factor < 1) {
                        r = picture_scale(p, scaled(p->width, factor), scaled(p->height, factor), &small);
                        if (r < 0)
                                break;
                        q = &small;
                }
                r = encode_as(q, format == PICTURE_JPEG ? PICTURE_JPEG : PICTURE_PNG, bytes_max, ret);
                if (r == -E2BIG && format == PICTURE_ANY)
                        r = encode_as(q, PICTURE_JPEG, bytes_max, ret);
                factor *= 0.7;
        }
        if (r == 0)
                return 0;
        buf_done(&ret->bytes);
        if (r == -ENOMEM)
                return err_set(e, r, "no memory to encode the picture");
        return err_set(e, -EIO, "the picture could not be encoded in %zu bytes", bytes_max);
}

/* ITU T.81 B.1.1: markers up to the frame header (SOF0 … SOF15 without DHT, JPG, DAC). */
bool jpeg_size(const unsigned char *p, size_t n, unsigned *width, unsigned *height)
{
        size_t at = 2;

        if (n < 4 || p[0] != 0xff || p[1] != 0xd8)
                return false;
        while (at + 9 <= n && p[at] == 0xff) {
                unsigned marker = p[at + 1], length = (unsigned) p[at + 2] << 8 | p[at + 3];

                if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
                        *height = (unsigned) p[at + 5] << 8 | p[at + 6];
                        *width = (unsigned) p[at + 7] << 8 | p[at + 8];
                        return *width && *height;
                }
                at += 2 + length;
        }
        return false;
}
