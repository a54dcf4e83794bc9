#include "mcp/pattern.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define ATOMS_MAX 32
#define COUNT_MAX 100000

struct atom {
        uint64_t set[2]; /* a bit per ASCII character; others never match */
        size_t min, max;
};

struct pattern {
        size_t n;
        struct atom atoms[ATOMS_MAX];
};

static void set_add(struct atom *a, unsigned char c)
{
        a->set[c >> 6] |= (uint64_t) 1 << (c & 63);
}

static bool set_has(const struct atom *a, unsigned char c)
{
        return c < 128 && (a->set[c >> 6] >> (c & 63) & 1);
}

static bool ascii(char c)
{
        return (unsigned char) c >= 0x20 && (unsigned char) c < 0x7f;
}

/* "a-z0-9_]" after the opening bracket. */
static const char *parse_class(const char *s, struct atom *a)
{
        if (*s == '^' || *s == ']')
                return NULL;
        for (; *s && *s != ']'; s++) {
                if (!ascii(*s) || *s == '\\' || *s == '[')
                        return NULL;
                if (s[1] == '-' && s[2] && s[2] != ']') {
                        if (!ascii(s[2]) || s[2] < *s)
                                return NULL;
                        for (char c = *s; c <= s[2]; c++)
                                set_add(a, (unsigned char) c);
                        s += 2;
                } else {
                        set_add(a, (unsigned char) *s);
                }
        }
        return *s == ']' ? s + 1 : NULL;
}

static const char *parse_number(const char *s, size_t *ret)
{
        uint64_t v;
        size_t n = strspn(s, "0123456789");

        if (parse_u64(str_n(s, n), COUNT_MAX, &v) < 0)
                return NULL;
        *ret = (size_t) v;
        return s + n;
}

static const char *parse_count(const char *s, struct atom *a)
{
        a->min = a->max = 1;
        switch (*s) {
        case '*':
                a->min = 0;
                a->max = SIZE_MAX;
                return s + 1;
        case '+':
                a->max = SIZE_MAX;
                return s + 1;
        case '?':
                a->min = 0;
                return s + 1;
        case '{':
                s = parse_number(s + 1, &a->min);
                if (!s)
                        return NULL;
                a->max = a->min;
                if (*s == ',') {
                        s++;
                        a->max = SIZE_MAX;
                        if (*s != '}')
                                s = parse_number(s, &a->max);
                }
                return s && *s == '}' && a->max >= a->min ? s + 1 : NULL;
        default:
                return s;
        }
}

static const char *parse_atom(const char *s, struct atom *a)
{
        if (*s == '[')
                return parse_class(s + 1, a);
        if (*s == '\\' && (c_is_alnum(s[1]) || !ascii(s[1])))
                return NULL; /* \d and the like: spell the class out */
        if (*s == '\\')
                s++;
        else if (!ascii(*s) || strchr(".*+?(){}|^$]", *s))
                return NULL;
        set_add(a, (unsigned char) *s);
        return s + 1;
}

int pattern_compile(const char *text, struct pattern **ret, struct err *e)
{
        struct pattern *p = xcalloc(1, sizeof(*p));
        const char *s = text;

        if (*s++ != '^')
                goto bad;
        while (*s && !(s[0] == '$' && !s[1])) {
                if (p->n == ATOMS_MAX)
                        goto bad;
                s = parse_atom(s, &p->atoms[p->n]);
                if (s)
                        s = parse_count(s, &p->atoms[p->n]);
                if (!s)
                        goto bad;
                p->n++;
        }
        if (!*s)
                goto bad;
        *ret = p;
        return 0;

bad:
        free(p);
        return err_set(e, -EINVAL, "pattern \"%s\" is outside the supported subset", text);
}

void pattern_free(struct pattern *p)
{
        free(p);
}

/*
 * before[i] counts the reachable positions below i. An end j is reachable when some start i is, such that the atom
 * matches all of [i, j) and may be repeated j - i times; the starts form a range, so two look-ups in before[] tell.
 */
static bool step(const struct atom *a, struct str s, size_t *before, size_t *next)
{
        size_t run = 0; /* where the run of matching characters that ends at j starts */

        next[0] = 0;
        for (size_t j = 0; j <= s.n; j++) {
                size_t low, high;

                if (j > 0 && !set_has(a, (unsigned char) s.p[j - 1]))
                        run = j;
                low = j - run > a->max ? j - a->max : run;
                high = j >= a->min ? j - a->min + 1 : 0;
                next[j + 1] = next[j] + (high > low && before[high] > before[low]);
        }
        return next[s.n + 1] > 0;
}

int pattern_match(const struct pattern *p, struct str s)
{
        _cleanup_free_ size_t *mem = try_malloc(2 * (s.n + 2) * sizeof(*mem));
        size_t *before = mem, *next;

        if (!mem)
                return -ENOMEM;
        next = mem + s.n + 2;
        before[0] = 0;
        for (size_t i = 1; i < s.n + 2; i++)
                before[i] = 1; /* only position 0 */
        for (size_t i = 0; i < p->n; i++) {
                size_t *swap = before;

                if (!step(&p->atoms[i], s, before, next))
                        return 0;
                before = next;
                next = swap;
        }
        return before[s.n + 1] > before[s.n];
}
