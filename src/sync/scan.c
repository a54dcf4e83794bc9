#include "sync/scan.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "sync/par.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_CHUNK ((size_t) 128 << 10)

static void fail(struct entry *e, int err)
{
        e->err = err;
        e->state = err == -ENOENT || err == -ENOTDIR ? ENTRY_GONE : ENTRY_UNREADABLE;
}

static void hash_link(struct tree *t, struct entry *e)
{
        char target[GUEST_PATH_MAX + 1];
        ssize_t n = readlinkat(t->root_fd, e->path, target, sizeof target);

        if (n < 0) {
                fail(e, -errno);
                return;
        }
        if (n > GUEST_PATH_MAX) {
                fail(e, -ENAMETOOLONG);
                return;
        }
        e->kind = GUEST_KIND_LINK;
        e->key.size = (uint64_t) n;
        hash_of(target, (size_t) n, e->digest);
        e->state = ENTRY_OK;
}

static ssize_t read_retry(int fd, void *p, size_t n)
{
        ssize_t got;

        do
                got = read(fd, p, n);
        while (got < 0 && errno == EINTR);
        return got;
}

/* A short read of a regular file is its end, so most files cost one read. The size told is what was read. */
static void hash_file(struct tree *t, struct entry *e, char *buf)
{
        _cleanup_close_ int fd = openat(t->root_fd, e->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        struct hash_state h;
        uint64_t total = 0;
        ssize_t got;

        if (fd < 0) {
                fail(e, -errno);
                return;
        }
        int64_t now = cache_now_ns();
        got = read_retry(fd, buf, READ_CHUNK);
        if (got >= 0 && (size_t) got < READ_CHUNK) {
                hash_of(buf, (size_t) got, e->digest);
                total = (uint64_t) got;
        } else {
                hash_init(&h);
                for (; got > 0 && !tree_stopped(t); got = read_retry(fd, buf, READ_CHUNK)) {
                        hash_update(&h, buf, (size_t) got);
                        total += (uint64_t) got;
                }
                hash_final(&h, e->digest);
        }
        if (got < 0) {
                fail(e, -errno);
                return;
        }
        e->racy = cache_racy(&e->key, now) || total != e->key.size;
        e->key.size = total;
        e->hashed = 1;
        e->state = ENTRY_OK;
}

static void scan_one(struct tree *t, const struct cache *cache, struct entry *e, size_t *hint, char *buf)
{
        const unsigned char *digest;
        struct stat st;

        if (e->gitlink) {
                e->state = ENTRY_DIR;
                return;
        }
        if (fstatat(t->root_fd, e->path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                fail(e, -errno);
                return;
        }
        cache_key_of(&st, &e->key);
        if (S_ISLNK(st.st_mode)) {
                hash_link(t, e);
        } else if (S_ISDIR(st.st_mode)) {
                e->state = ENTRY_DIR;
        } else if (!S_ISREG(st.st_mode)) {
                e->state = ENTRY_SPECIAL;
        } else {
                e->kind = st.st_mode & 0111 ? GUEST_KIND_EXEC : GUEST_KIND_FILE;
                digest = cache_find(cache, &e->key, hint);
                if (!digest) {
                        hash_file(t, e, buf);
                        return;
                }
                memcpy(e->digest, digest, HASH_LEN);
                e->state = ENTRY_OK;
        }
}

void scan_range(struct tree *t, const struct cache *cache, size_t from, size_t to)
{
        _cleanup_free_ char *buf = xmalloc(READ_CHUNK);
        size_t hint = from;

        for (size_t i = from; i < to; i++)
                if (t->v[i].state == ENTRY_NEW)
                        scan_one(t, cache, &t->v[i], &hint, buf);
}

/* Files differ in size by orders of magnitude, so the threads take small ranges from a common counter. */
struct scan_job {
        struct tree *t;
        const struct cache *cache;
        size_t next;
};

#define RANGE 64

static int scan_some(void *arg)
{
        struct scan_job *j = arg;

        for (;;) {
                size_t from = __atomic_fetch_add(&j->next, RANGE, __ATOMIC_RELAXED);

                if (from >= j->t->n || tree_stopped(j->t))
                        return 0;
                scan_range(j->t, j->cache, from, min_size(from + RANGE, j->t->n));
        }
}

static void coroutine_fn scan_task(void *arg)
{
        (void) offload(scan_some, arg);
}

int coroutine_fn scan_tree(struct tree *t, const struct cache *cache)
{
        struct scan_job job = { .t = t, .cache = cache };
        struct par p;

        par_init(&p);
        t->stop = &p.stop;
        for (unsigned i = par_width(t->n); i > 0; i--)
                par_start(&p, scan_task, &job);
        int r = par_join(&p);
        t->stop = NULL;
        return r;
}

/* A plain folder, walked with a stack of relative paths: its depth costs heap, not stack or descriptors. */
struct walk {
        struct tree *t;
        const char *const *skip;
        const struct globs *globs;
        struct buf *skipped;
        char **dirs;
        size_t n, cap;
        struct err *e;
};

static void push_dir(struct walk *w, char *path)
{
        if (w->n == w->cap) {
                w->cap = w->cap ? w->cap * 2 : 64;
                w->dirs = xrealloc(w->dirs, w->cap * sizeof *w->dirs);
        }
        w->dirs[w->n++] = path;
}

static bool is_skipped(const struct walk *w, const char *name)
{
        for (size_t i = 0; w->skip[i]; i++)
                if (strcmp(w->skip[i], name) == 0)
                        return true;
        return false;
}

static bool is_dir_entry(int fd, const struct dirent *d)
{
        struct stat st;

        if (d->d_type != DT_UNKNOWN)
                return d->d_type == DT_DIR;
        return fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Returns 1 when something was selected. */
static int walk_entry(struct walk *w, int fd, const char *dir, const struct dirent *d)
{
        bool is_dir = is_dir_entry(fd, d);
        char *path;
        size_t len;

        if (is_skipped(w, d->d_name)) {
                if (!*dir)
                        (void) buf_add(w->skipped, d->d_name, strlen(d->d_name) + 1);
                return 1;
        }
        path = *dir ? xasprintf("%s/%s", dir, d->d_name) : xstrdup(d->d_name);
        len = strlen(path);
        if (len > GUEST_PATH_MAX || globs_match(w->globs, str_n(path, len), is_dir)) {
                w->t->excluded++;
                free(path);
                return 1;
        }
        if (is_dir) {
                push_dir(w, path);
                return 1;
        }
        (void) tree_add(w->t, tree_strn(w->t, path, len), len);
        free(path);
        return 1;
}

static int walk_dir(struct walk *w, const char *dir)
{
        int fd = openat(w->t->root_fd, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        bool any = false;

        if (!d) {
                int r = -errno;
                if (fd >= 0)
                        close(fd);
                if (!*dir)
                        return err_sys(w->e, r, "cannot read %.200s", w->t->root);
                fail(tree_add(w->t, tree_strn(w->t, dir, strlen(dir)), strlen(dir)), r);
                return 0;
        }
        for (struct dirent *it; (it = readdir(d));)
                if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
                        any |= walk_entry(w, dirfd(d), dir, it) > 0;
        (void) closedir(d);
        if (!any && *dir)
                (void) buf_add(&w->t->empty_dirs, dir, strlen(dir) + 1);
        return 0;
}

static int walk_all(void *arg)
{
        struct walk *w = arg;
        int r = 0;

        push_dir(w, xstrdup(""));
        while (w->n) {
                _cleanup_free_ char *dir = w->dirs[--w->n];

                if (r == 0)
                        r = walk_dir(w, dir);
        }
        free(w->dirs);
        return r;
}

int coroutine_fn scan_walk(struct tree *t, const char *const *skip, const struct globs *globs, struct buf *skipped,
                           struct err *e)
{
        struct walk w = { .t = t, .skip = skip, .globs = globs, .skipped = skipped, .e = e };

        return offload(walk_all, &w);
}
