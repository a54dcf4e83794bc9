#include "base/ids.h"
#include "base/b64.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>

static pthread_once_t ready = PTHREAD_ONCE_INIT;

static void start_sodium(void)
{
        if (sodium_init() < 0)
                abort();
}

void random_bytes(void *p, size_t n)
{
        (void) pthread_once(&ready, start_sodium);
        randombytes_buf(p, n);
}

void random_id(char *out, size_t n)
{
        static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        unsigned char pool[64];
        size_t left = 0;

        for (size_t i = 0; i < n;) {
                if (left == 0) {
                        random_bytes(pool, sizeof pool);
                        left = sizeof pool;
                }
                unsigned char v = pool[--left];
                /* 252 is the last multiple of 36 in a byte; taking more would favour some letters. */
                if (v < 252)
                        out[i++] = set[v % 36];
        }
        sodium_memzero(pool, sizeof pool);
        out[n] = '\0';
}

char *random_token(size_t n)
{
        struct buf b = BUF_MAX(SIZE_MAX / 2);
        unsigned char *raw = xmalloc(n);

        random_bytes(raw, n);
        int r = b64url_encode(&b, raw, n);
        char *token = r < 0 ? NULL : buf_steal(&b);
        sodium_memzero(raw, n);
        free(raw);
        if (!token)
                abort();
        return token;
}
