#include "boxd/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE (16u << 10)
#define NEEDLE_MAX 1024

void output_limit_parse(struct json *head, struct output_limit *l)
{
        int64_t max = json_get_int(head, "maxBytes", OUTPUT_DEFAULT), tail = json_get_int(head, "tail", 0);

        l->max_bytes = max < 0 ? 0 : max > OUTPUT_MAX ? OUTPUT_MAX : (uint64_t) max;
        l->tail_lines = tail > 0 ? (uint64_t) tail : 0;
}

static int send_range(int fd, enum guest_stream stream, const struct kept_source *s, uint64_t from, uint64_t to)
{
        char piece[PIECE];

        while (from < to) {
                long k = s->read(s->arg, from, piece, to - from < PIECE ? (size_t) (to - from) : PIECE);

                if (k <= 0)
                        return k < 0 ? (int) k : -EIO;
                int r = conn_send(fd, stream, 0, piece, (size_t) k);
                if (r < 0)
                        return r;
                from += (uint64_t) k;
        }
        return 0;
}

static bool read_full(const struct kept_source *s, uint64_t off, char *p, size_t n)
{
        while (n) {
                long k = s->read(s->arg, off, p, n);

                if (k <= 0)
                        return false;
                off += (uint64_t) k;
                p += k;
                n -= (size_t) k;
        }
        return true;
}

/* Where the last `lines` lines begin, not before `from`. */
static uint64_t tail_start(const struct kept_source *s, uint64_t from, uint64_t lines)
{
        uint64_t end = s->kept.len, seen = 0;
        char piece[PIECE];

        while (end > from) {
                uint64_t start = end - from > PIECE ? end - PIECE : from;

                if (!read_full(s, start, piece, (size_t) (end - start)))
                        return end;
                for (uint64_t i = end; i-- > start;) {
                        /* The line break that ends the last line does not count. */
                        if (piece[i - start] == '\n' && i + 1 != s->kept.len && ++seen == lines)
                                return i + 1;
                }
                end = start;
        }
        return from;
}

static uint64_t gaps_total(const struct kept *k)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < k->gaps; i++)
                sum += k->gap[i].len;
        return sum;
}

int output_send(int fd, enum guest_stream stream, const struct kept_source *s, const struct output_limit *l,
                struct output_cut *cut)
{
        const struct kept *k = &s->kept;

        if (l->tail_lines) {
                uint64_t from = tail_start(s, k->len > l->max_bytes ? k->len - l->max_bytes : 0, l->tail_lines);

                *cut = (struct output_cut){ k->total - (k->len - from), 0 };
                return send_range(fd, stream, s, from, k->len);
        }
        if (k->len <= l->max_bytes) {
                *cut = (struct output_cut){ gaps_total(k), k->gaps ? k->gap[0].at : 0 };
                return send_range(fd, stream, s, 0, k->len);
        }
        uint64_t head = l->max_bytes / 2, tail = l->max_bytes - head;
        *cut = (struct output_cut){ k->total - head - tail, head };
        int r = send_range(fd, stream, s, 0, head);
        return r < 0 ? r : send_range(fd, stream, s, k->len - tail, k->len);
}

void output_fields(struct jw *w, const char *name, const struct kept *k, const struct output_cut *cut)
{
        char key[32];

        snprintf(key, sizeof(key), "%sBytes", name);
        jw_kint(w, key, (int64_t) k->total);
        snprintf(key, sizeof(key), "%sOmitted", name);
        jw_kint(w, key, (int64_t) cut->omitted);
        if (cut->omitted) {
                snprintf(key, sizeof(key), "%sOmittedAt", name);
                jw_kint(w, key, (int64_t) cut->omitted_at);
        }
        if (k->error) {
                snprintf(key, sizeof(key), "%sNotKept", name);
                jw_kstr(w, key, code_name(k->error));
        }
}

int output_send_all(int fd, enum guest_stream stream, const struct kept_source *s)
{
        const struct kept *k = &s->kept;
        struct reply r;
        int e = send_range(fd, stream, s, 0, k->len);

        if (e >= 0)
                e = conn_send(fd, stream, GUEST_END, NULL, 0);
        if (e < 0)
                return e;
        reply_init(&r);
        jw_kint(&r.w, "bytes", (int64_t) k->total);
        jw_kint(&r.w, "kept", (int64_t) k->len);
        jw_karr(&r.w, "omitted");
        for (unsigned i = 0; i < k->gaps; i++) {
                jw_obj(&r.w);
                jw_kint(&r.w, "at", (int64_t) k->gap[i].at);
                jw_kint(&r.w, "bytes", (int64_t) k->gap[i].len);
                jw_end(&r.w);
        }
        jw_end(&r.w);
        if (k->error)
                jw_kstr(&r.w, "notKept", code_name(k->error));
        return reply_send(&r, fd);
}

bool output_contains(const struct kept_source *s, struct str needle)
{
        char piece[PIECE + NEEDLE_MAX];
        size_t have = 0;

        if (!needle.n || needle.n > NEEDLE_MAX)
                return false;
        for (uint64_t off = 0; off < s->kept.len;) {
                long k = s->read(s->arg, off, piece + have, PIECE);

                if (k <= 0)
                        return false;
                have += (size_t) k;
                off += (uint64_t) k;
                if (memmem(piece, have, needle.p, needle.n))
                        return true;
                size_t carry = min_size(have, needle.n - 1);
                memmove(piece, piece + have - carry, carry);
                have = carry;
        }
        return false;
}
