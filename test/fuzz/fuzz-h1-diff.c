/*
 * The codec beside http_parser 2.9.4, which Node.js used for years: whenever ours accepts a request head, the other
 * must have read the same method, target, headers, framing and body bytes. Where they differ, ours has to be the one
 * that refuses. The input is one request.
 */
#include "fuzz.h"
#include "http/h1.h"

#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>

struct theirs {
        struct buf url, body;
        struct buf names[H1_HEADERS_MAX + 1], values[H1_HEADERS_MAX + 1];
        size_t count; /* of headers */
        bool in_value, head_done, in_trailers, done, keep, upgrade;
        unsigned minor, method;
        unsigned long flags;
        uint64_t length;
};

static void fail(const char *what)
{
        (void) fprintf(stderr, "differs: %s\n", what);
        abort();
}

static struct theirs *of(http_parser *p)
{
        return p->data;
}

static void add(struct buf *b, const char *at, size_t n)
{
        b->max = (size_t) 1 << 24;
        if (buf_add(b, at, n) < 0)
                abort();
}

static int on_url(http_parser *p, const char *at, size_t n)
{
        add(&of(p)->url, at, n);
        return 0;
}

/* A name may come in pieces; it is a new one when a value came before. An empty value gives no callback of its own. */
static int on_name(http_parser *p, const char *at, size_t n)
{
        struct theirs *t = of(p);

        if (t->head_done) /* a trailer */
                return 0;
        if (t->in_value || !t->count) {
                if (t->count > H1_HEADERS_MAX)
                        return 1;
                t->count++;
        }
        t->in_value = false;
        add(&t->names[t->count - 1], at, n);
        return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
        struct theirs *t = of(p);

        if (t->head_done)
                return 0;
        t->in_value = true;
        add(&t->values[t->count - 1], at, n);
        return 0;
}

static int on_head(http_parser *p)
{
        struct theirs *t = of(p);

        t->head_done = true;
        t->minor = p->http_minor;
        t->method = p->method;
        t->flags = p->flags;
        t->length = p->content_length;
        t->keep = http_should_keep_alive(p);
        t->upgrade = p->upgrade;
        return 0;
}

static int on_body(http_parser *p, const char *at, size_t n)
{
        add(&of(p)->body, at, n);
        return 0;
}

static int on_chunk(http_parser *p)
{
        of(p)->in_trailers = p->content_length == 0;
        return 0;
}

static int on_done(http_parser *p)
{
        of(p)->done = true;
        http_parser_pause(p, 1);
        return 0;
}

static void compare_head(const struct h1_head *h, const struct theirs *t)
{
        if (!str_eq(h->method, str_of(http_method_str((enum http_method) t->method))))
                fail("method");
        if (!str_eq(h->target, buf_str(&t->url)))
                fail("target");
        if (h->minor != t->minor)
                fail("version");
        if (h->header_count != t->count)
                fail("number of headers");
        for (size_t i = 0; i < h->header_count; i++)
                if (!str_eq(h->headers[i].name, buf_str(&t->names[i])) ||
                    !str_eq(h->headers[i].value, str_trim(buf_str(&t->values[i]), " \t")))
                        fail("a header");
        bool chunked = t->flags & F_CHUNKED;
        bool counted = t->flags & F_CONTENTLENGTH;
        if (chunked != (h->framing == H1_CHUNKED) || counted != (h->framing == H1_LENGTH))
                fail("framing");
        if (counted && h->length != t->length)
                fail("length");
        /* A tunnel has no keep-alive; and ours lets "close" win over "keep-alive", as RFC 9112 §9.3 orders them. */
        if (!t->upgrade && h->keep_alive && !t->keep)
                fail("keep-alive");
}

static void compare_body(const struct h1_head *h, const char *p, size_t n, size_t used, struct theirs *t, size_t parsed)
{
        _cleanup_buf_ struct buf body = BUF_MAX((size_t) 1 << 24);
        struct h1_body b;

        h1_body_init(&b, h);
        while (used < n && !b.done) {
                const char *data;
                size_t len;
                long r = h1_body_feed(&b, p + used, n - used, &data, &len);

                if (r < 0)
                        return; /* refused: all right */
                if (buf_add(&body, data, len) < 0)
                        abort();
                used += (size_t) r;
        }
        if (b.done != t->done)
                fail("the end of the body");
        if (!str_eq(buf_str(&body), buf_str(&t->body)))
                fail("body bytes");
        if (b.done && used != parsed)
                fail("where the message ends");
}

/* A mistake of theirs: "Transfer-Encodingx" counts as a transfer coding (uses_transfer_encoding is set before the name
 * ends). */
static bool theirs_misreads(const struct h1_head *h)
{
        struct str te = STR("Transfer-Encoding");

        for (size_t i = 0; i < h->header_count; i++)
                if (h->headers[i].name.n > te.n && str_ieq(str_n(h->headers[i].name.p, te.n), te))
                        return true;
        return false;
}

static void theirs_done(struct theirs *t)
{
        buf_done(&t->url);
        buf_done(&t->body);
        for (size_t i = 0; i <= H1_HEADERS_MAX; i++) {
                buf_done(&t->names[i]);
                buf_done(&t->values[i]);
        }
        free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const http_parser_settings settings = {
                .on_url = on_url,
                .on_header_field = on_name,
                .on_header_value = on_value,
                .on_headers_complete = on_head,
                .on_body = on_body,
                .on_chunk_header = on_chunk,
                .on_message_complete = on_done,
        };
        const char *p = (const char *) data;
        struct h1_head *h = malloc(sizeof *h);
        struct theirs *t = calloc(1, sizeof *t);
        struct h1_error err;
        size_t scanned = 0;
        http_parser hp;

        if (!h || !t)
                abort();
        long used = h1_request_parse(p, size, &scanned, h, &err);
        if (used > 0) {
                http_parser_init(&hp, HTTP_REQUEST);
                hp.data = t;
                size_t parsed = http_parser_execute(&hp, &settings, p, size);
                enum http_errno error = HTTP_PARSER_ERRNO(&hp);

                /* It knows a closed list of methods. */
                if (error != HPE_INVALID_METHOD && !theirs_misreads(h)) {
                        if (!t->head_done) {
                                (void) fprintf(stderr, "%s\n", http_errno_description(error));
                                fail("the other refuses the head");
                        }
                        compare_head(h, t);
                        /* It reads Content-Length in a trailer as if it meant something; ours drops trailers unread. */
                        bool trailer = t->in_trailers && error != HPE_OK && error != HPE_PAUSED;
                        if (!t->upgrade && !trailer)
                                compare_body(h, p, size, (size_t) used, t, parsed);
                }
        }
        theirs_done(t);
        free(h);
        return 0;
}
