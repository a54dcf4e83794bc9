#include "guest/gz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct buf sample(size_t n)
{
        struct buf b = BUF_MAX(64 << 20);

        for (size_t i = 0; b.len < n; i++)
                buf_addf(&b, "%zu %zx ", i, i * 2654435761u);
        return b;
}

static void compress(struct buf *out, const struct buf *in, size_t step)
{
        struct gz_out *z = gz_out_new();

        for (size_t off = 0; off < in->len; off += step)
                assert_int_equal(gz_deflate(z, in->p + off, min_size(step, in->len - off), false, out), 0);
        assert_int_equal(gz_deflate(z, NULL, 0, true, out), 0);
        gz_out_free(z);
}

static long inflate_all(struct buf *out, struct str in, size_t step, size_t cap, bool *complete)
{
        struct gz_in *z = gz_in_new();
        char *room = xmalloc(cap);
        long n = 0;

        while (n >= 0 && in.n) {
                struct str piece = str_n(in.p, min_size(step, in.n));
                size_t before = piece.n;

                do {
                        n = gz_inflate(z, &piece, room, cap);
                        if (n > 0)
                                assert_int_equal(buf_add(out, room, (size_t) n), 0);
                } while (n > 0 || (n == 0 && piece.n));
                in.p += before;
                in.n -= before;
        }
        *complete = n >= 0 && gz_in_complete(z);
        gz_in_free(z);
        free(room);
        return n;
}

static void round_trips(void **state)
{
        static const size_t sizes[] = { 0, 1, 1000, 300000, 3000000 };
        static const size_t steps[] = { 17, 4096, 1 << 20 };

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
                        _cleanup_buf_ struct buf in = sample(sizes[i]), packed = BUF_MAX(64 << 20),
                                                 out = BUF_MAX(64 << 20);
                        bool complete;

                        compress(&packed, &in, steps[k] * 3);
                        assert_true(gz_magic((unsigned char *) packed.p, packed.len));
                        assert_int_equal(inflate_all(&out, buf_str(&packed), steps[k], k ? 1000 : 100000, &complete),
                                         0);
                        assert_true(complete && out.len == in.len && (!in.len || memcmp(out.p, in.p, in.len) == 0));
                }
}

static void very_compressible_data_is_not_stuck(void **state)
{
        _cleanup_buf_ struct buf in = BUF_MAX(64 << 20), packed = BUF_MAX(1 << 20), out = BUF_MAX(64 << 20);
        bool complete;

        memset(buf_room(&in, 20 << 20), 0, 20 << 20);
        buf_grew(&in, 20 << 20);
        compress(&packed, &in, 1 << 20);
        assert_int_equal(inflate_all(&out, buf_str(&packed), 1 << 20, 10000, &complete), 0);
        assert_true(complete);
        assert_int_equal(out.len, 20 << 20);
}

static void members_follow_each_other(void **state)
{
        _cleanup_buf_ struct buf in = sample(1000), packed = BUF_MAX(1 << 20), out = BUF_MAX(1 << 20);
        bool complete;

        compress(&packed, &in, 100);
        size_t one = packed.len;
        compress(&packed, &in, 100);
        buf_add(&packed, "\0\0\0\0\0\0\0\0\0", 9);
        for (size_t step = 1; step < 40; step += 3) {
                buf_clear(&out);
                assert_int_equal(inflate_all(&out, buf_str(&packed), step, 77, &complete), 0);
                assert_true(complete);
                assert_int_equal(out.len, 2 * in.len);
        }
        buf_clear(&out);
        assert_int_equal(inflate_all(&out, str_n(packed.p, one - 1), 10, 77, &complete), 0);
        assert_false(complete);
        buf_addc(&packed, 'x');
        assert_int_equal(inflate_all(&out, buf_str(&packed), 1000, 77, &complete), -EPROTO);
}

static void damage_is_found(void **state)
{
        _cleanup_buf_ struct buf in = sample(5000), packed = BUF_MAX(1 << 20), out = BUF_MAX(1 << 20);
        bool complete;

        compress(&packed, &in, 100000);
        packed.p[packed.len - 6] ^= 1; /* in the checksum */
        assert_true(inflate_all(&out, buf_str(&packed), 100, 1000, &complete) < 0 || !complete);
        packed.p[packed.len - 6] ^= 1;
        packed.p[packed.len / 2] ^= 0x55;
        assert_true(inflate_all(&out, buf_str(&packed), 100, 1000, &complete) < 0 || !complete);
        assert_int_equal(inflate_all(&out, STR("\x1f\x8bnonsense nonsense nonsense"), 100, 1000, &complete), -EPROTO);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(round_trips),
                cmocka_unit_test(very_compressible_data_is_not_stuck),
                cmocka_unit_test(members_follow_each_other),
                cmocka_unit_test(damage_is_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
