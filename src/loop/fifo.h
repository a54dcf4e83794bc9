/* fifo: bytes in, bytes out; memory only while there are any. Internal to loop/. */
#pragma once

#include "base/mem.h"

struct fifo {
        char *p;
        size_t off, len, cap;
};

int fifo_add(struct fifo *f, const void *p, size_t n);     /* at the end; -ENOMEM */
int fifo_prepend(struct fifo *f, const void *p, size_t n); /* at the front; -ENOMEM */
char *fifo_room(struct fifo *f, size_t n);                 /* n bytes behind the end, or NULL; then f->len += used */
size_t fifo_take(struct fifo *f, void *p, size_t n);
void fifo_drop(struct fifo *f, size_t n);
void fifo_done(struct fifo *f);
