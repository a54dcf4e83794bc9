/* Lines up to an empty one are values; the rest is a text, whose first byte says how it is cut into pieces. What comes
 * out must be what the naive search says, and the same in pieces. */
#include "fuzz.h"

#include "base/mask.h"
#include "mask-naive.h"

#include <stdlib.h>

#define VALUES_MAX 4

static void add(const void *p, size_t n, void *arg)
{
        if (buf_add(arg, p, n) < 0)
                abort();
}

static void same(const struct buf *a, const struct buf *b)
{
        if (a->len != b->len || (a->len && memcmp(a->p, b->p, a->len) != 0))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *const names[VALUES_MAX] = { "A", "B", "C", "D" };
        struct str in = str_n((const char *) data, size), line;
        struct mask_value values[VALUES_MAX];
        struct mask_stream s;
        size_t n = 0;

        if (size > 2048)
                return 0;
        while (n < VALUES_MAX && (line = str_cut(&in, '\n')).n) {
                if (line.n > 64)
                        return 0;
                values[n] = (struct mask_value){ names[n], line };
                n++;
        }
        if (in.n < 2)
                return 0;
        size_t piece = (unsigned char) in.p[0] % 32 + 1;
        in = str_n(in.p + 1, in.n - 1);
        _cleanup_mask_ struct mask *m = NULL;
        _cleanup_buf_ struct buf want = BUF_MAX(1 << 20), whole = BUF_MAX(1 << 20), pieces = BUF_MAX(1 << 20),
                                 cut = BUF_MAX(1 << 20);
        if (mask_new(values, n, &m) < 0)
                abort();
        naive_mask(values, n, in, &want);
        if (mask_text(m, in, 0, &whole) < 0 || mask_text(m, in, MASK_CUT_BEFORE | MASK_CUT_AFTER, &cut) < 0)
                abort();
        same(&whole, &want);
        mask_begin(&s, m);
        for (size_t at = 0; at < in.n; at += piece)
                mask_feed(&s, in.p + at, min_size(piece, in.n - at), add, &pieces);
        mask_end(&s, false, add, &pieces);
        mask_done(&s);
        same(&pieces, &want);
        return 0;
}
