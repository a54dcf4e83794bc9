/*
 * screen: looking at a box's display :99. boxd's `screen` gives a byte stream that speaks RFB (docs/screens.md); the
 * X server starts when the first one looks. Nothing is kept between two looks.
 */
#pragma once

#include "control/control.h"
#include "rfb/rfb.h"

struct shot {
        struct picture_encoded image; /* .bytes is the caller's */
        struct rfb_region region;     /* what it shows */
        unsigned screen[2];           /* width and height of the whole */
};

/*
 * One picture of the screen, within the limits of an image block. -ENOENT: the image has no X server (e says which
 * has); -ERANGE: the region is not on the screen; -ETIMEDOUT. At most SHOTS_MAX at once, others wait.
 */
int coroutine_fn screen_shot(struct control *c, const char *box, const struct rfb_region *region,
                             enum picture_format format, struct shot *ret, struct err *e);
void shot_done(struct shot *s);
#define _cleanup_shot_ _cleanup_(shot_done)
