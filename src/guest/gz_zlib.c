#include "guest/gz.h"
#include "guest/gz_members.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

/* 16 added to the window bits: gzip framing, with its header and checksum handled by zlib. */
#define GZIP_WINDOW (15 + 16)

struct gz_in {
        z_stream z;
        struct gz_members members;
};

struct gz_in *gz_in_new(void)
{
        struct gz_in *z = calloc(1, sizeof(*z));

        if (z && inflateInit2(&z->z, GZIP_WINDOW) != Z_OK) {
                free(z);
                return NULL;
        }
        return z;
}

void gz_in_free(struct gz_in *z)
{
        if (z)
                inflateEnd(&z->z);
        free(z);
}

void gz_in_freep(struct gz_in **z)
{
        gz_in_free(*z);
}

long gz_inflate(struct gz_in *z, struct str *in, void *out, size_t cap)
{
        uInt room = (uInt) min_size(cap, 1u << 30);

        z->z.next_out = out;
        z->z.avail_out = room;
        while (z->z.avail_out) {
                if (!z->members.open) {
                        int more = gz_members_next(&z->members, in);

                        if (more < 0)
                                return more;
                        if (!more)
                                break;
                        if (inflateReset(&z->z) != Z_OK)
                                return -EPROTO;
                }
                uInt n = (uInt) min_size(in->n, 1u << 30);
                z->z.next_in = (unsigned char *) (uintptr_t) in->p;
                z->z.avail_in = n;
                int r = inflate(&z->z, Z_NO_FLUSH);
                in->p += n - z->z.avail_in;
                in->n -= n - z->z.avail_in;
                if (r == Z_STREAM_END)
                        gz_members_end(&z->members);
                else if (r == Z_BUF_ERROR) /* nothing to do without more input */
                        break;
                else if (r != Z_OK)
                        return r == Z_MEM_ERROR ? -ENOMEM : -EPROTO;
        }
        return (long) (room - z->z.avail_out);
}

bool gz_in_complete(const struct gz_in *z)
{
        return gz_members_complete(&z->members);
}

struct gz_out {
        z_stream z;
};

struct gz_out *gz_out_new(void)
{
        struct gz_out *z = calloc(1, sizeof(*z));

        if (z && deflateInit2(&z->z, 1, Z_DEFLATED, GZIP_WINDOW, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
                free(z);
                return NULL;
        }
        return z;
}

void gz_out_free(struct gz_out *z)
{
        if (z)
                deflateEnd(&z->z);
        free(z);
}

void gz_out_freep(struct gz_out **z)
{
        gz_out_free(*z);
}

int gz_deflate(struct gz_out *z, const void *p, size_t n, bool end, struct buf *out)
{
        static const size_t step = 32u << 10;

        z->z.next_in = (unsigned char *) (uintptr_t) p;
        z->z.avail_in = (uInt) n;
        for (;;) {
                char *room = buf_room(out, step);

                if (!room)
                        return -ENOBUFS;
                z->z.next_out = (unsigned char *) room;
                z->z.avail_out = (uInt) step;
                int r = deflate(&z->z, end ? Z_FINISH : Z_NO_FLUSH);
                if (r == Z_STREAM_ERROR)
                        return -EPROTO;
                buf_grew(out, step - z->z.avail_out);
                if (z->z.avail_out) /* everything taken, and with end everything said */
                        return 0;
                if (end && r == Z_STREAM_END)
                        return 0;
        }
}
