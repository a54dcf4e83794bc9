/*
 * mem: cleanup attributes and checked allocation.
 *
 * x* functions end the process when memory runs out: they are for small, bounded requests. Sizes a
 * stranger chooses go through try_* (which return NULL) or a struct buf with a maximum.
 * Nothing here suspends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

void freep(void *p);        /* p is the address of a pointer; frees what it points to */
void closep(const int *fd); /* closes a descriptor >= 0, keeps errno */

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)

/* Moves a pointer or descriptor out of a cleanup variable. */
#define steal_ptr(p)                       \
        ({                                 \
                __auto_type _stolen = (p); \
                (p) = NULL;                \
                _stolen;                   \
        })

static inline int steal_fd(int *fd)
{
        int r = *fd;

        *fd = -1;
        return r;
}

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *p, size_t n);
void *xmemdup(const void *p, size_t n);
char *xstrdup(const char *s); /* NULL gives NULL */
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void *try_malloc(size_t n);
void *try_realloc(void *p, size_t n);

/* Fault injection for torture runs: the n-th try_* from now fails (0 switches it off). */
void mem_fail_after(unsigned n);

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

static inline size_t min_size(size_t a, size_t b)
{
        return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
        return a > b ? a : b;
}
