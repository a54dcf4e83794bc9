/*
 * picture: pixels, and what an image block may be: scaled to at most so many pixels, encoded as PNG or JPEG of at most
 * so many bytes. Pure computation that may take tens of milliseconds: off the loop thread. Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct picture {
        unsigned width, height;
        unsigned char *rgbx; /* four bytes a pixel, rows without gaps; the fourth has no meaning */
};

/* -ENOMEM. */
int picture_init(struct picture *p, unsigned width, unsigned height);
void picture_done(struct picture *p);
#define _cleanup_picture_ _cleanup_(picture_done)

/* Limits of an image block: a screenshot is at most 1.15 megapixels and under 1 MB. */
#define PICTURE_PIXELS_MAX 1150000u
#define PICTURE_BYTES_MAX 1000000u

enum picture_format {
        PICTURE_ANY, /* PNG where that fits without scaling it for its bytes, else JPEG */
        PICTURE_PNG,
        PICTURE_JPEG,
};

struct picture_encoded {
        enum picture_format format; /* PNG or JPEG */
        unsigned width, height;     /* of the image: smaller than the picture when it had to be scaled */
        struct buf bytes;
};

/*
 * Within both limits, whatever is in the picture: what is too large is scaled down, proportions kept; JPEG lowers its
 * quality first. 0, -ENOMEM, -EIO (the encoder failed, or nothing fits).
 */
int picture_encode(const struct picture *p, enum picture_format format, unsigned pixels_max, size_t bytes_max,
                   struct picture_encoded *ret, struct err *e);
const char *picture_mime(enum picture_format format);

/* Averages to the given size, which is not larger than p's. -ENOMEM. */
int picture_scale(const struct picture *p, unsigned width, unsigned height, struct picture *ret);

/* The size that a JPEG says it has, without decoding it; false when it is none. */
bool jpeg_size(const unsigned char *p, size_t n, unsigned *width, unsigned *height);
