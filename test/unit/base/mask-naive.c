#include "mask-naive.h"

#include "base/mask_forms.h"

#include <stdlib.h>

struct hit {
        size_t start, end;
        unsigned rule;
};

struct hits {
        struct hit *v;
        size_t n;
};

static void note(struct hits *h, size_t start, size_t end, unsigned rule)
{
        h->v = xrealloc(h->v, (h->n + 1) * sizeof *h->v);
        h->v[h->n++] = (struct hit){ start, end, rule };
}

static bool line_break(char c)
{
        return c == '\n' || c == '\r';
}

/* The end of pattern p at text + at, reading over single line breaks when it may; 0: it is not there. */
static size_t match(struct str text, size_t at, struct str p, bool wrapped)
{
        for (size_t i = 0; i < p.n; i++, at++) {
                if (i && wrapped && at < text.n && text.p[at] == '\r')
                        at++;
                if (i && wrapped && at < text.n && text.p[at] == '\n')
                        at++;
                if (at >= text.n || text.p[at] != p.p[i])
                        return 0;
        }
        return at;
}

static void find_all(struct hits *h, const struct trie *t, struct str text, bool wrapped)
{
        for (size_t at = 0; at < text.n; at++)
                for (size_t k = 0; k < t->n_patterns; k++) {
                        struct str p = str_n(t->text.p + t->patterns[k].at, t->patterns[k].len);
                        size_t end = wrapped && line_break(text.p[at]) ? 0 : match(text, at, p, wrapped);

                        if (end)
                                note(h, at, end, t->patterns[k].rule);
                }
}

/* By start; of those, what ends first; of those, the exact spelling, which was found first. */
static int by_place(const void *a, const void *b)
{
        const struct hit *x = a, *y = b;

        if (x->start != y->start)
                return x->start < y->start ? -1 : 1;
        if (x->end != y->end)
                return x->end < y->end ? -1 : 1;
        return 0;
}

/* Of patterns that end at one place only the longest counts for the name: the others lie inside it. */
void naive_mask(const struct mask_value *values, size_t n, struct str text, struct buf *out)
{
        struct trie tries[2];
        struct hits h = { 0 };
        size_t at = 0;

        trie_init(&tries[0]);
        trie_init(&tries[1]);
        for (size_t i = 0; i < n; i++)
                if (values[i].value.n >= MASK_VALUE_MIN)
                        (void) mask_forms(values[i].value, (uint16_t) i, &tries[0], &tries[1]);
        find_all(&h, &tries[0], text, false);
        find_all(&h, &tries[1], text, true);
        if (h.n)
                qsort(h.v, h.n, sizeof *h.v, by_place);
        for (size_t i = 0; i < h.n;) {
                size_t end = h.v[i].end, first = i;

                while (i < h.n && (i == first || h.v[i].start < end)) {
                        end = max_size(end, h.v[i].end);
                        i++;
                }
                (void) buf_add(out, text.p + at, h.v[first].start - at);
                (void) buf_addf(out, "[secret %s]", values[h.v[first].rule].name);
                at = end;
        }
        (void) buf_add(out, text.p + at, text.n - at);
        free(h.v);
        trie_done(&tries[0]);
        trie_done(&tries[1]);
}
