#include "boxd/beneath.h"
#include "boxd/cache.h"
#include "boxd/conn.h"
#include "boxd/ops.h"
#include "boxd/put.h"

#include "base/b64.h"

#include <dirent.h>
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
#define WALKED_MAX 300000 /* names looked at for extras */
#define DEPTH_MAX 256
#define SILENCE_SECONDS 300

struct diff {
        int dest; /* -1: there is none */
        bool is_file;
        struct dircache dirs;
        struct cache *cache;
        char *piece;
        uint32_t *need;
        size_t n_need, cap_need;
        uint64_t *seen; /* hashes of the plan's paths, open addressing, 0 free */
        size_t seen_mask, n;
        /* the walk for extras */
        struct buf extras;
        struct jw w;
        size_t n_extras, walked;
        bool partial;
        char path[GUEST_PATH_MAX + 1];
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

static bool seen_has(const struct diff *d, uint64_t h)
{
        for (size_t i = (size_t) h & d->seen_mask; d->seen; i = (i + 1) & d->seen_mask) {
                if (d->seen[i] == h)
                        return true;
                if (!d->seen[i])
                        break;
        }
        return false;
}

static uint64_t path_hash(const char *p, size_t n)
{
        uint64_t h = hash_bytes(p, n);

        return h ? h : 1;
}

static int seen_add(struct diff *d, uint64_t h)
{
        if (!d->seen || d->n * 2 > d->seen_mask) {
                size_t mask = d->seen ? d->seen_mask * 2 + 1 : 4095;
                uint64_t *old = d->seen, *v = calloc(mask + 1, sizeof(*v));

                if (!v)
                        return -ENOMEM;
                for (size_t i = 0; old && i <= d->seen_mask; i++) {
                        size_t k = (size_t) old[i] & mask;

                        while (old[i] && v[k])
                                k = (k + 1) & mask;
                        if (old[i])
                                v[k] = old[i];
                }
                free(old);
                d->seen = v;
                d->seen_mask = mask;
        }
        size_t i = (size_t) h & d->seen_mask;
        while (d->seen[i] && d->seen[i] != h)
                i = (i + 1) & d->seen_mask;
        d->seen[i] = h;
        return 0;
}

static int on_entry(struct diff *d, const struct guest_entry *e, struct err *err)
{
        if (d->n >= ENTRIES_MAX)
                return err_set(err, -E2BIG, "the plan has more than %u entries", ENTRIES_MAX);
        if (d->dest >= 0 && seen_add(d, path_hash(e->path, e->path_len)) < 0)
                return err_set(err, -ENOMEM, "no memory for the plan");
        uint32_t index = (uint32_t) d->n++;
        if (d->dest >= 0 && same(d, e))
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

static void extra(struct diff *d, size_t len)
{
        if (seen_has(d, path_hash(d->path, len)))
                return;
        if (d->n_extras++ < EXTRAS_MAX && d->extras.len < (160u << 10))
                jw_b64(&d->w, d->path, len);
        else
                d->partial = true;
}

static bool not_walked(const char *name)
{
        return strcmp(name, ".git") == 0 || strcmp(name, "node_modules") == 0;
}

static void walk(struct diff *d, int dir, size_t len, unsigned depth)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = fd < 0 ? NULL : fdopendir(fd);

        for (struct dirent *e; list && (e = readdir(list));) {
                size_t n = strlen(e->d_name);
                struct stat st;

                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (++d->walked > WALKED_MAX || len + n + 1 >= sizeof(d->path)) {
                        d->partial = true;
                        break;
                }
                if (e->d_type == DT_UNKNOWN && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        e->d_type = (unsigned char) IFTODT(st.st_mode);
                memcpy(d->path + len, e->d_name, n + 1);
                if (e->d_type != DT_DIR) {
                        if (!is_temp_name(e->d_name)) /* of an upload that runs just now */
                                extra(d, len + n);
                        continue;
                }
                if (not_walked(e->d_name) || depth >= DEPTH_MAX)
                        continue;
                _cleanup_close_ int sub = openat(fd, e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                d->path[len + n] = '/';
                if (sub >= 0)
                        walk(d, sub, len + n + 1, depth + 1);
        }
        if (list)
                closedir(list);
}

static void answer(struct diff *d, int fd)
{
        struct reply r;

        d->extras = BUF_MAX(200u << 10);
        jw_init(&d->w, &d->extras);
        jw_arr(&d->w);
        if (d->dest >= 0)
                walk(d, d->dest, 0, 0);
        jw_end_all(&d->w);
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
        jw_raw(&r.w, buf_str(&d->extras));
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
