#include "base/seal.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const unsigned char key[SEAL_KEY_LEN] = "a key of exactly thirty-two byte";
static const unsigned char other[SEAL_KEY_LEN] = "another of exactly thirty-two by";

static void comes_back(void **state)
{
        static const size_t lengths[] = { 0, 1, 6, 63, 64, 65, 4096, 16384 };
        _cleanup_buf_ struct buf value = BUF_MAX(20000);

        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
                _cleanup_buf_ struct buf sealed = BUF_MAX(20000), again = BUF_MAX(20000);
                _cleanup_secret_ struct buf back = BUF_MAX(20000);

                buf_clear(&value);
                for (size_t k = 0; k < lengths[i]; k++)
                        (void) buf_addc(&value, (char) (k * 31 + 7));
                assert_int_equal(seal(key, STR("context"), value.p, value.len, &sealed), 0);
                assert_int_equal(sealed.len, lengths[i] + SEAL_EXTRA);
                assert_int_equal(unseal(key, STR("context"), sealed.p, sealed.len, &back), 0);
                assert_true(str_eq(buf_str(&back), buf_str(&value)));
                /* Never twice the same, and never the value itself. */
                assert_int_equal(seal(key, STR("context"), value.p, value.len, &again), 0);
                assert_false(str_eq(buf_str(&again), buf_str(&sealed)));
                if (lengths[i] >= 6)
                        assert_false(str_has(buf_str(&sealed), buf_str(&value)));
        }
}

static void opens_nowhere_else(void **state)
{
        _cleanup_buf_ struct buf sealed = BUF_MAX(500), back = BUF_MAX(500);

        assert_int_equal(seal(key, STR("acc_1\0NAME"), "a value", 7, &sealed), 0);
        assert_int_equal(unseal(other, STR("acc_1\0NAME"), sealed.p, sealed.len, &back), -EKEYREJECTED);
        assert_int_equal(unseal(key, STR("acc_2\0NAME"), sealed.p, sealed.len, &back), -EBADMSG);
        assert_int_equal(unseal(key, STR("acc_1\0OTHER"), sealed.p, sealed.len, &back), -EBADMSG);
        assert_int_equal(unseal(key, STR(""), sealed.p, sealed.len, &back), -EBADMSG);
        assert_int_equal(back.len, 0);
}

static void every_byte_counts(void **state)
{
        _cleanup_buf_ struct buf sealed = BUF_MAX(500), back = BUF_MAX(500);

        assert_int_equal(seal(key, STR("c"), "a value", 7, &sealed), 0);
        for (size_t i = 0; i < sealed.len; i++) {
                sealed.p[i] = (char) (sealed.p[i] ^ 1);
                assert_true(unseal(key, STR("c"), sealed.p, sealed.len, &back) < 0);
                sealed.p[i] = (char) (sealed.p[i] ^ 1);
                assert_true(unseal(key, STR("c"), sealed.p, i, &back) < 0);
        }
        assert_int_equal(back.len, 0);
        assert_int_equal(unseal(key, STR("c"), sealed.p, sealed.len, &back), 0);
}

static void no_room(void **state)
{
        _cleanup_buf_ struct buf sealed = BUF_MAX(SEAL_EXTRA + 6), fits = BUF_MAX(SEAL_EXTRA + 7), back = BUF_MAX(6);

        assert_int_equal(seal(key, STR("c"), "a value", 7, &sealed), -ENOBUFS);
        assert_int_equal(seal(key, STR("c"), "a value", 7, &fits), 0);
        assert_int_equal(unseal(key, STR("c"), fits.p, fits.len, &back), -ENOBUFS);
        assert_int_equal(back.len, 0);
}

static void wipes(void **state)
{
        char text[] = "to be forgotten";
        const char zero[sizeof text] = { 0 };

        mem_wipe(text, sizeof text);
        assert_memory_equal(text, zero, sizeof text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(comes_back),
                cmocka_unit_test(opens_nowhere_else),
                cmocka_unit_test(every_byte_counts),
                cmocka_unit_test(no_room),
                cmocka_unit_test(wipes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
