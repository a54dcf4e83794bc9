#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void buf_done(struct buf *b)
{
        free(b->p);
        b->p = NULL;
        b->len = b->cap = 0;
}

static int grow(struct buf *b, size_t n)
{
        if (n > b->max || b->len > b->max - n)
                return -ENOBUFS;
        if (b->len + n <= b->cap)
                return 0;
        size_t want = max_size(b->len + n, b->cap < 64 ? 64 : b->cap * 2);
        /* One byte over the maximum stays possible for the NUL of buf_cstr. */
        if (b->max < SIZE_MAX)
                want = min_size(want, b->max + 1);
        want = max_size(want, b->len + n);
        char *p = try_realloc(b->p, want);
        if (!p)
                return -ENOMEM;
        b->p = p;
        b->cap = want;
        return 0;
}

char *buf_room(struct buf *b, size_t n)
{
        return grow(b, n) < 0 ? NULL : b->p + b->len;
}

void buf_grew(struct buf *b, size_t n)
{
        b->len += n;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
        int r = grow(b, n);

        if (r < 0)
                return r;
        if (n)
                memcpy(b->p + b->len, p, n);
        b->len += n;
        return 0;
}

int buf_adds(struct buf *b, const char *s)
{
        return buf_add(b, s, strlen(s));
}

int buf_addstr(struct buf *b, struct str s)
{
        return buf_add(b, s.p, s.n);
}

int buf_addc(struct buf *b, char c)
{
        return buf_add(b, &c, 1);
}

int buf_addv(struct buf *b, const char *fmt, va_list ap)
{
        char small[512];
        va_list again;

        va_copy(again, ap);
        int n = vsnprintf(small, sizeof small, fmt, ap);
        int r = -EINVAL;
        if (n >= 0 && (size_t) n < sizeof small) {
                r = buf_add(b, small, (size_t) n);
        } else if (n >= 0) {
                _cleanup_free_ char *big = try_malloc((size_t) n + 1);

                r = -ENOMEM;
                if (big) {
                        (void) vsnprintf(big, (size_t) n + 1, fmt, again);
                        r = buf_add(b, big, (size_t) n);
                }
        }
        va_end(again);
        return r;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        int r = buf_addv(b, fmt, ap);
        va_end(ap);
        return r;
}

void buf_consume(struct buf *b, size_t n)
{
        n = min_size(n, b->len);
        b->len -= n;
        if (b->len)
                memmove(b->p, b->p + n, b->len);
}

static int terminate(struct buf *b)
{
        if (b->len == b->cap) {
                char *p = try_realloc(b->p, b->len + 1);

                if (!p)
                        return -ENOMEM;
                b->p = p;
                b->cap = b->len + 1;
        }
        b->p[b->len] = '\0';
        return 0;
}

const char *buf_cstr(struct buf *b)
{
        return terminate(b) < 0 ? "" : b->p;
}

char *buf_steal(struct buf *b)
{
        if (terminate(b) < 0)
                return NULL;
        char *p = steal_ptr(b->p);
        b->len = b->cap = 0;
        return p;
}
