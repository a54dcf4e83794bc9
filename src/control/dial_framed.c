/* The data frames of a dial (docs/guest-protocol.md) as a stream: a filter above boxd's connection. */
#include "control/dial.h"

#include "base/mem.h"
#include "guest/guest.h"
#include "loop/stream_impl.h"

#include <errno.h>

#define PIECE ((size_t) 32 << 10)
#define CLOSE_FLUSH_MS 5000

struct framed {
        struct stream s;
        struct stream *inner;
        unsigned wants;
        unsigned char header[GUEST_HEADER_LEN];
        size_t have;   /* of the header */
        uint32_t left; /* of the frame */
        bool last;     /* the frame carries the end flag */
        bool ended;
};

static struct framed *self(const struct stream *s)
{
        return container_of(s, struct framed, s);
}

/* The next frame's header: 1, 0 at the end of the connection, -EAGAIN, -errno. */
static ssize_t read_header(struct framed *f)
{
        struct guest_header h;

        while (f->have < sizeof f->header) {
                ssize_t n = stream_try_read(f->inner, f->header + f->have, sizeof f->header - f->have);

                if (n <= 0)
                        return n;
                f->have += (size_t) n;
        }
        f->have = 0;
        if (guest_decode(f->header, &h) < 0 || h.stream != GUEST_DATA)
                return -EPROTO;
        f->left = h.length;
        f->last = h.flags & GUEST_END;
        return 1;
}

static ssize_t framed_try_read(struct stream *s, void *p, size_t n)
{
        struct framed *f = self(s);

        while (!f->ended) {
                ssize_t r;

                if (f->left) {
                        r = stream_try_read(f->inner, p, min_size(n, f->left));
                        if (r > 0)
                                f->left -= (uint32_t) r;
                        return r == 0 ? -ECONNRESET : r;
                }
                if (f->last) {
                        f->ended = true;
                        break;
                }
                r = read_header(f);
                if (r <= 0)
                        return r == 0 ? -ECONNRESET : r; /* an end without the flag is a broken connection */
        }
        return 0;
}

static int put_frame(struct framed *f, unsigned flags, const void *p, size_t n)
{
        unsigned char header[GUEST_HEADER_LEN];

        guest_encode(&(struct guest_header){ GUEST_DATA, flags, (uint32_t) n }, header);
        int r = stream_put(f->inner, header, sizeof header);
        return r == 0 && n ? stream_put(f->inner, p, n) : r;
}

static ssize_t framed_try_write(struct stream *s, const void *p, size_t n)
{
        struct framed *f = self(s);

        if (stream_queued(f->inner))
                return -EAGAIN;
        n = min_size(n, PIECE);
        int r = put_frame(f, 0, p, n);
        return r < 0 ? r : (ssize_t) n;
}

static void framed_want(struct stream *s, unsigned events)
{
        struct framed *f = self(s);

        f->wants = events;
        stream_want(f->inner, events);
}

static void inner_ready(void *arg, unsigned events)
{
        struct framed *f = arg;
        unsigned tell = events & STREAM_HANGUP;

        if (stream_dead(f->inner))
                events |= STREAM_READABLE;
        tell |= events & f->wants & STREAM_READABLE;
        if ((f->wants & STREAM_WRITABLE) && (!stream_queued(f->inner) || stream_dead(f->inner)))
                tell |= STREAM_WRITABLE;
        if (tell)
                stream_ready(&f->s, tell);
}

static int framed_shutdown(struct stream *s)
{
        return put_frame(self(s), GUEST_END, NULL, 0);
}

static void framed_close(struct stream *s)
{
        struct stream *inner = steal_ptr(self(s)->inner);

        stream_set_ready(inner, NULL, NULL);
        if (stream_queued(inner))
                stream_close_after_flush(inner, CLOSE_FLUSH_MS);
        else
                stream_close(inner);
}

static int framed_fd(const struct stream *s)
{
        return stream_fd(self(s)->inner);
}

static const char *framed_peer(struct stream *s)
{
        return stream_peer(self(s)->inner);
}

static const struct stream_ops framed_ops = {
        .try_read = framed_try_read,
        .try_write = framed_try_write,
        .want = framed_want,
        .shutdown = framed_shutdown,
        .close = framed_close,
        .fd = framed_fd,
        .peer = framed_peer,
};

struct stream *framed_stream(struct stream *inner)
{
        struct framed *f = xcalloc(1, sizeof *f);

        stream_setup(&f->s, &framed_ops);
        f->inner = inner;
        stream_set_ready(inner, inner_ready, f);
        return &f->s;
}
