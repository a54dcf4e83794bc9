#include "boxd/cache.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3147494478627350ull /* "PsbxDIG1" */

struct record { /* sorted by (dev, ino) in the file */
        uint64_t dev, ino, size;
        int64_t mtime, ctime;
        unsigned char digest[HASH_LEN];
        uint64_t check;
};

struct map {
        void *base;
        size_t bytes;
        const struct record *v;
        size_t n;
};

struct cache {
        char *path;
        struct map old;
        struct record *added;
        size_t n, cap;
};

static int64_t ns_of(const struct timespec *t)
{
        return (int64_t) t->tv_sec * 1000000000 + t->tv_nsec;
}

int64_t cache_now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_REALTIME_COARSE, &t);
        return ns_of(&t);
}

/* Against torn pages, not against people (the box's root owns the file anyway). */
static uint64_t check_of(const struct record *r)
{
        uint64_t words[offsetof(struct record, check) / 8], h = 0xcbf29ce484222325u;

        memcpy(words, r, sizeof(words));
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
                h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
                h ^= h >> 32;
        }
        return h | 1; /* a page of zeros is never valid */
}

static int order(const void *a, const void *b)
{
        const struct record *x = a, *y = b;

        if (x->dev != y->dev)
                return x->dev < y->dev ? -1 : 1;
        return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void map_close(struct map *m)
{
        if (m->base)
                munmap(m->base, m->bytes);
        memset(m, 0, sizeof(*m));
}

static void map_open(struct map *m, const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        memset(m, 0, sizeof(*m));
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 16 || st.st_size % 16 ||
            (size_t) st.st_size > 16 + (size_t) CACHE_ENTRIES_MAX * 2 * sizeof(struct record))
                return;
        /* Read, not mapped: somebody in the box could truncate the file while we look at a mapping (SIGBUS). */
        m->bytes = (size_t) st.st_size;
        m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (m->base == MAP_FAILED) {
                m->base = NULL;
                return;
        }
        ssize_t got = read(fd, m->base, m->bytes);
        if (got != st.st_size || *(uint64_t *) m->base != MAGIC) {
                map_close(m);
                return;
        }
        m->v = (const struct record *) (const void *) ((char *) m->base + 16);
        m->n = (m->bytes - 16) / sizeof(struct record);
}

struct cache *cache_open(const char *path)
{
        struct cache *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->path = xstrdup(path);
        map_open(&c->old, path);
        return c;
}

void cache_free(struct cache *c)
{
        if (!c)
                return;
        map_close(&c->old);
        free(c->added);
        free(c->path);
        free(c);
}

void cache_freep(struct cache **c)
{
        cache_free(*c);
}

bool cache_get(const struct cache *c, const struct stat *st, unsigned char digest[HASH_LEN])
{
        struct record key = { .dev = st->st_dev, .ino = st->st_ino };

        if (!c->old.n)
                return false;
        const struct record *r = bsearch(&key, c->old.v, c->old.n, sizeof(key), order);
        if (!r || r->size != (uint64_t) st->st_size || r->mtime != ns_of(&st->st_mtim) ||
            r->ctime != ns_of(&st->st_ctim) || r->check != check_of(r))
                return false;
        memcpy(digest, r->digest, HASH_LEN);
        return true;
}

void cache_put(struct cache *c, const struct stat *st, int64_t read_ns, const unsigned char digest[HASH_LEN])
{
        if (ns_of(&st->st_mtim) >= read_ns || c->n >= CACHE_ENTRIES_MAX)
                return;
        if (c->n == c->cap) {
                size_t cap = c->cap ? c->cap * 2 : 256;
                struct record *v = try_realloc(c->added, cap * sizeof(*v));

                if (!v)
                        return;
                c->added = v;
                c->cap = cap;
        }
        struct record *r = &c->added[c->n++];
        *r = (struct record){ .dev = st->st_dev,
                              .ino = st->st_ino,
                              .size = (uint64_t) st->st_size,
                              .mtime = ns_of(&st->st_mtim),
                              .ctime = ns_of(&st->st_ctim) };
        memcpy(r->digest, digest, HASH_LEN);
        r->check = check_of(r);
}

/* The newest of several additions for one file is the last: a stable order is needed, so the position decides. */
static size_t sort_added(struct cache *c)
{
        size_t n = 0;

        for (size_t i = 1; i < c->n; i++)
                if (order(&c->added[i - 1], &c->added[i]) >= 0) {
                        qsort(c->added, c->n, sizeof(*c->added), order); /* glibc's is a merge sort: stable */
                        break;
                }
        for (size_t i = 0; i < c->n; i++) {
                if (n && order(&c->added[n - 1], &c->added[i]) == 0)
                        n--;
                c->added[n++] = c->added[i];
        }
        return c->n = n;
}

static size_t merge(const struct cache *c, const struct map *now, struct record *out)
{
        size_t i = 0, k = 0, n = 0;
        /* A cache that grew too large starts again with what is in use now. */
        size_t old = now->n + c->n > CACHE_ENTRIES_MAX ? 0 : now->n;

        while (i < old || k < c->n) {
                int o = i == old ? 1 : k == c->n ? -1 : order(&now->v[i], &c->added[k]);

                out[n++] = o < 0 ? now->v[i] : c->added[k];
                i += o <= 0;
                k += o >= 0;
        }
        return n;
}

static int write_file(const char *path, const struct record *v, size_t n)
{
        _cleanup_free_ char *temp = xasprintf("%s.new", path);
        uint64_t header[2] = { MAGIC, n };
        _cleanup_close_ int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0)
                return -errno;
        int r = fd_write_all(fd, header, sizeof(header));
        if (r >= 0)
                r = fd_write_all(fd, v, n * sizeof(*v));
        if (r >= 0 && rename(temp, path) < 0)
                r = -errno;
        if (r < 0)
                unlink(temp);
        return r;
}

int cache_save(struct cache *c)
{
        struct map now;

        if (!c->n)
                return 0;
        _cleanup_free_ char *lock_name = xasprintf("%s.lock", c->path);
        _cleanup_free_ char *dir = xstrdup(c->path);
        *strrchr(dir, '/') = '\0';
        mkdir_all(dir, 0700);
        _cleanup_close_ int lock = open(lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (lock < 0 || flock(lock, LOCK_EX) < 0)
                return -errno;
        sort_added(c);
        map_open(&now, c->path);
        struct record *all = try_malloc((now.n + c->n) * sizeof(*all));
        int r = all ? write_file(c->path, all, merge(c, &now, all)) : -ENOMEM;
        free(all);
        map_close(&now);
        return r;
}
