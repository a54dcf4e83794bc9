/*
 * The client's side of RFB against any server: nothing is read beyond the input, a picture that comes out has the size
 * that was asked for, and a JPEG's size is looked for within its bytes.
 */
#include "fuzz.h"
#include "rfb/rfb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct input {
        const uint8_t *p;
        size_t n;
};

static int coroutine_fn read_input(void *arg, void *p, size_t n)
{
        struct input *in = arg;

        if (n > in->n)
                return -ECONNRESET;
        memcpy(p, in->p, n);
        in->p += n;
        in->n -= n;
        return 0;
}

static int coroutine_fn write_nothing(void *arg, const void *p, size_t n)
{
        (void) arg;
        return n && !p ? -EINVAL : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct rfb_region regions[] = { { 0 }, { 1, 2, 3, 4 }, { 0, 0, 64, 64 } };
        unsigned screen[2], w, h;

        (void) jpeg_size(data, size, &w, &h);
        for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
                struct input in = { data, size };
                struct rfb_io io = { read_input, write_nothing, &in };
                struct picture p = { 0 };
                struct err e = { 0 };

                if (rfb_grab(&io, &regions[i], &p, screen, &e) < 0)
                        continue;
                if (regions[i].width && (p.width != regions[i].width || p.height != regions[i].height))
                        abort();
                if (!regions[i].width && (p.width != screen[0] || p.height != screen[1]))
                        abort();
                picture_done(&p);
        }
        return 0;
}
