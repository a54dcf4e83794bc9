#include "base/str.h"

#include <errno.h>

static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char) (c + ('a' - 'A')) : c;
}

bool str_eq(struct str a, struct str b)
{
        return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_ieq(struct str a, struct str b)
{
        if (a.n != b.n)
                return false;
        for (size_t i = 0; i < a.n; i++)
                if (lower(a.p[i]) != lower(b.p[i]))
                        return false;
        return true;
}

bool str_starts(struct str s, struct str prefix)
{
        return s.n >= prefix.n && str_eq(str_n(s.p, prefix.n), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
        return suffix.n == 0 || (s.n >= suffix.n && str_eq(str_n(s.p + (s.n - suffix.n), suffix.n), suffix));
}

bool str_has(struct str s, struct str needle)
{
        return needle.n == 0 || (s.n >= needle.n && memmem(s.p, s.n, needle.p, needle.n) != NULL);
}

struct str str_trim(struct str s, const char *set)
{
        while (s.n && strchr(set, s.p[0]) && s.p[0]) {
                s.p++;
                s.n--;
        }
        while (s.n && s.p[s.n - 1] && strchr(set, s.p[s.n - 1]))
                s.n--;
        return s;
}

struct str str_cut(struct str *s, char sep)
{
        const char *at = s->n ? memchr(s->p, sep, s->n) : NULL;
        struct str head = *s;

        if (!at) {
                *s = str_n(s->n ? s->p + s->n : s->p, 0);
                return head;
        }
        head.n = (size_t) (at - s->p);
        s->n -= head.n + 1;
        s->p = at + 1;
        return head;
}

int parse_u64(struct str s, uint64_t max, uint64_t *ret)
{
        uint64_t v = 0;

        if (s.n == 0)
                return -EINVAL;
        for (size_t i = 0; i < s.n; i++) {
                if (s.p[i] < '0' || s.p[i] > '9')
                        return -EINVAL;
                uint64_t d = (uint64_t) (s.p[i] - '0');
                if (v > (UINT64_MAX - d) / 10)
                        return -ERANGE;
                v = v * 10 + d;
        }
        if (v > max)
                return -ERANGE;
        *ret = v;
        return 0;
}

bool c_is_alnum(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool cstr_eq(const char *a, const char *b)
{
        if (!a || !b)
                return a == b;
        return strcmp(a, b) == 0;
}
