#include "sync/cache.h"
#include "base/b64.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "PSBXDIG1"
#define NS INT64_C(1000000000)
/* Kernels stamp files with a clock that ticks every 1 to 10 ms; file systems without nanoseconds tick every 1 or 2 s.
 */
#define TICK_NS (NS / 10)
#define COARSE_NS (2 * NS)

struct header {
        char magic[8];
        uint64_t count, check;
};

struct cache {
        struct buf file;
        const struct cache_record *v; /* into file */
        size_t n;
        uint32_t *slots; /* index + 1, 0 is free */
        size_t mask;
};

static int64_t ns_of(struct timespec t)
{
        return (int64_t) t.tv_sec * NS + t.tv_nsec;
}

void cache_key_of(const struct stat *st, struct cache_key *ret)
{
        *ret = (struct cache_key){
                .dev = (uint64_t) st->st_dev,
                .ino = (uint64_t) st->st_ino,
                .size = (uint64_t) st->st_size,
#ifdef __APPLE__
                .mtime_ns = ns_of(st->st_mtimespec),
                .ctime_ns = ns_of(st->st_ctimespec),
#else
                .mtime_ns = ns_of(st->st_mtim),
                .ctime_ns = ns_of(st->st_ctim),
#endif
        };
}

int64_t cache_now_ns(void)
{
        struct timespec t;

        (void) clock_gettime(CLOCK_REALTIME, &t);
        return ns_of(t);
}

bool cache_racy(const struct cache_key *k, int64_t hashed_ns)
{
        bool coarse = k->mtime_ns % NS == 0 && k->ctime_ns % NS == 0;
        int64_t newest = k->mtime_ns > k->ctime_ns ? k->mtime_ns : k->ctime_ns;

        return newest > hashed_ns - (coarse ? COARSE_NS : TICK_NS);
}

char *cache_dir(void)
{
        const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

        if (xdg && xdg[0] == '/')
                return xasprintf("%s/parallelsandbox/digests", xdg);
        if (home && home[0] == '/')
                return xasprintf("%s/.cache/parallelsandbox/digests", home);
        return NULL;
}

static char *file_of(const char *dir, const char *root)
{
        unsigned char digest[HASH_LEN];
        char name[33];

        hash_of(root, strlen(root), digest);
        hex_encode(digest, 16, name);
        return xasprintf("%s/%s", dir, name);
}

/* Told a torn or overwritten file from a whole one; nobody is kept out by it: who can write it owns the tree too. */
static uint64_t checksum(const void *p, size_t n)
{
        const unsigned char *b = p;
        uint64_t h = 0xcbf29ce484222325u, w;

        for (; n >= sizeof w; b += sizeof w, n -= sizeof w) {
                memcpy(&w, b, sizeof w);
                h = (h ^ w) * 0x9e3779b97f4a7c15u;
                h ^= h >> 29;
        }
        return h;
}

static size_t slot_of(const struct cache *c, const struct cache_key *k)
{
        uint64_t h = (k->ino ^ k->dev << 40) * 0x9e3779b97f4a7c15u;

        return (size_t) (h >> 20) & c->mask;
}

static void index_records(struct cache *c)
{
        size_t size = 16;

        while (size < c->n * 2)
                size *= 2;
        c->slots = xcalloc(size, sizeof *c->slots);
        c->mask = size - 1;
        for (size_t i = 0; i < c->n; i++) {
                size_t s = slot_of(c, &c->v[i].key);

                while (c->slots[s])
                        s = (s + 1) & c->mask;
                c->slots[s] = (uint32_t) i + 1;
        }
}

static bool load(struct cache *c, const char *path)
{
        struct header h;

        if (file_read(AT_FDCWD, path, &c->file) < 0 || c->file.len < sizeof h)
                return false;
        memcpy(&h, c->file.p, sizeof h);
        size_t bytes = c->file.len - sizeof h;
        if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 || h.count > CACHE_RECORDS_MAX ||
            h.count * sizeof *c->v != bytes || checksum(c->file.p + sizeof h, bytes) != h.check)
                return false;
        c->v = (const void *) (c->file.p + sizeof h);
        c->n = (size_t) h.count;
        return true;
}

struct cache *cache_open(const char *dir, const char *root)
{
        struct cache *c = xcalloc(1, sizeof *c);
        _cleanup_free_ char *path = dir ? file_of(dir, root) : NULL;

        c->file = BUF_MAX(sizeof(struct header) + CACHE_RECORDS_MAX * sizeof(struct cache_record));
        if (!path || !load(c, path)) {
                buf_done(&c->file);
                return c;
        }
        index_records(c);
        return c;
}

void cache_free(struct cache *c)
{
        if (!c)
                return;
        buf_done(&c->file);
        free(c->slots);
        free(c);
}

void cache_freep(struct cache **c)
{
        cache_free(*c);
}

size_t cache_len(const struct cache *c)
{
        return c->n;
}

const unsigned char *cache_find(const struct cache *c, const struct cache_key *k, size_t *hint)
{
        if (c->n == 0)
                return NULL;
        if (*hint < c->n && memcmp(&c->v[*hint].key, k, sizeof *k) == 0)
                return c->v[(*hint)++].digest;
        for (size_t s = slot_of(c, k); c->slots[s]; s = (s + 1) & c->mask) {
                const struct cache_record *r = &c->v[c->slots[s] - 1];

                if (memcmp(&r->key, k, sizeof *k) == 0) {
                        *hint = c->slots[s];
                        return r->digest;
                }
        }
        return NULL;
}

/* Trees come and go; the oldest files make room, so the folder stays bounded without a clean-up of its own. */
static void drop_oldest(const char *dir)
{
        char oldest[256] = "";
        int64_t oldest_time = INT64_MAX;
        unsigned count = 0;
        DIR *d = opendir(dir);

        if (!d)
                return;
        for (struct dirent *e; (e = readdir(d));) {
                struct stat st;

                if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                count++;
                if ((int64_t) st.st_mtime < oldest_time) {
                        oldest_time = (int64_t) st.st_mtime;
                        (void) snprintf(oldest, sizeof oldest, "%s", e->d_name);
                }
        }
        if (count > CACHE_FILES_MAX)
                (void) unlinkat(dirfd(d), oldest, 0);
        (void) closedir(d);
}

/* Without fsync: after a crash the checksum tells, and the price is one slower sync. */
int cache_save(const char *dir, const char *root, const struct cache_record *v, size_t n)
{
        _cleanup_free_ char *path = file_of(dir, root), *temp = xasprintf("%s.%ld", path, (long) getpid());
        struct header h = { .magic = MAGIC, .count = n, .check = checksum(v, n * sizeof *v) };

        if (n > CACHE_RECORDS_MAX)
                return -EFBIG;
        int r = mkdir_all(dir, 0700);
        if (r < 0)
                return r;
        _cleanup_close_ int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        r = fd_write_all(fd, &h, sizeof h);
        if (r == 0)
                r = fd_write_all(fd, v, n * sizeof *v);
        if (r == 0 && rename(temp, path) < 0)
                r = -errno;
        if (r < 0)
                (void) unlink(temp);
        drop_oldest(dir);
        return r;
}
