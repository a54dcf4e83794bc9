/*
 * What lies in the local folders but is not selected: what git ignores, mostly. Only folders that hold something
 * selected are read, so a node_modules costs one look. This runs while the box compares; asking git instead would cost
 * a second walk of the tree in a process of its own, a third of the time of a whole unchanged sync.
 */
#include "base/mem.h"
#include "loop/loop.h"
#include "sync/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>

struct frame {
        char *path;    /* "" or "dir/sub/" */
        size_t lo, hi; /* its entries in the tree */
};

struct look {
        struct sync_job *j;
        struct frame *v;
        size_t n, cap;
        struct map *tops; /* top-level names already in partial */
        char *dirents;
};

static void push(struct look *l, char *path, size_t lo, size_t hi)
{
        if (l->n == l->cap) {
                l->cap = l->cap ? l->cap * 2 : 64;
                l->v = xrealloc(l->v, l->cap * sizeof *l->v);
        }
        l->v[l->n++] = (struct frame){ .path = path, .lo = lo, .hi = hi };
}

/* First entry in [lo, hi) that is not before key (after: not before everything that starts with key). */
static size_t bound(const struct tree *t, size_t lo, size_t hi, const char *key, size_t len, bool after)
{
        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;
                const struct entry *e = &t->v[mid];
                int c = path_cmp(e->path, e->path_len, key, len);

                if (c < 0 || (after && e->path_len >= len && memcmp(e->path, key, len) == 0))
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

static bool holds_something(int fd, const char *name)
{
        int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = sub < 0 ? NULL : fdopendir(sub);
        bool any = false;

        if (!d) {
                if (sub >= 0)
                        close(sub);
                return true;
        }
        for (struct dirent *e; !any && (e = readdir(d));)
                any = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
        (void) closedir(d);
        return any;
}

static bool is_folder(int fd, const char *name, unsigned char type)
{
        struct stat st;

        if (type != DT_UNKNOWN)
                return type == DT_DIR;
        return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void note_unselected(struct look *l, const char *path, bool folder)
{
        struct sync_job *j = l->j;
        size_t before = j->ignored.len;
        const char *slash = strchr(path, '/');

        if (buf_adds(&j->ignored, path) < 0 || buf_adds(&j->ignored, folder ? "/" : "") < 0 ||
            buf_addc(&j->ignored, '\0') < 0)
                j->ignored.len = before; /* full: the list is for notes, a part will do */
        if (!slash) {
                (void) buf_add(&j->skipped, path, strlen(path) + 1);
        } else if (!map_put(l->tops, str_n(path, (size_t) (slash - path)), l)) {
                (void) buf_add(&j->partial, path, (size_t) (slash - path));
                (void) buf_addc(&j->partial, '\0');
        }
}

static void look_at(struct look *l, int fd, const struct frame *f, const char *name, unsigned char type)
{
        const struct tree *t = &l->j->tree;
        char path[GUEST_PATH_MAX + 2];
        size_t k, end;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".git") == 0)
                return;
        int len = snprintf(path, sizeof path, "%s%s", f->path, name);
        if (len < 0 || (size_t) len >= sizeof path - 1)
                return;
        k = bound(t, f->lo, f->hi, path, (size_t) len, false);
        if (k < f->hi && t->v[k].path_len == (size_t) len && memcmp(t->v[k].path, path, (size_t) len) == 0)
                return;
        bool folder = is_folder(fd, name, type);
        if (folder) {
                path[len] = '/';
                k = bound(t, f->lo, f->hi, path, (size_t) len + 1, false);
                end = bound(t, k, f->hi, path, (size_t) len + 1, true);
                if (end > k) {
                        push(l, xstrndup(path, (size_t) len + 1), k, end);
                        return;
                }
                path[len] = '\0';
                if (!holds_something(fd, name))
                        return;
        }
        note_unselected(l, path, folder);
}

#ifdef __linux__
/* The kernel's own record: readdir(3) asks for more than twice as many system calls for the same small folder. */
struct raw_dirent {
        uint64_t ino;
        int64_t off;
        uint16_t len;
        uint8_t type;
        char name[];
};

#define DIRENTS ((size_t) 32 << 10)

static void read_folder(struct look *l, int fd, const struct frame *f)
{
        long n;

        do {
                n = syscall(SYS_getdents64, fd, l->dirents, DIRENTS);
                for (long at = 0; at < n;) {
                        const struct raw_dirent *d = (const void *) (l->dirents + at);

                        look_at(l, fd, f, d->name, d->type);
                        at += d->len;
                }
                /* Much room left means that this was all. (Where it is not, a note misses a name.) */
        } while (n > (long) (DIRENTS / 2));
}
#else
#define DIRENTS 1

static void read_folder(struct look *l, int fd, const struct frame *f)
{
        DIR *d = fdopendir(dup(fd));

        for (struct dirent *e; d && (e = readdir(d));)
                look_at(l, fd, f, e->d_name, e->d_type);
        if (d)
                (void) closedir(d);
}
#endif

static void look_into(struct look *l, const struct frame *f)
{
        int fd =
                openat(l->j->tree.root_fd, f->path[0] ? f->path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return;
        read_folder(l, fd, f);
        close(fd);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* Folders come in the order of the disk; people read the lists in that of the alphabet. */
static void sort_list(struct buf *list)
{
        size_t n = list_len(list), i = 0, at = 0;
        _cleanup_free_ const char **v = xcalloc(n + 1, sizeof *v);
        _cleanup_free_ char *copy = xmemdup(list->p, list->len);

        for (size_t k = 0; k < n; k++, at += strlen(copy + at) + 1)
                v[k] = copy + at;
        qsort(v, n, sizeof *v, by_name);
        for (at = 0; i < n; at += strlen(v[i]) + 1, i++)
                memcpy(list->p + at, v[i], strlen(v[i]) + 1);
}

static int look_all(void *arg)
{
        struct sync_job *j = arg;
        struct look l = { .j = j, .tops = map_new(), .dirents = xmalloc(DIRENTS) };

        j->ignored = BUF_MAX((size_t) 16 << 20);
        push(&l, xstrdup(""), 0, j->tree.n);
        while (l.n) {
                struct frame f = l.v[--l.n];

                look_into(&l, &f);
                free(f.path);
        }
        free(l.v);
        free(l.dirents);
        map_free(l.tops);
        sort_list(&j->skipped);
        sort_list(&j->partial);
        return 0;
}

void coroutine_fn job_unselected(struct sync_job *j)
{
        (void) offload(look_all, j);
}
