/* The first line is a schema, the rest a value: whatever they are, a check ends, says why, and says it again of a copy.
 */
#include "mcp/mcp.h"
#include "fuzz.h"

#include <stdlib.h>

#define CHECK(condition)          \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct str rest = str_n((const char *) data, size), first = str_cut(&rest, '\n');
        _cleanup_json_ struct json *text = NULL, *value = NULL, *copy = NULL;
        struct err e = { 0 }, again = { 0 };
        struct schema *s;

        if (size == 0 || json_parse(first.p, first.n, &text, &e) < 0 || json_parse(rest.p, rest.n, &value, &e) < 0)
                return 0;
        s = schema_compile(text, &e);
        if (!s) {
                CHECK(e.code < 0 && e.msg[0]);
                return 0;
        }
        json_unref(steal_ptr(text));
        int r = schema_check(s, value, &e);
        CHECK(r == 0 || (r < 0 && e.msg[0]));
        _cleanup_free_ char *printed = json_text(value);
        CHECK(printed && json_parse(printed, strlen(printed), &copy, &again) == 0);
        CHECK(schema_check(s, copy, &again) == r);
        CHECK(r == 0 || cstr_eq(e.msg, again.msg));
        schema_free(s);
        return 0;
}
