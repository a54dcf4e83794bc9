#include "control/output.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>

#define HALF (OUTPUT_INLINE / 2)
#define LINK_MS ((int64_t) 3600 * 1000)
#define KEEP_MS ((int64_t) 24 * 3600 * 1000)

void output_init(struct output *o, struct objects *objects)
{
        *o = (struct output){ .objects = objects, .head = BUF_MAX(HALF) };
        o->object.fd = -1;
}

void output_done(struct output *o)
{
        buf_done(&o->head);
        free(steal_ptr(o->tail));
        if (o->storing)
                object_abort(&o->object);
        o->storing = false;
        mask_done(&o->mask);
        buf_wipe(&o->held);
}

/* The kept tail in order: two runs of the ring. */
static void tail_runs(const struct output *o, struct str *a, struct str *b)
{
        uint64_t beyond = o->total > HALF ? o->total - HALF : 0;

        *a = *b = str_n(NULL, 0);
        if (!o->tail || beyond == 0)
                return;
        if (beyond <= HALF) {
                *a = str_n(o->tail, (size_t) beyond);
                return;
        }
        size_t at = (size_t) (beyond % HALF);
        *a = str_n(o->tail + at, HALF - at);
        *b = str_n(o->tail, at);
}

static void start_storing(struct output *o)
{
        struct str a, b;

        if (object_begin(o->objects, &o->object, NULL) < 0) {
                o->store_failed = true;
                return;
        }
        o->storing = true;
        tail_runs(o, &a, &b);
        (void) object_write(&o->object, o->head.p, o->head.len);
        (void) object_write(&o->object, a.p, a.n);
        (void) object_write(&o->object, b.p, b.n);
}

static void put(const void *p, size_t n, void *arg)
{
        struct output *o = arg;
        const char *at = p;

        if (!o->storing && !o->store_failed && o->total + n > OUTPUT_INLINE)
                start_storing(o);
        if (o->storing && o->object.bytes + (int64_t) n > OUTPUT_STORED_MAX)
                o->object.r = -EFBIG;
        if (o->storing)
                (void) object_write(&o->object, p, n);
        size_t first = min_size(n, HALF - min_size(o->head.len, HALF));
        if (first) {
                (void) buf_add(&o->head, at, first);
                o->total += first;
                at += first;
                n -= first;
        }
        if (n && !o->tail)
                o->tail = xmalloc(HALF);
        if (n > HALF) { /* only the last HALF bytes can matter; the ring position follows from the total */
                o->total += n - HALF;
                at += n - HALF;
                n = HALF;
        }
        while (n) {
                size_t pos = (size_t) ((o->total - HALF) % HALF);
                size_t run = min_size(n, HALF - pos);

                memcpy(o->tail + pos, at, run);
                o->total += run;
                at += run;
                n -= run;
        }
}

void output_add(struct output *o, const void *p, size_t n)
{
        if (!o->mask.m)
                put(p, n, o);
        else if (!o->holding)
                mask_feed(&o->mask, p, n, put, o);
        else if (buf_add(&o->held, p, n) < 0)
                o->omitted_before += n; /* more than was asked for */
}

void output_mask(struct output *o, struct mask *m)
{
        mask_done(&o->mask);
        mask_begin(&o->mask, m);
}

void output_end(struct output *o)
{
        mask_end(&o->mask, false, put, o);
}

void output_hold(struct output *o)
{
        o->holding = o->mask.m != NULL;
        if (o->holding)
                o->held = BUF_MAX(OUTPUT_HELD);
}

static void add_piece(struct output *o, struct str text, unsigned cuts)
{
        _cleanup_buf_ struct buf masked = BUF_MAX(8 * OUTPUT_HELD);

        if (mask_text(o->mask.m, text, cuts, &masked) == 0)
                put(masked.p, masked.len, o);
}

void output_release(struct output *o, uint64_t omitted, uint64_t at, unsigned cuts)
{
        if (!o->holding) {
                output_omitted(o, omitted, at);
                return;
        }
        struct str all = buf_str(&o->held);
        size_t first = omitted && at < all.n ? (size_t) at : all.n;
        if (o->omitted_before) /* what was too much was the end */
                cuts |= MASK_CUT_AFTER;
        omitted += o->omitted_before;
        add_piece(o, str_n(all.p, first), omitted ? cuts | MASK_CUT_AFTER : cuts);
        at = o->total;
        if (first < all.n)
                add_piece(o, str_n(all.p + first, all.n - first), cuts | MASK_CUT_BEFORE);
        o->holding = false;
        buf_wipe(&o->held);
        output_omitted(o, omitted, at);
}

void output_snapshot(struct output *o, const struct output *src)
{
        struct str a, b;

        tail_runs(src, &a, &b);
        output_add(o, src->head.p, src->head.len);
        output_add(o, a.p, a.n);
        output_add(o, b.p, b.n);
        output_omitted(o, src->total - o->total, src->head.len);
}

void output_omitted(struct output *o, uint64_t bytes, uint64_t at)
{
        if (!bytes)
                return;
        o->omitted_before = bytes;
        o->omitted_at = at;
        if (o->storing)
                object_abort(&o->object);
        o->storing = false;
}

void output_take_whole(struct output *o, struct object_writer *w)
{
        if (o->storing)
                object_abort(&o->object);
        o->object = *w;
        w->fd = -1;
        o->storing = true;
}

static struct str suffix(struct str s, size_t n)
{
        n = min_size(n, s.n);
        s = str_n(s.p + (s.n - n), n);
        /* Not starting inside a character. */
        while (s.n && ((unsigned char) s.p[0] & 0xc0) == 0x80) {
                s.p++;
                s.n--;
        }
        return s;
}

/* What is shown before and after the gap, which covers whatever the daemon left out. */
static void split(const struct output *o, struct str all, size_t limit, struct str *head, struct str *tail)
{
        bool fits = o->total == all.n && all.n <= limit; /* only the daemon left something out */
        uint64_t at = o->omitted_before && o->omitted_at < o->total ? o->omitted_at
                      : o->omitted_before                           ? o->total
                                                                    : o->total / 2;
        size_t first = fits ? (size_t) at : min_size(limit / 2, o->head.len);

        if (at < first)
                first = (size_t) at;
        size_t last = limit - first;
        if (o->omitted_before && o->total - at < last)
                last = (size_t) (o->total - at);
        *head = utf8_prefix(all, first);
        *tail = suffix(str_n(all.p + head->n, all.n - head->n), last);
}

bool output_text(const struct output *o, size_t limit, struct buf *out)
{
        _cleanup_buf_ struct buf all = BUF_MAX(OUTPUT_INLINE);
        struct str a, b, head, tail;

        tail_runs(o, &a, &b);
        (void) buf_addstr(&all, buf_str(&o->head));
        (void) buf_addstr(&all, a);
        (void) buf_addstr(&all, b);
        if (o->total == all.len && !o->omitted_before && all.len <= limit) {
                (void) utf8_repair(out, buf_str(&all));
                return false;
        }
        split(o, buf_str(&all), limit, &head, &tail);
        uint64_t left_out = o->total + o->omitted_before - head.n - tail.n;
        (void) utf8_repair(out, head);
        (void) buf_addf(out, "%s[… %llu bytes left out here, from byte %zu on …]\n", head.n ? "\n" : "",
                        (unsigned long long) left_out, head.n);
        (void) utf8_repair(out, tail);
        return true;
}

bool output_exact(const struct output *o)
{
        if (o->total > OUTPUT_INLINE || o->omitted_before)
                return false;
        _cleanup_buf_ struct buf all = BUF_MAX(OUTPUT_INLINE);
        struct str a, b;

        tail_runs(o, &a, &b);
        (void) buf_addstr(&all, buf_str(&o->head));
        (void) buf_addstr(&all, a);
        (void) buf_addstr(&all, b);
        return utf8_valid(buf_str(&all));
}

char *output_link(struct output *o, struct control *c, const char *account, const char *box, const char *name,
                  const char **why)
{
        struct err e = { 0 };

        *why = NULL;
        if (o->linked)
                return link_make(c, o->object.id, name, wall_ms() + LINK_MS);
        if (o->omitted_before && !o->storing) {
                *why = o->why_omitted ? o->why_omitted : "the box kept only a part of it";
                return NULL;
        }
        if (!o->storing && !o->store_failed)
                start_storing(o);
        if (!o->storing) {
                *why = "the server could not store it";
                return NULL;
        }
        o->storing = false;
        int r = object_commit(&o->object, account, box, name, "application/octet-stream", KEEP_MS, &e);
        if (r < 0) {
                *why = r == -EFBIG    ? "it is larger than 1 GiB"
                       : r == -ENOSPC ? "the server's disk is full"
                                      : "the server could not store it";
                return NULL;
        }
        o->linked = true;
        return link_make(c, o->object.id, name, wall_ms() + LINK_MS);
}
