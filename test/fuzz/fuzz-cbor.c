/* Nothing that a browser can send for a passkey makes the readers leave their bytes; what is skipped is whole and reads
 * the same again. */
#include "auth/cbor.h"
#include "fuzz.h"

#include <stdlib.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void check_inside(const uint8_t *data, size_t size, struct str s)
{
        CHECK(s.n <= size);
        CHECK(s.n == 0 || ((const uint8_t *) s.p >= data && (const uint8_t *) s.p + s.n <= data + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cbor c = { data, size }, at;
        struct cbor_item item;
        struct str whole;
        int64_t v;

        if (cbor_skip(&c, &whole) == 0) {
                struct cbor again = { (const unsigned char *) whole.p, whole.n };

                check_inside(data, size, whole);
                CHECK(whole.n > 0 && whole.n + c.n == size);
                CHECK(cbor_skip(&again, NULL) == 0 && again.n == 0);
                /* One byte less is never enough. */
                again = (struct cbor){ (const unsigned char *) whole.p, whole.n - 1 };
                CHECK(cbor_skip(&again, NULL) < 0);
        }
        c = (struct cbor){ data, size };
        while (cbor_next(&c, &item) == 0) {
                check_inside(data, size, item.bytes);
                CHECK(c.p >= data && c.p + c.n == data + size);
        }
        c = (struct cbor){ data, size };
        for (int64_t key = -3; key < 4; key++)
                if (cbor_find_int(c, key, &at) == 1)
                        CHECK(at.p > data && at.p + at.n == data + size);
        (void) cbor_find_text(c, "authData", &at);
        (void) cbor_int(&c, &v);
        return 0;
}
