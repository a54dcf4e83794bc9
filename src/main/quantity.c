#include "quantity.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

struct unit {
        char name;
        uint64_t factor;
};

static int parse(const char *text, const struct unit *units, size_t n, uint64_t least, uint64_t most, uint64_t *ret)
{
        size_t len = strlen(text);
        uint64_t number;

        for (size_t i = 0; len > 0 && i < n; i++) {
                struct str digits = units[i].name ? str_n(text, len - 1) : str_of(text);

                if (units[i].name && text[len - 1] != units[i].name)
                        continue;
                if (parse_u64(digits, most / units[i].factor, &number) < 0 || number * units[i].factor < least)
                        return -EINVAL;
                *ret = number * units[i].factor;
                return 0;
        }
        return -EINVAL;
}

int parse_duration(const char *text, bool may_be_never, int64_t *ret_ms)
{
        static const struct unit units[] = { { 's', 1000 }, { 'm', 60000 }, { 'h', 3600000 }, { 'd', 86400000 } };
        uint64_t ms;

        if (may_be_never && cstr_eq(text, "never")) {
                *ret_ms = 0;
                return 0;
        }
        int r = parse(text, units, ARRAY_LEN(units), 1000, 3650 * 86400000ULL, &ms);
        if (r == 0)
                *ret_ms = (int64_t) ms;
        return r;
}

int parse_bytes(const char *text, uint64_t *ret)
{
        static const struct unit units[] = {
                { 'K', 1ULL << 10 }, { 'M', 1ULL << 20 }, { 'G', 1ULL << 30 }, { 'T', 1ULL << 40 }, { '\0', 1 }
        };

        return parse(text, units, ARRAY_LEN(units), 16ULL << 20, 1ULL << 50, ret);
}
