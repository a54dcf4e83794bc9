#include "guest/gz.h"
#include "guest/gz_members.h"

#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>

struct gz_in {
        struct inflate_state z;
        struct gz_members members;
};

struct gz_in *gz_in_new(void)
{
        return calloc(1, sizeof(struct gz_in));
}

void gz_in_free(struct gz_in *z)
{
        free(z);
}

void gz_in_freep(struct gz_in **z)
{
        gz_in_free(*z);
}

long gz_inflate(struct gz_in *z, struct str *in, void *out, size_t cap)
{
        size_t done = 0;

        cap = min_size(cap, 1u << 30);
        for (;;) {
                if (!z->members.open) {
                        int r = gz_members_next(&z->members, in);

                        if (r <= 0)
                                return r < 0 ? r : (long) done;
                        isal_inflate_init(&z->z);
                        z->z.crc_flag = ISAL_GZIP;
                }
                uint32_t n = (uint32_t) min_size(in->n, 1u << 30), room = (uint32_t) (cap - done);
                z->z.next_in = (uint8_t *) (uintptr_t) in->p;
                z->z.avail_in = n;
                z->z.next_out = (uint8_t *) out + done;
                z->z.avail_out = room;
                int r = isal_inflate(&z->z);
                if (r != ISAL_DECOMP_OK && r != ISAL_END_INPUT)
                        return -EPROTO;
                uint32_t took = n - z->z.avail_in, gave = room - z->z.avail_out;
                in->p += took;
                in->n -= took;
                done += gave;
                if (z->z.block_state == ISAL_BLOCK_FINISH) {
                        gz_members_end(&z->members);
                        if (done < cap)
                                continue;
                }
                if (done == cap || in->n == 0 || (!took && !gave))
                        return (long) done;
        }
}

bool gz_in_complete(const struct gz_in *z)
{
        return gz_members_complete(&z->members);
}

struct gz_out {
        struct isal_zstream z;
        uint8_t level_buf[ISAL_DEF_LVL1_DEFAULT];
};

struct gz_out *gz_out_new(void)
{
        struct gz_out *z = calloc(1, sizeof(*z));

        if (!z)
                return NULL;
        isal_deflate_init(&z->z);
        z->z.level = 1;
        z->z.level_buf = z->level_buf;
        z->z.level_buf_size = sizeof(z->level_buf);
        z->z.gzip_flag = IGZIP_GZIP;
        return z;
}

void gz_out_free(struct gz_out *z)
{
        free(z);
}

void gz_out_freep(struct gz_out **z)
{
        gz_out_free(*z);
}

int gz_deflate(struct gz_out *z, const void *p, size_t n, bool end, struct buf *out)
{
        static const size_t step = 32u << 10;

        z->z.next_in = (uint8_t *) (uintptr_t) p;
        z->z.avail_in = (uint32_t) n;
        z->z.end_of_stream = end;
        for (;;) {
                char *room = buf_room(out, step);

                if (!room)
                        return -ENOBUFS;
                z->z.next_out = (uint8_t *) room;
                z->z.avail_out = (uint32_t) step;
                if (isal_deflate(&z->z) != COMP_OK)
                        return -EPROTO;
                buf_grew(out, step - z->z.avail_out);
                if (z->z.avail_out)
                        return 0;
        }
}
