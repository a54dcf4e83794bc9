/*
 * str: pointer-plus-length strings that borrow their bytes, and strict number parsing.
 * A struct str owns nothing; it is valid as long as what it points into. Nothing here suspends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
        const char *p;
        size_t n;
};

#define STR(lit) ((struct str){ (lit), sizeof(lit) - 1 })

static inline struct str str_of(const char *s)
{
        return (struct str){ s, s ? strlen(s) : 0 };
}

static inline struct str str_n(const char *p, size_t n)
{
        return (struct str){ p, n };
}

bool str_eq(struct str a, struct str b);
bool str_ieq(struct str a, struct str b); /* ASCII case folded */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
bool str_has(struct str s, struct str needle);
struct str str_trim(struct str s, const char *set); /* both ends, any of set */

/* Cuts s at the first sep: the part before it is returned and s becomes the rest; without sep all of s. */
struct str str_cut(struct str *s, char sep);

/* Decimal digits only, at most max: 0, or -EINVAL / -ERANGE. No sign, no space, no leading '+'. */
int parse_u64(struct str s, uint64_t max, uint64_t *ret);

bool c_is_alnum(char c);                    /* ASCII, whatever the locale */
bool cstr_eq(const char *a, const char *b); /* NULL equals NULL only */
