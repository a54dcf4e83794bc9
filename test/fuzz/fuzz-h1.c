/*
 * The codec: what comes out must not depend on how the bytes were cut, and an accepted request head must survive being
 * written and read again. First byte: what is decoded; second byte: how it is cut; then the bytes.
 */
#include "fuzz.h"
#include "h1_drive.h"

#include <stdlib.h>

#define OUT_MAX ((size_t) 4 << 20)
#define BYTES_MAX 1500 /* beyond, one byte at a time takes too long */

static void same(enum drive_kind kind, const char *p, size_t n, size_t first, size_t step, struct buf *whole)
{
        _cleanup_buf_ struct buf cut = BUF_MAX(OUT_MAX);

        drive(kind, p, n, first, step, &cut);
        if (!str_eq(buf_str(&cut), buf_str(whole))) {
                (void) fprintf(stderr, "whole:\n%s\ncut at %zu, then every %zu:\n%s\n", buf_cstr(whole), first, step,
                               buf_cstr(&cut));
                abort();
        }
}

/* Also a second opinion on the writer: nothing it lets through may be read as something else. */
static void write_again(const char *p, size_t n)
{
        struct h1_head *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        _cleanup_buf_ struct buf text = BUF_MAX(H1_HEAD_MAX * 2);
        char method[64], target[H1_LINE_MAX + 1], name[H1_LINE_MAX + 1];
        struct h1_error err = { 0 };
        size_t scanned = 0;

        if (!a || !b)
                abort();
        long r = h1_request_parse(p, n, &scanned, a, &err);
        if (r > 0 && a->minor == 1) {
                (void) snprintf(method, sizeof method, "%.*s", (int) a->method.n, a->method.p);
                (void) snprintf(target, sizeof target, "%.*s", (int) a->target.n, a->target.p);
                bool ok = h1_write_request_line(&text, method, target) == 0;
                for (size_t i = 0; i < a->header_count; i++) {
                        (void) snprintf(name, sizeof name, "%.*s", (int) a->headers[i].name.n, a->headers[i].name.p);
                        ok = ok && h1_write_header(&text, name, a->headers[i].value) == 0;
                }
                ok = ok && h1_write_end(&text) == 0;
                scanned = 0;
                /* ": " for ":" makes a line longer: at the very limit it may be refused for that alone. */
                long again = ok ? h1_request_parse(text.p, text.len, &scanned, b, &err) : -1;
                bool longer = again < 0 && ok && (err.status == 431 || err.status == 414);
                if (!longer && (again != (long) text.len || b->framing != a->framing || b->length != a->length ||
                                b->header_count != a->header_count || !str_eq(a->target, b->target) ||
                                b->keep_alive != a->keep_alive || b->upgrade != a->upgrade))
                        abort();
        }
        free(a);
        free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_buf_ struct buf whole = BUF_MAX(OUT_MAX);

        if (size < 2)
                return 0;
        enum drive_kind kind = (enum drive_kind)(data[0] & 3);
        size_t cut = data[1], n = size - 2;
        const char *p = (const char *) data + 2;

        drive(kind, p, n, n, 1, &whole);
        same(kind, p, n, cut + 1, cut / 8 + 1, &whole);
        same(kind, p, n, n / 256 * cut + 1, n, &whole);
        if (n <= BYTES_MAX)
                same(kind, p, n, 1, 1, &whole);
        if (kind == DRIVE_REQUEST)
                write_again(p, n);
        return 0;
}
