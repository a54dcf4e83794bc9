#include "control/screen.h"

#include "base/mem.h"
#include "control/guest_client.h"
#include "loop/loop.h"

#include <errno.h>

#define QUEUE_MS 30000
#define START_MS 25000 /* of the X server, cold */
#define SHOT_MS 15000  /* of the exchange after that */

/* RFB inside of the frames of one guest operation. */
struct framed {
        struct guest_op g;
        int64_t until;
};

static int coroutine_fn framed_read(void *arg, void *p, size_t n)
{
        struct framed *f = arg;
        char *at = p;

        while (n) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;

                f->g.idle_ms = deadline_left(f->until);
                ssize_t k = guest_recv(&f->g, at, n, &stream, &control, NULL);
                if (k < 0)
                        return k == -ENODATA ? -ECONNRESET : (int) k;
                if (control || stream != GUEST_DATA)
                        return -EPROTO;
                at += k;
                n -= (size_t) k;
        }
        return 0;
}

static int coroutine_fn framed_write(void *arg, const void *p, size_t n)
{
        struct framed *f = arg;

        f->g.send_ms = deadline_left(f->until);
        return guest_send(&f->g, GUEST_DATA, false, p, n);
}

/* Until boxd says that it is connected; with the X server's start, when it is the first look. */
static int coroutine_fn open_screen(struct control *c, const char *box, struct framed *f, struct err *e)
{
        struct json *head = json_obj();
        enum guest_stream stream = GUEST_CONTROL;
        _cleanup_json_ struct json *control = NULL;
        char none;

        json_set_str(head, "op", "screen");
        int r = guest_open(c, box, head, &f->g, e);
        if (r < 0)
                return r;
        f->g.idle_ms = START_MS;
        ssize_t n = guest_recv(&f->g, &none, 1, &stream, &control, e);
        if (n == -ENODATA)
                return guest_result_error(f->g.result, e) < 0 ? e->code : err_set(e, -EPROTO, "the box has no screen");
        if (n < 0)
                return (int) n;
        if (!control || !cstr_eq(json_get_str(control, "event", ""), "connected"))
                return err_set(e, -EPROTO, "the box's daemon broke the protocol of a screen");
        return 0;
}

struct encoding {
        struct picture *picture;
        enum picture_format format;
        struct picture_encoded *ret;
        struct err *e;
};

static int encode(void *arg)
{
        struct encoding *j = arg;

        return picture_encode(j->picture, j->format, PICTURE_PIXELS_MAX, PICTURE_BYTES_MAX, j->ret, j->e);
}

/* The part that holds a whole picture. */
static int coroutine_fn take_shot(struct framed *f, const struct rfb_region *region, enum picture_format format,
                                  struct shot *ret, struct err *e)
{
        _cleanup_picture_ struct picture picture = { 0 };
        struct rfb_io io = { framed_read, framed_write, f };

        f->until = deadline_in(SHOT_MS);
        int r = rfb_grab(&io, region, &picture, ret->screen, e);
        guest_close(&f->g);
        if (r < 0)
                return r;
        ret->region = *region;
        if (region->width == 0)
                ret->region = (struct rfb_region){ 0, 0, picture.width, picture.height };
        return offload(encode, &(struct encoding){ &picture, format, &ret->image, e });
}

int coroutine_fn screen_shot(struct control *c, const char *box, const struct rfb_region *region,
                             enum picture_format format, struct shot *ret, struct err *e)
{
        struct framed f = { 0 };

        *ret = (struct shot){ 0 };
        int r = open_screen(c, box, &f, e);
        if (r < 0) {
                guest_close(&f.g);
                return r;
        }
        r = sem_take(&c->shots, QUEUE_MS);
        if (r < 0) {
                err_set(e, r, "too many shots are being taken at once: try again");
        } else {
                r = take_shot(&f, region, format, ret, e);
                sem_give(&c->shots);
        }
        guest_close(&f.g);
        return r;
}

void shot_done(struct shot *s)
{
        buf_done(&s->image.bytes);
}
