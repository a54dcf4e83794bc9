/*
 * Frames and plan entries: what is decoded encodes to the same bytes, nothing is read beyond the input, and a path that
 * passes cannot leave its folder.
 */
#include "fuzz.h"
#include "guest/guest.h"

#include <stdlib.h>
#include <string.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void frame(const uint8_t *data)
{
        unsigned char again[GUEST_HEADER_LEN];
        struct guest_header h;

        if (guest_decode(data, &h) < 0)
                return;
        CHECK(h.length <= GUEST_FRAME_MAX && h.stream <= GUEST_DATA && (h.flags & ~GUEST_END) == 0);
        CHECK(h.stream != GUEST_CONTROL || h.length <= GUEST_CONTROL_MAX);
        guest_encode(&h, again);
        CHECK(memcmp(again, data, sizeof(again)) == 0);
}

static void path(const char *p, size_t n)
{
        bool ok = guest_path_ok(p, n);

        if (!ok)
                return;
        CHECK(n && p[0] != '/' && p[n - 1] != '/' && !memchr(p, 0, n) && !memmem(p, n, "//", 2) &&
              !memmem(p, n, "/../", 4) && !memmem(p, n, "/./", 3));
        CHECK(!(n == 2 && memcmp(p, "..", 2) == 0) && !(n > 2 && memcmp(p, "../", 3) == 0) &&
              !(n > 2 && memcmp(p + n - 3, "/..", 3) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        unsigned char *again = malloc(GUEST_ENTRY_FIXED + GUEST_PATH_MAX);
        struct guest_entry e;
        size_t at = 0;
        long used;

        CHECK(again);
        path((const char *) data, size);
        for (size_t i = 0; i + GUEST_HEADER_LEN <= size; i += GUEST_HEADER_LEN)
                frame(data + i);
        while ((used = guest_entry_decode(data + at, size - at, &e)) > 0) {
                CHECK((size_t) used <= size - at && guest_path_ok(e.path, e.path_len));
                CHECK(guest_entry_encode(&e, again) == (size_t) used && memcmp(again, data + at, (size_t) used) == 0);
                at += (size_t) used;
        }
        free(again);
        return 0;
}
