/*
 * buf: a growable byte buffer that is given its maximum at birth.
 * The buffer owns its bytes. Growing past the maximum is refused with -ENOBUFS and leaves the content
 * as it was; -ENOMEM likewise. Nothing here suspends.
 */
#pragma once

#include "base/mem.h"
#include "base/str.h"

#include <stdarg.h>

struct buf {
        char *p;
        size_t len;
        size_t cap;
        size_t max;
};

#define BUF_MAX(limit) ((struct buf){ .max = (limit) })

void buf_done(struct buf *b); /* frees the bytes; the buffer may be used again */
#define _cleanup_buf_ _cleanup_(buf_done)

int buf_add(struct buf *b, const void *p, size_t n);
int buf_adds(struct buf *b, const char *s);
int buf_addstr(struct buf *b, struct str s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_addv(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Makes room for n more bytes and returns where to write them, or NULL; follow with buf_grew. */
char *buf_room(struct buf *b, size_t n);
void buf_grew(struct buf *b, size_t n);

void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */
static inline void buf_clear(struct buf *b)
{
        b->len = 0;
}

/* NUL terminated view (the NUL is not counted), or "" when memory or the maximum forbids it. */
const char *buf_cstr(struct buf *b);

/* Gives the bytes (NUL terminated) to the caller and empties the buffer; NULL on failure. Free with free(). */
char *buf_steal(struct buf *b);

static inline struct str buf_str(const struct buf *b)
{
        return str_n(b->p, b->len);
}
