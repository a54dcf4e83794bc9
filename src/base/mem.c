#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned fail_after;

void freep(void *p)
{
        free(*(void **) p);
}

void closep(const int *fd)
{
        if (*fd >= 0) {
                int saved = errno;

                (void) close(*fd);
                errno = saved;
        }
}

static _Noreturn void out_of_memory(void)
{
        static const char text[] = "out of memory\n";

        (void) !write(STDERR_FILENO, text, sizeof text - 1);
        abort();
}

void *xmalloc(size_t n)
{
        void *p = malloc(n ? n : 1);

        if (!p)
                out_of_memory();
        return p;
}

void *xcalloc(size_t count, size_t size)
{
        void *p = calloc(count ? count : 1, size ? size : 1);

        if (!p)
                out_of_memory();
        return p;
}

void *xrealloc(void *p, size_t n)
{
        void *q = realloc(p, n ? n : 1);

        if (!q)
                out_of_memory();
        return q;
}

void *xmemdup(const void *p, size_t n)
{
        void *q = xmalloc(n);

        if (n)
                memcpy(q, p, n);
        return q;
}

char *xstrndup(const char *s, size_t n)
{
        char *q = xmalloc(n + 1);

        memcpy(q, s, n);
        q[n] = '\0';
        return q;
}

char *xstrdup(const char *s)
{
        return s ? xstrndup(s, strlen(s)) : NULL;
}

char *xasprintf(const char *fmt, ...)
{
        char *s = NULL;
        va_list ap;

        va_start(ap, fmt);
        int n = vasprintf(&s, fmt, ap);
        va_end(ap);
        if (n < 0)
                out_of_memory();
        return s;
}

static bool injected_failure(void)
{
        return fail_after && --fail_after == 0;
}

void *try_malloc(size_t n)
{
        return injected_failure() ? NULL : malloc(n ? n : 1);
}

void *try_realloc(void *p, size_t n)
{
        return injected_failure() ? NULL : realloc(p, n ? n : 1);
}

void mem_fail_after(unsigned n)
{
        fail_after = n;
}
