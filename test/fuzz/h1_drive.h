/*
 * h1_drive: feeds bytes to the codec cut in a given way and writes down everything that came out, as text. Two cuts of
 * the same bytes must give the same text: the property that the table test and the fuzz targets share.
 */
#pragma once

#include "http/h1.h"

#include <stdio.h>
#include <stdlib.h>

enum drive_kind { DRIVE_REQUEST, DRIVE_RESPONSE, DRIVE_RESPONSE_TO_HEAD, DRIVE_CHUNKED };

struct drive {
        enum drive_kind kind;
        struct buf *out;
        struct h1_head head;
        struct h1_body body;
        size_t scanned, used; /* of the present head; consumed in all */
        bool in_body, over;
        size_t body_bytes;
        unsigned long body_sum; /* a cheap digest, independent of the runs */
};

static inline void drive_put(struct drive *d, const char *key, struct str value)
{
        (void) buf_addf(d->out, "%s=[", key);
        (void) buf_addstr(d->out, value);
        (void) buf_adds(d->out, "] ");
}

static inline void drive_head(struct drive *d)
{
        struct h1_head *h = &d->head;

        if (d->kind == DRIVE_REQUEST) {
                drive_put(d, "method", h->method);
                drive_put(d, "target", h->target);
                drive_put(d, "host", h->host);
        } else {
                (void) buf_addf(d->out, "status=%u ", h->status);
                drive_put(d, "reason", h->reason);
        }
        for (size_t i = 0; i < h->header_count; i++) {
                drive_put(d, "name", h->headers[i].name);
                drive_put(d, "value", h->headers[i].value);
        }
        (void) buf_addf(d->out, "1.%u framing=%d length=%llu keep=%d expect=%d upgrade=%d\n", h->minor,
                        (int) h->framing, (unsigned long long) h->length, h->keep_alive, h->expect_continue,
                        h->upgrade);
        h1_body_init(&d->body, h);
        d->in_body = true;
        d->body_bytes = d->body_sum = 0;
}

static inline void drive_body_end(struct drive *d)
{
        (void) buf_addf(d->out, "body=%zu sum=%lx at=%zu\n", d->body_bytes, d->body_sum, d->used);
        d->in_body = false;
        d->scanned = 0;
        if (d->kind == DRIVE_CHUNKED || !d->head.keep_alive || d->head.upgrade)
                d->over = true;
}

/* One step over p[0..n), all bytes seen so far. True when it made progress. */
static inline bool drive_step(struct drive *d, const char *p, size_t n)
{
        struct h1_error err = { 0 };

        if (!d->in_body) {
                struct str method = d->kind == DRIVE_RESPONSE_TO_HEAD ? STR("HEAD") : STR("GET");
                long r = d->kind == DRIVE_REQUEST
                                 ? h1_request_parse(p + d->used, n - d->used, &d->scanned, &d->head, &err)
                                 : h1_response_parse(p + d->used, n - d->used, &d->scanned, method, &d->head, &err);

                if (r < 0) {
                        (void) buf_addf(d->out, "refused %u %s\n", err.status, err.reason);
                        d->over = true;
                }
                if (r <= 0)
                        return false;
                d->used += (size_t) r;
                drive_head(d);
                return true;
        }
        if (!d->body.done) {
                const char *data;
                size_t len;
                long r = h1_body_feed(&d->body, p + d->used, n - d->used, &data, &len);

                if (r < 0) {
                        (void) buf_addf(d->out, "body=%zu sum=%lx malformed\n", d->body_bytes, d->body_sum);
                        d->over = true;
                        return false;
                }
                for (size_t i = 0; i < len; i++)
                        d->body_sum = d->body_sum * 31 + (unsigned char) data[i];
                d->body_bytes += len;
                d->used += (size_t) r;
                if (!d->body.done)
                        return r > 0;
        }
        drive_body_end(d);
        return !d->over;
}

/* The first cut is after `first` bytes, then one every `step`. Each prefix lies in memory of exactly its size, for
 * ASan. */
static inline void drive(enum drive_kind kind, const char *p, size_t n, size_t first, size_t step, struct buf *out)
{
        struct drive *d = calloc(1, sizeof *d);
        size_t seen = first < n ? first : n;

        if (!d)
                abort();
        d->kind = kind;
        d->out = out;
        if (kind == DRIVE_CHUNKED) {
                d->head.framing = H1_CHUNKED;
                h1_body_init(&d->body, &d->head);
                d->in_body = true;
        }
        for (;;) {
                char *exact = malloc(seen ? seen : 1);

                if (!exact)
                        abort();
                if (seen)
                        memcpy(exact, p, seen);
                while (!d->over && drive_step(d, exact, seen))
                        ;
                free(exact);
                if (d->over || seen == n)
                        break;
                seen = n - seen < step ? n : seen + step;
        }
        if (!d->over && d->in_body)
                (void) buf_addf(out, "body=%zu sum=%lx more\n", d->body_bytes, d->body_sum);
        else if (!d->over)
                (void) buf_addf(out, "more at=%zu\n", d->used);
        free(d);
}
