#include "sync/glob.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

void globs_done(struct globs *g)
{
        for (size_t i = 0; i < g->n; i++)
                free(g->v[i].text);
        free(g->v);
        *g = (struct globs){ 0 };
}

int globs_add(struct globs *g, const char *pattern, struct err *e)
{
        struct str s = str_of(pattern);
        struct glob one = { 0 };

        if (s.n > GLOB_PATTERN_MAX || g->n >= GLOBS_MAX)
                return err_set(e, -EINVAL, "`exclude` has a pattern over %d bytes, or more than %d patterns",
                               GLOB_PATTERN_MAX, GLOBS_MAX);
        if (str_starts(s, STR("!")))
                return err_set(e, -EINVAL,
                               "`exclude` pattern \"%.100s\": negation is not supported; write \\! for a name that "
                               "starts with !",
                               pattern);
        while (str_starts(s, STR("./"))) {
                s = str_n(s.p + 2, s.n - 2);
                one.anchored = true;
        }
        if (str_starts(s, STR("/")))
                one.anchored = true;
        if (str_ends(s, STR("/")))
                one.folder_only = true;
        s = str_trim(s, "/");
        if (s.n == 0)
                return err_set(e, -EINVAL, "`exclude` has an empty pattern");
        if (memchr(s.p, '/', s.n))
                one.anchored = true;
        one.text = xstrndup(s.p, s.n);
        g->v = xrealloc(g->v, (g->n + 1) * sizeof *g->v);
        g->v[g->n++] = one;
        return 0;
}

/* Reads one bracket expression at p[0] == '['; returns the bytes it takes, 0 when it is not closed (then [ is literal).
 */
static size_t bracket(struct str p, unsigned char c, bool *hit)
{
        size_t i = 1;
        bool negate = false, any = false;

        if (i < p.n && (p.p[i] == '!' || p.p[i] == '^')) {
                negate = true;
                i++;
        }
        for (bool first = true; i < p.n; first = false) {
                if (p.p[i] == ']' && !first) {
                        *hit = any != negate;
                        return i + 1;
                }
                if (p.p[i] == '\\' && i + 1 < p.n)
                        i++;
                unsigned char lo = (unsigned char) p.p[i++], hi = lo;
                if (i + 1 < p.n && p.p[i] == '-' && p.p[i + 1] != ']') {
                        i++;
                        if (p.p[i] == '\\' && i + 1 < p.n)
                                i++;
                        hi = (unsigned char) p.p[i++];
                }
                any |= c >= lo && c <= hi;
        }
        return 0;
}

/* Whether the pattern element at p.p[0] (no star) matches c; *len is the element's length. */
static bool element(struct str p, unsigned char c, size_t *len)
{
        bool hit;

        *len = 1;
        if (p.p[0] == '?')
                return true;
        if (p.p[0] == '[') {
                size_t n = bracket(p, c, &hit);
                if (n) {
                        *len = n;
                        return hit;
                }
        }
        if (p.p[0] == '\\' && p.n > 1) {
                *len = 2;
                return (unsigned char) p.p[1] == c;
        }
        return (unsigned char) p.p[0] == c;
}

bool glob_component(struct str pattern, struct str name)
{
        size_t p = 0, n = 0, star = SIZE_MAX, mark = 0;

        /* Only the last star ever needs to be tried again: what an earlier one took can be given to a later one. */
        while (n < name.n || p < pattern.n) {
                size_t len;

                if (p < pattern.n && pattern.p[p] == '*') {
                        star = ++p;
                        mark = n;
                        continue;
                }
                if (p < pattern.n && n < name.n &&
                    element(str_n(pattern.p + p, pattern.n - p), (unsigned char) name.p[n], &len)) {
                        p += len;
                        n++;
                        continue;
                }
                if (star == SIZE_MAX || mark >= name.n)
                        return false;
                p = star;
                n = ++mark;
        }
        return true;
}

static bool next_is_stars(struct str p, struct str *rest)
{
        struct str r = p;

        if (!str_eq(str_cut(&r, '/'), STR("**")))
                return false;
        *rest = r;
        return true;
}

/* The same last-star walk, one level up: components instead of characters, `**` instead of `*`. */
static bool match_whole(struct str pattern, struct str path)
{
        struct str p = pattern, s = path, after = { 0 }, mark = { 0 };
        bool star = false;

        while (p.n || s.n) {
                struct str rest, r, t;

                if (p.n && next_is_stars(p, &rest)) {
                        if (rest.n == 0)
                                return s.n > 0; /* "a/" + "**": something inside a, not a itself */
                        star = true;
                        after = p = rest;
                        mark = s;
                        continue;
                }
                r = p;
                t = s;
                if (p.n && s.n && glob_component(str_cut(&r, '/'), str_cut(&t, '/'))) {
                        p = r;
                        s = t;
                        continue;
                }
                if (!star || mark.n == 0)
                        return false;
                (void) str_cut(&mark, '/');
                p = after;
                s = mark;
        }
        return true;
}

static struct str last_component(struct str path)
{
        size_t at = path.n;

        while (at > 0 && path.p[at - 1] != '/')
                at--;
        return str_n(path.p + at, path.n - at);
}

static bool match_one(const struct glob *g, struct str path, bool is_dir)
{
        if (g->folder_only && !is_dir)
                return false;
        if (g->anchored)
                return match_whole(str_of(g->text), path);
        return glob_component(str_of(g->text), last_component(path));
}

bool globs_match(const struct globs *g, struct str path, bool is_dir)
{
        if (g->n == 0)
                return false;
        for (size_t end = 0; end <= path.n; end++) {
                if (end == 0 || (end < path.n && path.p[end] != '/'))
                        continue;
                for (size_t i = 0; i < g->n; i++)
                        if (match_one(&g->v[i], str_n(path.p, end), end < path.n || is_dir))
                                return true;
        }
        return false;
}
