/*
 * The proxy's heads: whatever a client or a service says and the codec takes, what is written must be read as the same
 * message with the same framing, without what must not pass. First byte: request or answer; then the bytes.
 */
#include "fuzz.h"
#include "http/proxy_head.h"

#include <stdio.h>
#include <stdlib.h>

static int inward(void *arg, struct str origin, struct buf *out)
{
        (void) arg;
        if (str_has(origin, STR("secret")))
                return -1;
        return str_has(origin, STR("outside")) ? (buf_adds(out, "http://inside:1"), 1) : 0;
}

static const char *const private_cookies[] = { "psbx_", NULL };
static const char *const more[] = { "Referrer-Policy", "same-origin", NULL };
static const struct proxy_policy policy = {
        .host = "inside:1",
        .forwarded_host = "inside:1",
        .forwarded_proto = "http",
        .inward = inward,
        .outward = inward,
        .private_cookies = private_cookies,
        .more = more,
};

static void never(bool cond)
{
        if (cond)
                abort();
}

/* A line may have grown beyond what is read: then it is refused as a whole, by its length. */
static bool too_long(long r, const struct h1_error *e)
{
        return r < 0 && (e->status == 431 || e->status == 414);
}

static void request(const char *p, size_t n, struct h1_head *a, struct h1_head *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX((size_t) 1 << 20);
        struct h1_error err = { 0 };
        size_t scanned = 0;

        if (h1_request_parse(p, n, &scanned, a, &err) <= 0 || a->target.p[0] != '/')
                return;
        never(proxy_request_head(&out, a, a->target, "::1", &policy, a->expect_continue, a->upgrade) < 0);
        scanned = 0;
        long r = h1_request_parse(out.p, out.len, &scanned, b, &err);
        if (too_long(r, &err))
                return;
        never(r != (long) out.len || b->minor != 1 || b->framing != a->framing || b->length != a->length);
        never(!str_eq(a->method, b->method) || !str_eq(a->target, b->target) || !str_eq(b->host, STR("inside:1")));
        never(b->upgrade != a->upgrade || b->expect_continue != a->expect_continue);
        for (size_t i = 0; i < b->header_count; i++) {
                const struct h1_header *x = &b->headers[i];

                never(str_ieq(x->name, STR("forwarded")) || str_ieq(x->name, STR("te")));
                if (str_ieq(x->name, STR("cookie")))
                        never(str_starts(x->value, STR("psbx_")) || str_has(x->value, STR("; psbx_")));
                if (str_ieq(x->name, STR("origin")))
                        never(str_starts(x->value, STR("http://secret")));
        }
}

static void answer(const char *p, size_t n, struct h1_head *a, struct h1_head *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX((size_t) 1 << 20);
        struct h1_error err = { 0 };
        size_t scanned = 0;

        if (h1_response_parse(p, n, &scanned, STR("GET"), a, &err) <= 0)
                return;
        never(buf_adds(&out, "HTTP/1.1 200 OK\r\n") < 0 || proxy_response_headers(&out, a, &policy) < 0 ||
              buf_adds(&out, "\r\n") < 0);
        scanned = 0;
        long r = h1_response_parse(out.p, out.len, &scanned, STR("GET"), b, &err);
        if (too_long(r, &err))
                return;
        /* No word about framing is left: that is the server's. */
        never(r != (long) out.len || b->framing != H1_UNTIL_CLOSE);
        for (size_t i = 0; i < b->header_count; i++) {
                const struct h1_header *x = &b->headers[i];

                never(str_ieq(x->name, STR("connection")) || str_ieq(x->name, STR("strict-transport-security")));
                if (str_ieq(x->name, STR("set-cookie")))
                        never(str_starts(x->value, STR("psbx_")));
                if (str_ieq(x->name, STR("referrer-policy")))
                        never(!str_eq(x->value, STR("same-origin")));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 1)
                return 0;
        struct h1_head *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);

        never(!a || !b);
        if (data[0] & 1)
                answer((const char *) data + 1, size - 1, a, b);
        else
                request((const char *) data + 1, size - 1, a, b);
        free(a);
        free(b);
        return 0;
}
