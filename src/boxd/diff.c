#include "boxd/beneath.h"
#include "boxd/cache.h"
#include "boxd/conn.h"
#include "boxd/ops.h"
#include "boxd/put.h"
#include "boxd/walk.h"

#include "base/b64.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PIECE (128u << 10)
#define ENTRIES_MAX 2000000u
#define EXTRAS_MAX 2000
#define EXTRAS_BYTES (160u << 10)
#define SILENCE_SECONDS 300
#define LOOK_AGAIN_MS 2000

struct diff {
        int dest; /* -1: there is none */
        bool is_file;
        struct dircache dirs;
        struct cache *cache;
        char *piece;
        uint32_t *need;
        size_t n_need, cap_need, n;
        struct walk walk;
        int64_t walked_ms; /* when it was made */
        size_t n_extras;
        bool partial;
};

static int read_digest(struct diff *d, int fd, unsigned char out[HASH_LEN])
{
        struct hash_state h;

        hash_init(&h);
        for (;;) {
                ssize_t k = read(fd, d->piece, PIECE);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                if (k == 0)
                        break;
                hash_update(&h, d->piece, (size_t) k);
        }
        hash_final(&h, out);
        return 0;
}

/* The digest of a regular file, from the cache when nothing can have changed since. */
static bool digest_of(struct diff *d, int dir, const char *name, const struct stat *st, unsigned char out[HASH_LEN])
{
        struct stat before, after;

        if (d->cache && cache_get(d->cache, st, out))
                return true;
        int64_t now = cache_now();
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &before) < 0 || !S_ISREG(before.st_mode) || before.st_size != st->st_size)
                return false;
        if (read_digest(d, fd, out) < 0 || fstat(fd, &after) < 0)
                return false;
        if (before.st_size != after.st_size || before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
            before.st_mtim.tv_nsec != after.st_mtim.tv_nsec)
                return false; /* being written: its content is not what the plan has, or will not be */
        if (d->cache)
                cache_put(d->cache, &after, now, out);
        return true;
}

static bool same(struct diff *d, const struct guest_entry *e)
{
        char target[GUEST_PATH_MAX + 1], name[256];
        unsigned char digest[HASH_LEN];
        struct stat st;
        size_t dir_len;
        const char *base = path_split(e->path, e->path_len, &dir_len);
        size_t n = e->path_len - (size_t) (base - e->path);

        if (n > 255)
                return false;
        memcpy(name, base, n);
        name[n] = '\0';
        int dir = dircache_get(&d->dirs, e->path, dir_len);
        if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (uint64_t) st.st_size != e->size)
                return false;
        if (e->kind == GUEST_KIND_LINK) {
                ssize_t k = S_ISLNK(st.st_mode) ? readlinkat(dir, name, target, sizeof(target)) : -1;

                if (k < 0)
                        return false;
                hash_of(target, (size_t) k, digest);
        } else {
                if (!S_ISREG(st.st_mode) || !(st.st_mode & 0100) == (e->kind == GUEST_KIND_EXEC))
                        return false;
                if (!digest_of(d, dir, name, &st, digest))
                        return false;
        }
        return memcmp(digest, e->digest, HASH_LEN) == 0;
}

/* What the walk saw and the digest cache knows needs no system call. */
static bool same_by_walk(struct diff *d, const struct guest_entry *e, bool *known)
{
        struct walk_item *it = walk_find(&d->walk, e->path, e->path_len);
        unsigned char digest[HASH_LEN];
        struct stat st;

        *known = false;
        if (!it)
                return false;
        it->named = true;
        if (e->kind == GUEST_KIND_LINK || !S_ISREG(it->mode) || !d->cache)
                return false;
        *known = true;
        if ((uint64_t) it->size != e->size || !(it->mode & 0100) == (e->kind == GUEST_KIND_EXEC))
                return false;
        walk_stat(it, &st);
        *known = cache_get(d->cache, &st, digest);
        return *known && memcmp(digest, e->digest, HASH_LEN) == 0;
}

static bool is_same(struct diff *d, const struct guest_entry *e)
{
        bool known, r = same_by_walk(d, e, &known);

        return known ? r : same(d, e);
}

static int on_entry(struct diff *d, const struct guest_entry *e, struct err *err)
{
        if (d->n >= ENTRIES_MAX)
                return err_set(err, -E2BIG, "the plan has more than %u entries", ENTRIES_MAX);
        uint32_t index = (uint32_t) d->n++;
        if (d->dest >= 0 && is_same(d, e))
                return 0;
        if (d->n_need == d->cap_need) {
                size_t cap = d->cap_need ? d->cap_need * 2 : 1024;
                uint32_t *v = try_realloc(d->need, cap * sizeof(*v));

                if (!v)
                        return err_set(err, -ENOMEM, "no memory for the plan");
                d->need = v;
                d->cap_need = cap;
        }
        d->need[d->n_need++] = index; /* x86-64 and arm64 are little-endian, as the wire is */
        return 0;
}

/* What was seen is as old as the look; a plan that took long to come gets a new one. */
static void look(struct diff *d)
{
        walk_done(&d->walk);
        d->walked_ms = clock_ms();
        if (d->dest >= 0)
                walk_run(&d->walk, d->dest);
}

static int read_plan(struct diff *d, struct conn *c, struct err *e)
{
        _cleanup_free_ unsigned char *in = xmalloc(PIECE);
        size_t have = 0;

        for (;;) {
                long n = conn_data(c, in + have, PIECE - have), used;
                size_t at = 0;
                struct guest_entry entry;

                if (n < 0)
                        return err_sys(e, (int) n, "receiving the plan");
                if (n == 0)
                        break;
                if (d->n == 0 && clock_ms() - d->walked_ms > LOOK_AGAIN_MS)
                        look(d);
                have += (size_t) n;
                while ((used = guest_entry_decode(in + at, have - at, &entry)) > 0) {
                        int r = on_entry(d, &entry, e);

                        if (r < 0)
                                return r;
                        at += (size_t) used;
                }
                if (used < 0)
                        return err_set(e, (int) used, "entry %zu of the plan is malformed", d->n);
                memmove(in, in + at, have - at);
                have -= at;
        }
        return have ? err_set(e, -EPROTO, "the plan is cut off") : 0;
}

static void write_extras(struct diff *d, struct jw *w, const struct buf *b)
{
        d->partial = d->walk.partial;
        for (size_t i = 0; i < d->walk.n; i++) {
                const struct walk_item *it = &d->walk.items[i];

                if (it->named)
                        continue;
                if (d->n_extras++ < EXTRAS_MAX && b->len < EXTRAS_BYTES)
                        jw_b64(w, d->walk.paths.p + it->path, it->path_len);
                else
                        d->partial = true;
        }
}

static void answer(struct diff *d, int fd)
{
        struct reply r;

        struct buf extras = BUF_MAX(EXTRAS_BYTES + (GUEST_PATH_MAX * 2));
        struct jw w;

        jw_init(&w, &extras);
        jw_arr(&w);
        write_extras(d, &w, &extras);
        jw_end_all(&w);
        if (conn_send_bytes(fd, GUEST_DATA, d->need, d->n_need * sizeof(*d->need)) < 0)
                return;
        conn_send(fd, GUEST_DATA, GUEST_END, NULL, 0);
        reply_init(&r);
        jw_kbool(&r.w, "exists", d->dest >= 0 || d->is_file);
        jw_kbool(&r.w, "isFile", d->is_file);
        jw_kint(&r.w, "entries", (int64_t) d->n);
        jw_kint(&r.w, "need", (int64_t) d->n_need);
        jw_kint(&r.w, "extraCount", (int64_t) d->n_extras);
        jw_key(&r.w, "extras");
        jw_raw(&r.w, buf_str(&extras));
        jw_kbool(&r.w, "extrasPartial", d->partial);
        reply_send(&r, fd);
}

/* dest may be missing or a file: that is an answer, not an error. */
static int open_dest(struct diff *d, const char *dest, struct err *e)
{
        struct stat st;

        d->dest = dest_open(dest, false, e);
        if (d->dest >= 0 || d->dest == -ENOENT)
                return 0;
        if (d->dest != -ENOTDIR && d->dest != -ELOOP)
                return d->dest;
        _cleanup_close_ int work = root_open("work", e);
        _cleanup_close_ int fd = work < 0 ? -1 : beneath_open(work, dest, O_PATH | O_NOFOLLOW, 0, BENEATH_FOLLOW);
        d->is_file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
        return d->is_file || fd == -ENOTDIR || fd == -ENOENT ? 0 : d->dest;
}

void op_diff(int fd, struct json *head)
{
        static struct diff diff;
        struct diff *d = &diff;
        struct conn c = { .fd = fd, .want = GUEST_DATA };
        struct timeval silence = { .tv_sec = SILENCE_SECONDS };
        struct err e = { 0 };

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
        int r = open_dest(d, json_get_str(head, "dest", ""), &e);
        if (r >= 0) {
                dircache_init(&d->dirs, d->dest);
                d->piece = xmalloc(PIECE);
                d->cache = d->dest >= 0 ? cache_open(CACHE_FILE) : NULL;
                /* Before the plan is read: its sender is still looking at its own tree. */
                look(d);
                r = read_plan(d, &c, &e);
        }
        if (r < 0) {
                conn_error(fd, &e);
                if (r != -ECONNRESET)
                        conn_drain(&c);
                return;
        }
        answer(d, fd);
        if (d->cache)
                cache_save(d->cache);
}
