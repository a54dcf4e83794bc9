/* A redirect URI that is accepted is a line of printable ASCII without fragment, matches itself, and never matches one
 * of another kind. */
#include "auth/redirect.h"
#include "fuzz.h"

#include <stdlib.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct str s = str_n((const char *) data, size), first = s, host = { 0 };
        struct str second = s;

        /* Two of them, with a line break in between. */
        first = str_cut(&second, '\n');
        enum redirect_kind kind = redirect_check(first, &host);
        if (kind != REDIRECT_BAD) {
                CHECK(host.n > 0 && host.p >= first.p && host.p + host.n <= first.p + first.n);
                for (size_t i = 0; i < first.n; i++)
                        CHECK(first.p[i] > 0x20 && first.p[i] < 0x7f && first.p[i] != '#' && first.p[i] != '\\' &&
                              first.p[i] != '"' && first.p[i] != '<');
                CHECK(redirect_matches(first, first));
                for (size_t i = 0; kind == REDIRECT_HTTPS && i < host.n; i++)
                        CHECK(host.p[i] != '@');
        }
        if (redirect_matches(first, second)) {
                CHECK(kind != REDIRECT_BAD && redirect_check(second, NULL) == kind);
                CHECK(redirect_matches(second, first));
                CHECK(kind == REDIRECT_LOOPBACK || str_eq(first, second));
        } else {
                CHECK(!redirect_matches(second, first));
        }
        return 0;
}
