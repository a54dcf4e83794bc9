#include "base/b64.h"

#include <errno.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct vector {
        struct str raw, text;
};

/* RFC 4648, section 10 */
static const struct vector rfc[] = {
        { { "", 0 }, { "", 0 } },
        { { "f", 1 }, { "Zg==", 4 } },
        { { "fo", 2 }, { "Zm8=", 4 } },
        { { "foo", 3 }, { "Zm9v", 4 } },
        { { "foob", 4 }, { "Zm9vYg==", 8 } },
        { { "fooba", 5 }, { "Zm9vYmE=", 8 } },
        { { "foobar", 6 }, { "Zm9vYmFy", 8 } },
        { { "\xfb\xff\xfe", 3 }, { "+//+", 4 } },
};

static const struct vector url[] = {
        { { "", 0 }, { "", 0 } },
        { { "f", 1 }, { "Zg", 2 } },
        { { "fo", 2 }, { "Zm8", 3 } },
        { { "foob", 4 }, { "Zm9vYg", 6 } },
        { { "\xfb\xff\xfe", 3 }, { "-__-", 4 } },
};

static void vectors(void **state)
{
        for (size_t i = 0; i < ARRAY_LEN(rfc); i++) {
                _cleanup_buf_ struct buf a = BUF_MAX(rfc[i].text.n), b = BUF_MAX(rfc[i].raw.n);

                assert_int_equal(b64_encode(&a, rfc[i].raw.p, rfc[i].raw.n), 0);
                assert_true(str_eq(buf_str(&a), rfc[i].text));
                assert_int_equal(b64_decode(&b, rfc[i].text), 0);
                assert_true(str_eq(buf_str(&b), rfc[i].raw));
        }
        for (size_t i = 0; i < ARRAY_LEN(url); i++) {
                _cleanup_buf_ struct buf a = BUF_MAX(url[i].text.n), b = BUF_MAX(url[i].raw.n);

                assert_int_equal(b64url_encode(&a, url[i].raw.p, url[i].raw.n), 0);
                assert_true(str_eq(buf_str(&a), url[i].text));
                assert_int_equal(b64url_decode(&b, url[i].text), 0);
                assert_true(str_eq(buf_str(&b), url[i].raw));
        }
}

static void every_length_survives(void **state)
{
        unsigned char raw[300];

        for (size_t i = 0; i < sizeof raw; i++)
                raw[i] = (unsigned char) (i * 167 + (i >> 3));
        for (size_t n = 0; n <= sizeof raw; n++) {
                _cleanup_buf_ struct buf text = BUF_MAX(1000), url_text = BUF_MAX(1000), back = BUF_MAX(1000);

                assert_int_equal(b64_encode(&text, raw, n), 0);
                assert_int_equal(text.len, (n + 2) / 3 * 4);
                assert_int_equal(b64url_encode(&url_text, raw, n), 0);
                assert_int_equal(url_text.len, (n * 4 + 2) / 3);
                assert_int_equal(b64_decode(&back, buf_str(&text)), 0);
                assert_int_equal(b64url_decode(&back, buf_str(&url_text)), 0);
                assert_int_equal(back.len, 2 * n);
                if (n) {
                        assert_memory_equal(back.p, raw, n);
                        assert_memory_equal(back.p + n, raw, n);
                }
        }
}

static void refusals(void **state)
{
        static const char *const std[] = {
                "Z",    "Zg",     "Zg=",       "Zm9",      "=",    "==",       "===",      "====",
                "Z===", "Zg==\n", " Zg==",     "Zg==Zg==", "Zm=v", "Zm9v=",    "Zm-v",     "Zm_v",
                "Zh==", "Zm9=",   "Zm9vZm9\n", "Zg=a",     "Z=g=", "Zm9v====", "Zm9v\x80", "\xc3\xa9zz"
        };
        static const char *const for_url[] = { "Z", "Zg==", "Zg=", "Zm9vZ", "Zm+v", "Zm/v", "Zh", "Zm9", "Zm8 " };
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        assert_int_equal(buf_addc(&b, '!'), 0);
        for (size_t i = 0; i < ARRAY_LEN(std); i++)
                if (b64_decode(&b, str_of(std[i])) != -EINVAL || b.len != 1)
                        fail_msg("accepted %s", std[i]);
        for (size_t i = 0; i < ARRAY_LEN(for_url); i++)
                if (b64url_decode(&b, str_of(for_url[i])) != -EINVAL || b.len != 1)
                        fail_msg("accepted %s", for_url[i]);
        assert_int_equal(b64_decode(&b, STR("AAA\0")), -EINVAL);
}

static void one_bad_digit_anywhere(void **state)
{
        static const char good[] = "ABCDEFGHabcdefgh01234567";
        char text[sizeof good];
        _cleanup_buf_ struct buf b = BUF_MAX(100);

        for (size_t i = 0; i < sizeof good - 1; i++)
                for (int c = 0; c < 256; c++) {
                        memcpy(text, good, sizeof good);
                        text[i] = (char) c;
                        buf_clear(&b);
                        int r = b64_decode(&b, str_n(text, sizeof good - 1));
                        bool digit = c_is_alnum((char) c) || c == '+' || c == '/';
                        /* '=' at the very end would be padding, but leaves '7' with bits that belong to no byte */
                        assert_int_equal(r, digit ? 0 : -EINVAL);
                }
}

static void limits(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(7);

        assert_int_equal(b64_encode(&b, "foob", 4), -ENOBUFS);
        assert_int_equal(b64_decode(&b, STR("Zm9vYmFyZm9v")), -ENOBUFS);
        assert_int_equal(b64_encode(&b, "foob", SIZE_MAX - 1), -ENOBUFS);
        assert_int_equal(b.len, 0);
        mem_fail_after(1);
        assert_int_equal(b64_encode(&b, "foo", 3), -ENOMEM);
        mem_fail_after(1);
        assert_int_equal(b64_decode(&b, STR("Zm9v")), -ENOMEM);
        assert_int_equal(b.len, 0);
}

static void hex(void **state)
{
        char text[9];
        unsigned char raw[4] = { 9, 9, 9, 9 };

        hex_encode("\x00\x1f\xa0\xff", 4, text);
        assert_string_equal(text, "001fa0ff");
        assert_int_equal(hex_decode(STR("001Fa0fF"), raw, 4), 0);
        assert_memory_equal(raw, "\x00\x1f\xa0\xff", 4);
        assert_int_equal(hex_decode(STR("001fa0f"), raw, 4), -EINVAL);
        assert_int_equal(hex_decode(STR("001fa0"), raw, 4), -EINVAL);
        assert_int_equal(hex_decode(STR("001fa0ff00"), raw, 4), -EINVAL);
        assert_int_equal(hex_decode(STR("0g"), raw, 1), -EINVAL);
        assert_int_equal(hex_decode(STR("/0"), raw, 1), -EINVAL);
        assert_int_equal(hex_decode(STR(":0"), raw, 1), -EINVAL);
        assert_int_equal(hex_decode(STR("@0"), raw, 1), -EINVAL);
        assert_int_equal(hex_decode(STR(" 0"), raw, 1), -EINVAL);
        assert_int_equal(hex_decode(STR(""), raw, 0), 0);
        hex_encode(NULL, 0, text);
        assert_string_equal(text, "");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(vectors),  cmocka_unit_test(every_length_survives),
                cmocka_unit_test(refusals), cmocka_unit_test(one_bad_digit_anywhere),
                cmocka_unit_test(limits),   cmocka_unit_test(hex),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
