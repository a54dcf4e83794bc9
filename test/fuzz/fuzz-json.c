/* What json_parse accepts must print, parse again and print to the same text. */
#include "base/json.h"
#include "fuzz.h"

#include <stdlib.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_json_ struct json *first = NULL, *second = NULL;
        struct err e = { 0 };

        if (json_parse((const char *) data, size, &first, &e) < 0) {
                CHECK(e.code < 0 && e.msg[0]);
                return 0;
        }
        _cleanup_free_ char *text = json_text(first);
        CHECK(text);
        CHECK(json_parse(text, strlen(text), &second, &e) == 0);
        CHECK(json_type(first) == json_type(second) && json_len(first) == json_len(second));
        _cleanup_free_ char *again = json_text(second);
        CHECK(again && cstr_eq(text, again));
        return 0;
}
