#include "guest/guest.h"

#include <errno.h>
#include <string.h>

static void put_le(unsigned char *p, uint64_t v, unsigned bytes)
{
        for (unsigned i = 0; i < bytes; i++)
                p[i] = (unsigned char) (v >> (8 * i));
}

static uint64_t get_le(const unsigned char *p, unsigned bytes)
{
        uint64_t v = 0;

        for (unsigned i = 0; i < bytes; i++)
                v |= (uint64_t) p[i] << (8 * i);
        return v;
}

void guest_encode(const struct guest_header *h, unsigned char out[GUEST_HEADER_LEN])
{
        out[0] = (unsigned char) h->stream;
        out[1] = (unsigned char) h->flags;
        out[2] = out[3] = 0;
        put_le(out + 4, h->length, 4);
}

int guest_decode(const unsigned char in[GUEST_HEADER_LEN], struct guest_header *ret)
{
        uint32_t length = (uint32_t) get_le(in + 4, 4);

        if (in[0] > GUEST_DATA || (in[1] & ~GUEST_END) || in[2] || in[3])
                return -EPROTO;
        if (length > (in[0] == GUEST_CONTROL ? GUEST_CONTROL_MAX : GUEST_FRAME_MAX))
                return -EPROTO;
        ret->stream = (enum guest_stream) in[0];
        ret->flags = in[1];
        ret->length = length;
        return 0;
}

size_t guest_entry_encode(const struct guest_entry *e, unsigned char *out)
{
        out[0] = (unsigned char) e->kind;
        put_le(out + 1, e->size, 8);
        memcpy(out + 9, e->digest, 32);
        put_le(out + 41, e->path_len, 2);
        memcpy(out + GUEST_ENTRY_FIXED, e->path, e->path_len);
        return GUEST_ENTRY_FIXED + e->path_len;
}

long guest_entry_decode(const unsigned char *in, size_t n, struct guest_entry *ret)
{
        if (n < GUEST_ENTRY_FIXED)
                return 0;
        size_t path_len = (size_t) get_le(in + 41, 2);
        if (in[0] > GUEST_KIND_LINK || path_len == 0 || path_len > GUEST_PATH_MAX)
                return -EPROTO;
        if (n < GUEST_ENTRY_FIXED + path_len)
                return 0;
        ret->kind = (enum guest_kind) in[0];
        ret->size = get_le(in + 1, 8);
        memcpy(ret->digest, in + 9, 32);
        ret->path = (const char *) in + GUEST_ENTRY_FIXED;
        ret->path_len = path_len;
        if (!guest_path_ok(ret->path, path_len))
                return -EPROTO;
        return (long) (GUEST_ENTRY_FIXED + path_len);
}

bool guest_path_ok(const char *p, size_t n)
{
        size_t start = 0;

        if (n == 0 || memchr(p, '\0', n))
                return false;
        for (size_t i = 0; i <= n; i++) {
                if (i < n && p[i] != '/')
                        continue;
                size_t len = i - start;
                if (len == 0 || (len == 1 && p[start] == '.') || (len == 2 && p[start] == '.' && p[start + 1] == '.'))
                        return false;
                start = i + 1;
        }
        return true;
}
