#include "boxd/walk.h"

#include "boxd/put.h"

#include "base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 256
#define PATHS_MAX ((size_t) 64 << 20)
#define PATH_LEN_MAX 4096

static int grow_table(struct walk *w)
{
        size_t mask = w->table ? w->mask * 2 + 1 : 8191;
        uint32_t *v = calloc(mask + 1, sizeof(*v));

        if (!v)
                return -1;
        for (size_t i = 0; i < w->n; i++) {
                size_t k = (size_t) w->items[i].hash & mask;

                while (v[k])
                        k = (k + 1) & mask;
                v[k] = (uint32_t) i + 1;
        }
        free(w->table);
        w->table = v;
        w->mask = mask;
        return 0;
}

static int add(struct walk *w, const char *path, size_t len, const struct stat *st)
{
        if (w->n == w->cap) {
                size_t cap = w->cap ? w->cap * 2 : 4096;
                struct walk_item *v = try_realloc(w->items, cap * sizeof(*v));

                if (!v)
                        return -1;
                w->items = v;
                w->cap = cap;
        }
        if ((!w->table || w->n * 2 > w->mask) && grow_table(w) < 0)
                return -1;
        struct walk_item *it = &w->items[w->n];
        *it = (struct walk_item){ .hash = hash_bytes(path, len),
                                  .path = (uint32_t) w->paths.len,
                                  .path_len = (uint32_t) len,
                                  .mode = st->st_mode,
                                  .dev = st->st_dev,
                                  .ino = st->st_ino,
                                  .size = st->st_size,
                                  .mtim = st->st_mtim,
                                  .ctim = st->st_ctim };
        if (buf_add(&w->paths, path, len) < 0)
                return -1;
        size_t k = (size_t) it->hash & w->mask;
        while (w->table[k])
                k = (k + 1) & w->mask;
        w->table[k] = (uint32_t) ++w->n;
        return 0;
}

static bool not_walked(const char *name)
{
        return strcmp(name, ".git") == 0 || strcmp(name, "node_modules") == 0;
}

static bool dots(const char *name)
{
        return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static void walk_dir(struct walk *w, int fd, char *path, size_t len, unsigned depth);

/* One name; false when the walk is to end. */
static bool visit(struct walk *w, int dir, const struct dirent *e, char *path, size_t len, unsigned depth)
{
        size_t n = strlen(e->d_name);
        struct stat st;

        if (dots(e->d_name) || is_temp_name(e->d_name)) /* the second: of an upload that runs just now */
                return true;
        if (w->n >= WALK_MAX || len + n + 1 >= PATH_LEN_MAX) {
                w->partial = true;
                return w->n < WALK_MAX;
        }
        memcpy(path + len, e->d_name, n + 1);
        bool folder = e->d_type == DT_DIR;
        if (!folder) {
                if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return true; /* gone meanwhile */
                folder = S_ISDIR(st.st_mode);
        }
        if (!folder) {
                w->partial |= add(w, path, len + n, &st) < 0;
                return true;
        }
        if (not_walked(e->d_name) || depth >= DEPTH_MAX)
                return true;
        int sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        path[len + n] = '/';
        if (sub >= 0)
                walk_dir(w, sub, path, len + n + 1, depth + 1);
        return true;
}

/* Takes over fd. */
static void walk_dir(struct walk *w, int fd, char *path, size_t len, unsigned depth)
{
        DIR *list = fdopendir(fd);

        if (!list) {
                (void) close(fd);
                return;
        }
        for (struct dirent *e; (e = readdir(list));)
                if (!visit(w, fd, e, path, len, depth))
                        break;
        (void) closedir(list);
}

void walk_run(struct walk *w, int dir)
{
        char path[PATH_LEN_MAX + 1];
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        *w = (struct walk){ .paths = BUF_MAX(PATHS_MAX) };
        if (fd >= 0)
                walk_dir(w, fd, path, 0, 0);
}

struct walk_item *walk_find(const struct walk *w, const char *path, size_t n)
{
        uint64_t h = hash_bytes(path, n);

        for (size_t k = (size_t) h & w->mask; w->table && w->table[k]; k = (k + 1) & w->mask) {
                struct walk_item *it = &w->items[w->table[k] - 1];

                if (it->hash == h && it->path_len == n && memcmp(w->paths.p + it->path, path, n) == 0)
                        return it;
        }
        return NULL;
}

void walk_stat(const struct walk_item *i, struct stat *ret)
{
        *ret = (struct stat){ .st_dev = i->dev,
                              .st_ino = i->ino,
                              .st_mode = i->mode,
                              .st_size = i->size,
                              .st_mtim = i->mtim,
                              .st_ctim = i->ctim };
}

void walk_done(struct walk *w)
{
        free(w->items);
        free(w->table);
        buf_done(&w->paths);
}
