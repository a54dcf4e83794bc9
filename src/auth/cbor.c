#include "auth/cbor.h"

#include <errno.h>

static int read_argument(struct cbor *c, unsigned info, uint64_t *ret)
{
        static const uint64_t least[] = { 24, 0x100, 0x10000, 0x100000000 };
        uint64_t v = 0;

        if (info < 24) {
                *ret = info;
                return 0;
        }
        if (info > 27) /* 28–30 are reserved, 31 is an indefinite length */
                return -EBADMSG;
        size_t n = (size_t) 1 << (info - 24);
        if (c->n < n)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++)
                v = v << 8 | c->p[i];
        if (v < least[info - 24]) /* not the shortest form */
                return -EBADMSG;
        c->p += n;
        c->n -= n;
        *ret = v;
        return 0;
}

int cbor_next(struct cbor *c, struct cbor_item *ret)
{
        if (!c->n)
                return -EBADMSG;
        unsigned major = c->p[0] >> 5, info = c->p[0] & 31;
        struct cbor rest = { c->p + 1, c->n - 1 };
        uint64_t v;

        if (major == 6 ||
            (major == 7 && (info < 20 || info > 22))) /* tags; floats, undefined and unassigned simple values */
                return -EBADMSG;
        int r = read_argument(&rest, info, &v);
        if (r < 0)
                return r;
        *ret = (struct cbor_item){ .type = major == 7 ? CBOR_SIMPLE : (enum cbor_type) major, .value = v };
        if (ret->type == CBOR_BYTES || ret->type == CBOR_TEXT) {
                if (v > rest.n)
                        return -EBADMSG;
                ret->bytes = str_n((const char *) rest.p, (size_t) v);
                rest.p += v;
                rest.n -= (size_t) v;
        }
        /* Every item takes a byte at least: a count beyond that is a lie. */
        if ((ret->type == CBOR_ARRAY && v > rest.n) || (ret->type == CBOR_MAP && v > rest.n / 2))
                return -EBADMSG;
        *c = rest;
        return 0;
}

static int skip_at(struct cbor *c, int depth)
{
        struct cbor_item i;
        int r = cbor_next(c, &i);

        if (r < 0)
                return r;
        if (i.type != CBOR_ARRAY && i.type != CBOR_MAP)
                return 0;
        if (depth >= CBOR_DEPTH)
                return -EBADMSG;
        for (uint64_t k = 0, n = i.type == CBOR_MAP ? 2 * i.value : i.value; r == 0 && k < n; k++)
                r = skip_at(c, depth + 1);
        return r;
}

int cbor_skip(struct cbor *c, struct str *ret)
{
        struct cbor at = *c;
        int r = skip_at(&at, 1);

        if (r < 0)
                return r;
        if (ret)
                *ret = str_n((const char *) c->p, (size_t) (at.p - c->p));
        *c = at;
        return 0;
}

int cbor_int(struct cbor *c, int64_t *ret)
{
        struct cbor at = *c;
        struct cbor_item i;
        int r = cbor_next(&at, &i);

        if (r < 0)
                return r;
        if ((i.type != CBOR_UINT && i.type != CBOR_NEGATIVE) || i.value > INT64_MAX)
                return -EBADMSG;
        *ret = i.type == CBOR_UINT ? (int64_t) i.value : -1 - (int64_t) i.value;
        *c = at;
        return 0;
}

static bool key_is(struct cbor key, const int64_t *number, const char *text)
{
        struct cbor_item i;
        int64_t v;

        if (number)
                return cbor_int(&key, &v) == 0 && v == *number;
        return cbor_next(&key, &i) == 0 && i.type == CBOR_TEXT && str_eq(i.bytes, str_of(text));
}

static int find(struct cbor map, const int64_t *number, const char *text, struct cbor *ret)
{
        struct cbor_item m;
        int r = cbor_next(&map, &m), found = 0;

        if (r < 0)
                return r;
        if (m.type != CBOR_MAP)
                return -EBADMSG;
        for (uint64_t k = 0; k < m.value; k++) {
                struct cbor key = map;

                if (cbor_skip(&map, NULL) < 0)
                        return -EBADMSG;
                struct cbor value = map;
                if (cbor_skip(&map, NULL) < 0)
                        return -EBADMSG;
                if (!key_is(key, number, text))
                        continue;
                if (found++)
                        return -EBADMSG;
                *ret = value;
        }
        return found;
}

int cbor_find_int(struct cbor map, int64_t key, struct cbor *ret)
{
        return find(map, &key, NULL, ret);
}

int cbor_find_text(struct cbor map, const char *key, struct cbor *ret)
{
        return find(map, NULL, key, ret);
}
