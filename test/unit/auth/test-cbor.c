#include "test.h"

#include "auth/cbor.h"
#include "base/b64.h"

#include <errno.h>

static struct cbor from_hex(const char *hex, unsigned char *out)
{
        size_t n = strlen(hex) / 2;

        assert_int_equal(hex_decode(str_of(hex), out, n), 0);
        return (struct cbor){ out, n };
}

/* RFC 8949, appendix A, as far as it is canonical; then what is refused. */
static void test_items(void **state)
{
        static const struct {
                const char *hex;
                int r; /* of skipping exactly one item */
        } rows[] = {
                { "00", 0 },
                { "17", 0 },
                { "1818", 0 },
                { "1903e8", 0 },
                { "1a000f4240", 0 },
                { "1b000000e8d4a51000", 0 },
                { "20", 0 },
                { "3863", 0 },
                { "3bffffffffffffffff", 0 },
                { "40", 0 },
                { "4401020304", 0 },
                { "60", 0 },
                { "6449455446", 0 },
                { "80", 0 },
                { "83010203", 0 },
                { "8301820203820405", 0 },
                { "a0", 0 },
                { "a201020304", 0 },
                { "a26161016162820203", 0 },
                { "f4", 0 },
                { "f5", 0 },
                { "f6", 0 },
                { "", -EBADMSG },
                { "18", -EBADMSG },
                { "1817", -EBADMSG },
                { "190010", -EBADMSG },
                { "1a00001000", -EBADMSG },
                { "1b0000000000001000", -EBADMSG },
                { "1c", -EBADMSG },
                { "1f", -EBADMSG },
                { "41", -EBADMSG },
                { "5affffffff00", -EBADMSG },
                { "5bffffffffffffffff00", -EBADMSG },
                { "5f42010243030405ff", -EBADMSG },
                { "9f01ff", -EBADMSG },
                { "bf6161019f0203ffff", -EBADMSG },
                { "8201", -EBADMSG },
                { "9bffffffffffffffff", -EBADMSG },
                { "bbffffffffffffffff", -EBADMSG },
                { "bb8000000000000000", -EBADMSG },
                { "a101", -EBADMSG },
                { "c074", -EBADMSG },
                { "d74401020304", -EBADMSG },
                { "f7", -EBADMSG },
                { "f0", -EBADMSG },
                { "f818", -EBADMSG },
                { "f90000", -EBADMSG },
                { "fb3ff199999999999a", -EBADMSG },
                { "ff", -EBADMSG },
                { "8181818181818100", 0 },
                { "818181818181818100", -EBADMSG }, /* depth */
        };
        unsigned char bytes[64];

        (void) state;
        for (size_t i = 0; i < COUNT(rows); i++) {
                struct cbor c = from_hex(rows[i].hex, bytes), before = c;
                struct str whole;
                int r = cbor_skip(&c, &whole);

                if (r != rows[i].r)
                        fail_msg("%s: %d", rows[i].hex, r);
                if (r == 0)
                        assert_true(c.n == 0 && whole.n == before.n);
                else
                        assert_true(c.p == before.p && c.n == before.n);
        }
}

static void test_maps(void **state)
{
        unsigned char bytes[64];
        struct cbor at;
        int64_t v;

        (void) state;
        struct cbor c = from_hex("a50102032620012158024142"
                                 "6161"
                                 "18ff",
                                 bytes);
        assert_int_equal(cbor_find_int(c, 3, &at), -EBADMSG); /* cut off: the map says five */
        c = from_hex("a4010203262001616118ff", bytes);
        assert_int_equal(cbor_find_int(c, 1, &at), 1);
        assert_true(cbor_int(&at, &v) == 0 && v == 2);
        assert_int_equal(cbor_find_int(c, 3, &at), 1);
        assert_true(cbor_int(&at, &v) == 0 && v == -7);
        assert_int_equal(cbor_find_int(c, -1, &at), 1);
        assert_true(cbor_int(&at, &v) == 0 && v == 1);
        assert_int_equal(cbor_find_text(c, "a", &at), 1);
        assert_true(cbor_int(&at, &v) == 0 && v == 255);
        assert_int_equal(cbor_find_text(c, "b", &at), 0);
        assert_int_equal(cbor_find_int(c, 99, &at), 0);
        c = from_hex("a201020103", bytes);
        assert_int_equal(cbor_find_int(c, 1, &at), -EBADMSG); /* twice */
        c = from_hex("820102", bytes);
        assert_int_equal(cbor_find_int(c, 1, &at), -EBADMSG);
        c = from_hex("1bffffffffffffffff", bytes);
        assert_int_equal(cbor_int(&c, &v), -EBADMSG);
        c = from_hex("3b7fffffffffffffff", bytes);
        assert_true(cbor_int(&c, &v) == 0 && v == INT64_MIN);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_items), cmocka_unit_test(test_maps) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
