#include "base/ids.h"
#include "base/b64.h"
#include "base/map.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void ids_have_the_promised_form(void **state)
{
        char out[302];

        for (size_t n = 0; n <= 300; n++) {
                memset(out, '!', sizeof out);
                random_id(out, n);
                assert_int_equal(strlen(out), n);
                assert_int_equal(out[n + 1], '!');
                assert_int_equal(strspn(out, "abcdefghijklmnopqrstuvwxyz0123456789"), n);
        }
}

/* 36 letters, 10,000 draws of each expected: six standard deviations are 600. */
static void letters_are_equally_likely(void **state)
{
        size_t n = 360000, seen[256] = { 0 };
        _cleanup_free_ char *out = xmalloc(n + 1);

        random_id(out, n);
        for (size_t i = 0; i < n; i++)
                seen[(unsigned char) out[i]]++;
        for (const char *c = "abcdefghijklmnopqrstuvwxyz0123456789"; *c; c++)
                assert_in_range(seen[(unsigned char) *c], 9400, 10600);
}

static void ids_do_not_repeat(void **state)
{
        struct map *m = map_new();

        for (int i = 0; i < 20000; i++) {
                char id[17];

                random_id(id, 16);
                assert_null(map_put(m, str_of(id), m));
        }
        map_free(m);
}

static void tokens_decode_to_their_length(void **state)
{
        for (size_t n = 0; n < 70; n++) {
                _cleanup_free_ char *a = random_token(n), *b = random_token(n);
                _cleanup_buf_ struct buf raw = BUF_MAX(n);

                assert_int_equal(b64url_decode(&raw, str_of(a)), 0);
                assert_int_equal(raw.len, n);
                if (n >= 16)
                        assert_string_not_equal(a, b);
        }
}

static void bytes_fill_all_and_no_more(void **state)
{
        unsigned char all[64] = { 0 }, p[66];

        /* Each place stays zero in 30 rounds with probability 2^-240. */
        for (int i = 0; i < 30; i++) {
                memset(p, 0, sizeof p);
                random_bytes(p + 1, 64);
                assert_int_equal(p[0], 0);
                assert_int_equal(p[65], 0);
                for (size_t k = 0; k < 64; k++)
                        all[k] |= p[k + 1];
        }
        for (size_t k = 0; k < 64; k++)
                assert_int_not_equal(all[k], 0);
        random_bytes(p, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ids_have_the_promised_form), cmocka_unit_test(letters_are_equally_likely),
                cmocka_unit_test(ids_do_not_repeat),          cmocka_unit_test(tokens_decode_to_their_length),
                cmocka_unit_test(bytes_fill_all_and_no_more),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
