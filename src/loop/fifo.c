#include "loop/fifo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

char *fifo_room(struct fifo *f, size_t n)
{
        if (f->off + f->len + n > f->cap && f->off > 0) {
                memmove(f->p, f->p + f->off, f->len);
                f->off = 0;
        }
        if (f->len + n > f->cap) {
                size_t cap = max_size(f->len + n, min_size(f->cap * 2, f->cap + ((size_t) 64 << 10)));
                char *p = try_realloc(f->p, cap);

                if (!p)
                        return NULL;
                f->p = p;
                f->cap = cap;
        }
        return f->p + f->off + f->len;
}

int fifo_add(struct fifo *f, const void *p, size_t n)
{
        if (n == 0)
                return 0;
        char *room = fifo_room(f, n);

        if (!room)
                return -ENOMEM;
        memcpy(room, p, n);
        f->len += n;
        return 0;
}

int fifo_prepend(struct fifo *f, const void *p, size_t n)
{
        if (n == 0)
                return 0;
        if (f->off < n) {
                if (!fifo_room(f, n))
                        return -ENOMEM;
                memmove(f->p + n, f->p + f->off, f->len);
                f->off = n;
        }
        f->off -= n;
        memcpy(f->p + f->off, p, n);
        f->len += n;
        return 0;
}

void fifo_done(struct fifo *f)
{
        free(f->p);
        *f = (struct fifo){ 0 };
}

void fifo_drop(struct fifo *f, size_t n)
{
        f->off += n;
        f->len -= n;
        if (f->len == 0)
                fifo_done(f);
}

size_t fifo_take(struct fifo *f, void *p, size_t n)
{
        n = min_size(n, f->len);
        memcpy(p, f->p + f->off, n);
        fifo_drop(f, n);
        return n;
}
