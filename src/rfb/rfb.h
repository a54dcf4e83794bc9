/*
 * rfb: the client side of the Remote Framebuffer protocol (RFC 6143), as far as taking one picture of a screen needs
 * it.
 *
 * Knows no socket: bytes come and go through two functions of the caller. The other side is a box and may lie: every
 * length and every rectangle is checked before it is believed, and what one call reads and allocates is bounded by the
 * area asked for. May suspend where the caller's functions do.
 */
#pragma once

#include "base/err.h"
#include "loop/coro.h"
#include "rfb/picture.h"

struct rfb_io {
        /* Exactly n bytes or a negative errno. */
        int coroutine_fn (*recv_all)(void *arg, void *p, size_t n);
        int coroutine_fn (*send_all)(void *arg, const void *p, size_t n);
        void *arg;
};

/* In pixels of the screen; width 0: the whole screen. */
struct rfb_region {
        unsigned x, y, width, height;
};

/* The most pixels one picture may have before it is scaled: 3840 × 2160. */
#define RFB_AREA_MAX (3840u * 2160u)

/*
 * Handshake, one full update of the region, done: the picture (picture_done) and the size of the whole screen.
 * -EPROTO: the other side does not speak RFB as RFC 6143 has it; -EACCES: it refuses us; -ERANGE: the region is not on
 * the screen, or too large; else what the caller's functions gave.
 */
int coroutine_fn rfb_grab(const struct rfb_io *io, const struct rfb_region *region, struct picture *ret,
                          unsigned screen[2], struct err *e);
