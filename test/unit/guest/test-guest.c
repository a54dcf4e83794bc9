#include "guest/guest.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void frames_round_trip(void **state)
{
        unsigned char raw[GUEST_HEADER_LEN];
        struct guest_header h = { GUEST_STDERR, GUEST_END, 0x00012345 }, back;

        guest_encode(&h, raw);
        assert_memory_equal(raw, "\3\1\0\0\x45\x23\1\0", 8);
        assert_int_equal(guest_decode(raw, &back), 0);
        assert_int_equal(back.stream, h.stream);
        assert_int_equal(back.flags, h.flags);
        assert_int_equal(back.length, h.length);
}

static void bad_frames(void **state)
{
        static const unsigned char bad[][GUEST_HEADER_LEN] = {
                { 5, 0, 0, 0, 1, 0, 0, 0 }, { 255, 0, 0, 0, 1, 0, 0, 0 }, { 0, 2, 0, 0, 1, 0, 0, 0 },
                { 0, 0, 1, 0, 1, 0, 0, 0 }, { 0, 0, 0, 1, 1, 0, 0, 0 },   { 4, 0, 0, 0, 1, 0, 0x10, 0 },
                { 0, 0, 0, 0, 1, 0, 4, 0 }, { 4, 0, 0, 0, 0, 0, 0, 1 },   { 2, 0, 0, 0, 255, 255, 255, 255 },
        };
        struct guest_header h;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(guest_decode(bad[i], &h), -EPROTO);
        assert_int_equal(guest_decode((const unsigned char *) "\4\0\0\0\0\0\x10\0", &h), 0);
        assert_int_equal(h.length, GUEST_FRAME_MAX);
        assert_int_equal(guest_decode((const unsigned char *) "\0\0\0\0\0\0\4\0", &h), 0);
        assert_int_equal(h.length, GUEST_CONTROL_MAX);
}

static void entries_round_trip(void **state)
{
        unsigned char raw[GUEST_ENTRY_FIXED + 16];
        struct guest_entry e = { .kind = GUEST_KIND_EXEC, .size = 0x1122334455667788, .path = "a/\xff", .path_len = 3 },
                           back;

        memset(e.digest, 0xab, sizeof(e.digest));
        size_t n = guest_entry_encode(&e, raw);
        assert_int_equal(n, GUEST_ENTRY_FIXED + 3);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(guest_entry_decode(raw, i, &back), 0);
        assert_int_equal(guest_entry_decode(raw, n, &back), n);
        assert_int_equal(back.kind, e.kind);
        assert_true(back.size == e.size);
        assert_memory_equal(back.path, "a/\xff", 3);
        raw[0] = 3;
        assert_int_equal(guest_entry_decode(raw, n, &back), -EPROTO);
        raw[0] = 0;
        raw[41] = raw[42] = 0;
        assert_int_equal(guest_entry_decode(raw, n, &back), -EPROTO);
        raw[41] = 1;
        raw[42] = 0x10; /* 4097 */
        assert_int_equal(guest_entry_decode(raw, n, &back), -EPROTO);
}

static void paths(void **state)
{
        static const char *const good[] = {
                "a", "a/b", "...", "..a", "a..", ".a/b.", "a/...", " ", "\n", "\xff\xfe/x"
        };
        static const char *const bad[] = { "",    "/",   "/a",   "a/",   "a//b",   ".",    "..",
                                           "./a", "a/.", "a/..", "../a", "a/../b", "a/./b" };

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                assert_true(guest_path_ok(good[i], strlen(good[i])));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_false(guest_path_ok(bad[i], strlen(bad[i])));
        assert_false(guest_path_ok("a\0b", 3));
        assert_false(guest_path_ok("a\0", 2));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(frames_round_trip),
                cmocka_unit_test(bad_frames),
                cmocka_unit_test(entries_round_trip),
                cmocka_unit_test(paths),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
