#include "base/mask.h"

#include "base/json.h"
#include "base/mask_forms.h"
#include "base/mem.h"
#include "base/seal.h"

#include <errno.h>
#include <stdlib.h>

#define SLICE ((size_t) 16 << 10)
#define RULES_MAX 4096
#define PEEK ((size_t) 4) /* no pattern is shorter */
#define FILTER_BITS 16
enum { EXACT, WRAPPED };

struct mask {
        unsigned refs;
        struct trie tries[2];
        char **markers;
        size_t n;
        uint64_t filter[(1 << FILTER_BITS) / 64]; /* of what patterns begin with; a sieve before the automata */
        bool wraps[256];                          /* what wrapped patterns begin with */
};

static uint32_t peek(const unsigned char *p)
{
        return (uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
}

static unsigned filter_slot(uint32_t four)
{
        return four * 2654435761u >> (32 - FILTER_BITS);
}

static void make_filter(struct mask *m)
{
        for (int which = 0; which < 2; which++)
                for (size_t i = 0; i < m->tries[which].n_patterns; i++) {
                        const char *p = m->tries[which].text.p + m->tries[which].patterns[i].at;
                        unsigned slot = filter_slot(peek((const unsigned char *) p));

                        m->filter[slot / 64] |= UINT64_C(1) << slot % 64;
                        m->wraps[(unsigned char) *p] |= which == WRAPPED;
                }
}

int mask_new(const struct mask_value *values, size_t n, struct mask **ret)
{
        if (n > RULES_MAX)
                return -E2BIG;
        struct mask *m = xcalloc(1, sizeof *m);
        int r = 0;

        m->refs = 1;
        m->markers = xcalloc(n + 1, sizeof *m->markers);
        trie_init(&m->tries[EXACT]);
        trie_init(&m->tries[WRAPPED]);
        for (size_t i = 0; i < n && r == 0; i++) {
                m->markers[m->n++] = xasprintf("[secret %s]", values[i].name);
                if (values[i].value.n >= MASK_VALUE_MIN)
                        r = mask_forms(values[i].value, (uint16_t) i, &m->tries[EXACT], &m->tries[WRAPPED]);
        }
        if (r < 0) {
                mask_unref(m);
                return r;
        }
        trie_link(&m->tries[EXACT]);
        trie_link(&m->tries[WRAPPED]);
        make_filter(m);
        *ret = m;
        return 0;
}

struct mask *mask_ref(struct mask *m)
{
        if (m)
                m->refs++;
        return m;
}

void mask_unref(struct mask *m)
{
        if (!m || --m->refs > 0)
                return;
        trie_done(&m->tries[EXACT]);
        trie_done(&m->tries[WRAPPED]);
        for (size_t i = 0; i < m->n; i++)
                free(m->markers[i]);
        free(m->markers);
        mem_wipe(m->filter, sizeof m->filter);
        free(m);
}

void mask_unrefp(struct mask **m)
{
        mask_unref(*m);
}

/* ---- what goes ---- */

static void add_span(struct mask_stream *s, uint64_t start, uint64_t end, unsigned rule)
{
        struct mask_span x = { start, end, rule, false };

        while (s->n_spans > s->first_span && s->spans[s->n_spans - 1].end > x.start) {
                struct mask_span *last = &s->spans[--s->n_spans];

                if (last->start <= x.start) {
                        x.start = last->start;
                        x.rule = last->rule;
                }
                x.end = last->end > x.end ? last->end : x.end;
                x.told = x.told || last->told;
        }
        if (s->n_spans == s->cap_spans) {
                s->cap_spans = s->cap_spans ? s->cap_spans * 2 : 16;
                s->spans = xrealloc(s->spans, s->cap_spans * sizeof *s->spans);
        }
        s->spans[s->n_spans++] = x;
}

/*
 * Where the last n characters begin that are no skipped line break. The i-th break from the end lies among them when
 * the n characters and the i - 1 breaks behind it reach that far, which is true of the first few and then no more.
 */
static uint64_t begin_of(const struct mask_stream *s, int which, uint32_t n)
{
        size_t low = 0, high = which == WRAPPED ? s->n_breaks : 0;

        while (low < high) {
                size_t i = (low + high + 1) / 2;

                if (s->breaks[s->n_breaks - i] + n + i > s->at)
                        low = i;
                else
                        high = i - 1;
        }
        return s->at - n - low;
}

/* base64 and hexadecimal come in lines: one line break does not end a match. */
static bool skips(struct mask_stream *s, unsigned char c)
{
        bool again = s->last == '\n' || (s->last == '\r' && c == '\r');

        if ((c != '\n' && c != '\r') || again || !s->state[WRAPPED])
                return false;
        if (s->n_breaks == s->cap_breaks) {
                s->cap_breaks = s->cap_breaks ? s->cap_breaks * 2 : 16;
                s->breaks = xrealloc(s->breaks, s->cap_breaks * sizeof *s->breaks);
        }
        s->breaks[s->n_breaks++] = s->at;
        return true;
}

static void step(struct mask_stream *s, int which, unsigned char c)
{
        const struct trie *t = &s->m->tries[which];
        const struct trie_node *old = &t->nodes[s->state[which]];
        uint32_t node = s->state[which] = trie_step(t, s->state[which], c);
        uint32_t found = t->nodes[node].longest;

        if (s->prefixes && old->depth >= MASK_PREFIX_MIN && t->nodes[node].depth <= old->depth)
                add_span(s, begin_of(s, which, old->depth), s->at, old->owner);

        s->at++; /* for begin_of */
        if (found)
                add_span(s, begin_of(s, which, found), s->at, t->nodes[node].rule);
        s->at--;
}

/* Whether one of the last three is a line break: a byte is zero when subtracting one from it borrows. */
static bool has_break(uint32_t four)
{
        uint32_t lf = (four | 0xff) ^ 0x0a0a0a0a, cr = (four | 0xff) ^ 0x0d0d0d0d;

        return (((lf - 0x01010101) & ~lf) | ((cr - 0x01010101) & ~cr)) & 0x80808080;
}

/* Whether a pattern may begin with these PEEK bytes. */
static bool may_begin(const struct mask *m, const unsigned char *p)
{
        uint32_t four = peek(p);
        unsigned slot = filter_slot(four);

        return m->filter[slot / 64] >> slot % 64 & 1 || (has_break(four) && m->wraps[p[0]]);
}

/* The first place in p at which a pattern may begin, or from which on it cannot be told yet. */
static size_t skim(const struct mask *m, const unsigned char *p, size_t n)
{
        size_t i = 0;

        while (i + PEEK <= n && !may_begin(m, p + i))
                i++;
        return i;
}

/* Most beginnings come to nothing: none of the last few bytes begins a pattern, so the automata need not follow them.
 */
static void give_up(struct mask_stream *s, const unsigned char *p, size_t i, size_t n)
{
        uint32_t exact = s->m->tries[EXACT].nodes[s->state[EXACT]].depth;
        uint32_t wrapped = s->m->tries[WRAPPED].nodes[s->state[WRAPPED]].depth;

        if (exact >= PEEK || wrapped >= PEEK)
                return;
        size_t held = max_size(exact, (size_t) (s->at - begin_of(s, WRAPPED, wrapped))); /* with line breaks */
        if (held >= PEEK || held > i + 1 || i + PEEK > n)
                return;
        for (size_t k = 0; k < held; k++)
                if (may_begin(s->m, p + i - k))
                        return;
        s->state[EXACT] = s->state[WRAPPED] = 0;
}

static void look(struct mask_stream *s, const unsigned char *p, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (!s->state[EXACT] && !s->state[WRAPPED]) {
                        size_t passed = skim(s->m, p + i, n - i);

                        i += passed;
                        s->at += passed;
                        if (i == n)
                                break;
                        if (passed)
                                s->last = p[i - 1];
                }
                unsigned char c = p[i];

                step(s, EXACT, c);
                if (!skips(s, c))
                        step(s, WRAPPED, c);
                s->last = c;
                s->at++;
                give_up(s, p, i, n);
        }
}

/* ---- what goes out ---- */

static void emit(struct mask_stream *s, uint64_t from, uint64_t to, mask_sink sink, void *arg)
{
        if (to > from)
                sink(s->pend.p + (from - s->from), (size_t) (to - from), arg);
}

/* Everything before `until` is decided: no occurrence that is still to come begins there. */
static void flush(struct mask_stream *s, uint64_t until, mask_sink sink, void *arg)
{
        uint64_t at = s->from;

        while (s->first_span < s->n_spans && s->spans[s->first_span].start < until) {
                struct mask_span *x = &s->spans[s->first_span];
                const char *marker = s->m->markers[x->rule];

                emit(s, at, x->start, sink, arg);
                if (!x->told)
                        sink(marker, strlen(marker), arg);
                if (x->end > until) { /* it may grow: the rest is dropped as it comes */
                        x->start = at = until;
                        x->told = true;
                        break;
                }
                at = x->end;
                s->first_span++;
        }
        emit(s, at, until, sink, arg);
        if (s->first_span == s->n_spans)
                s->first_span = s->n_spans = 0;
        buf_consume(&s->pend, (size_t) (until - s->from));
        s->from = until;
        size_t gone = 0;
        while (gone < s->n_breaks && s->breaks[gone] < until)
                gone++;
        s->n_breaks -= gone;
        if (gone && s->n_breaks)
                memmove(s->breaks, s->breaks + gone, s->n_breaks * sizeof *s->breaks);
}

static void begin(struct mask_stream *s, struct mask *m, size_t slice)
{
        *s = (struct mask_stream){ .m = mask_ref(m), .slice = slice };
        if (m) /* a wrapped spelling has at most two bytes of a line break after each of its own */
                s->pend = BUF_MAX(slice + 3 * max_size(m->tries[EXACT].longest, m->tries[WRAPPED].longest) + 64);
}

void mask_begin(struct mask_stream *s, struct mask *m)
{
        begin(s, m, SLICE);
}

void mask_feed(struct mask_stream *s, const void *p, size_t n, mask_sink sink, void *arg)
{
        const unsigned char *at = p;

        if (!s->m) {
                sink(p, n, arg);
                return;
        }
        while (n) {
                size_t part = min_size(n, s->slice);
                char *room = buf_room(&s->pend, s->pend.p ? part : s->pend.max);

                if (!room) /* no memory: what cannot be looked at does not go out, as little as with xmalloc */
                        abort();
                memcpy(room, at, part);
                buf_grew(&s->pend, part);
                look(s, at, part);
                at += part;
                n -= part;
                uint64_t exact = begin_of(s, EXACT, s->m->tries[EXACT].nodes[s->state[EXACT]].depth);
                uint64_t wrapped = begin_of(s, WRAPPED, s->m->tries[WRAPPED].nodes[s->state[WRAPPED]].depth);
                flush(s, exact < wrapped ? exact : wrapped, sink, arg);
        }
}

void mask_end(struct mask_stream *s, bool cut, mask_sink sink, void *arg)
{
        if (!s->m)
                return;
        for (int i = 0; cut && i < 2; i++) {
                const struct trie_node *node = &s->m->tries[i].nodes[s->state[i]];

                if (node->depth >= MASK_FRAGMENT_MIN)
                        add_span(s, begin_of(s, i, node->depth), s->at, node->owner);
        }
        flush(s, s->at, sink, arg);
        s->state[EXACT] = s->state[WRAPPED] = 0;
        s->last = 0;
}

void mask_done(struct mask_stream *s)
{
        if (s->pend.p)
                mem_wipe(s->pend.p, s->pend.cap);
        buf_done(&s->pend);
        free(steal_ptr(s->spans));
        free(steal_ptr(s->breaks));
        mask_unref(steal_ptr(s->m));
        s->n_spans = s->first_span = s->cap_spans = s->n_breaks = s->cap_breaks = 0;
}

/* ---- whole texts ---- */

struct into {
        struct buf *out;
        int r;
};

static void add_into(const void *p, size_t n, void *arg)
{
        struct into *x = arg;

        if (x->r == 0)
                x->r = buf_add(x->out, p, n);
}

/* The end of a value that the beginning of the text is. */
static void mask_beginning(struct mask_stream *s, struct str text)
{
        const struct trie *wrapped = &s->m->tries[WRAPPED];
        uint16_t rule = 0;
        size_t n = trie_fragment(&s->m->tries[EXACT], text, &rule);

        if (n >= MASK_FRAGMENT_MIN)
                add_span(s, 0, n, rule);
        size_t most = min_size(text.n, 3 * wrapped->longest), len = 0;
        _cleanup_free_ char *joined = xmalloc(most + 1);
        _cleanup_free_ size_t *place = xcalloc(most + 1, sizeof *place);
        for (size_t i = 0; i < most && len < wrapped->longest; i++)
                if (text.p[i] != '\n' && text.p[i] != '\r') {
                        joined[len] = text.p[i];
                        place[len++] = i + 1;
                }
        n = trie_fragment(wrapped, str_n(joined, len), &rule);
        if (n >= MASK_FRAGMENT_MIN)
                add_span(s, 0, place[n - 1], rule);
        mem_wipe(joined, most + 1);
}

int mask_text(struct mask *m, struct str text, unsigned cuts, struct buf *out)
{
        struct mask_stream s;
        struct into x = { out, 0 };

        begin(&s, m, min_size(max_size(text.n, 64), SLICE));
        s.prefixes = cuts & MASK_CUT_INSIDE;
        if (cuts & MASK_CUT_BEFORE)
                mask_beginning(&s, text);
        mask_feed(&s, text.p, text.n, add_into, &x);
        mask_end(&s, cuts & MASK_CUT_AFTER, add_into, &x);
        mask_done(&s);
        return x.r;
}

static char *mask_string(struct mask *m, const char *text, unsigned cuts)
{
        _cleanup_buf_ struct buf out = BUF_MAX(SIZE_MAX / 2);

        if (!m || !text)
                return xstrdup(text);
        (void) mask_text(m, str_of(text), cuts, &out);
        return out.p ? buf_steal(&out) : xstrdup("");
}

char *mask_cstr(struct mask *m, const char *text)
{
        return mask_string(m, text, 0);
}

char *mask_error(struct mask *m, const char *text)
{
        return mask_string(m, text, MASK_CUT_INSIDE | MASK_CUT_AFTER);
}

int mask_json(struct mask *m, struct str text, struct buf *out)
{
        _cleanup_json_ struct json *j = NULL;
        struct jw w;
        int r = json_parse(text.p, text.n, &j, NULL);

        if (r < 0)
                return r;
        jw_init(&w, out);
        w.mask = m;
        jw_json(&w, j);
        return jw_end_all(&w);
}

bool mask_hits(struct mask *m, struct str text)
{
        bool hit = false;

        for (int which = 0; m && which < 2 && !hit; which++) {
                const struct trie *t = &m->tries[which];
                uint32_t node = 0;

                for (size_t i = 0; i < text.n && !hit; i++) {
                        node = trie_step(t, node, (unsigned char) text.p[i]);
                        hit = t->nodes[node].longest > 0;
                }
        }
        return hit;
}
