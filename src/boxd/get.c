#include "boxd/beneath.h"
#include "boxd/conn.h"
#include "boxd/ops.h"

#include "guest/gz.h"
#include "guest/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (128u << 10)
#define DEPTH_MAX 256
#define NAMES_MAX 100
#define NAME_ROOM (8u << 10) /* one more name, every byte of it escaped */

struct names { /* a JSON array that stops growing at NAMES_MAX */
        struct buf b;
        struct jw w;
        size_t n;
};

struct get {
        int fd;
        struct gz_out *gz; /* NULL: plain */
        struct buf out;    /* plain tar bytes, or compressed ones, not sent yet */
        struct buf plain;  /* tar bytes on their way to the compressor */
        uint64_t bytes;    /* sent */
        char path[TAR_NAME_MAX + 1];
        struct names changed, skipped;
};

static void names_init(struct names *n)
{
        n->b = BUF_MAX(96u << 10);
        jw_init(&n->w, &n->b);
        jw_arr(&n->w);
}

static void names_add(struct names *n, const char *name)
{
        if (n->n++ < NAMES_MAX && n->b.len < n->b.max - NAME_ROOM)
                jw_strn(&n->w, str_n(name, strnlen(name, 512)));
}

static void names_field(struct jw *w, const char *key, struct names *n)
{
        jw_end_all(&n->w);
        jw_key(w, key);
        jw_raw(w, buf_str(&n->b));
        buf_done(&n->b);
}

static int send_out(struct get *g, bool all)
{
        if (g->out.len == 0 || (!all && g->out.len < PIECE))
                return 0;
        g->bytes += g->out.len;
        int r = conn_send_bytes(g->fd, GUEST_DATA, g->out.p, g->out.len);
        buf_clear(&g->out);
        return r;
}

static int flush_plain(struct get *g, bool end)
{
        if (!g->gz)
                return send_out(g, end);
        int r = gz_deflate(g->gz, g->plain.p, g->plain.len, end, &g->out);
        buf_clear(&g->plain);
        return r < 0 ? r : send_out(g, end);
}

static struct buf *sink_of(struct get *g)
{
        return g->gz ? &g->plain : &g->out;
}

static int maybe_flush(struct get *g)
{
        return sink_of(g)->len >= PIECE ? flush_plain(g, false) : 0;
}

static bool moved(const struct stat *a, const struct stat *b)
{
        return a->st_size != b->st_size || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
               a->st_mtim.tv_nsec != b->st_mtim.tv_nsec || a->st_ctim.tv_sec != b->st_ctim.tv_sec ||
               a->st_ctim.tv_nsec != b->st_ctim.tv_nsec;
}

static int add_header(struct get *g, enum tar_type type, const struct stat *st, const char *link, size_t link_len)
{
        struct tar_entry e = { .type = type,
                               .path = g->path,
                               .path_len = strlen(g->path),
                               .link = link,
                               .link_len = link_len,
                               .size = type == TAR_FILE ? (uint64_t) st->st_size : 0,
                               .mode = st->st_mode & 07777,
                               .mtime = st->st_mtim.tv_sec };
        int r = tar_write_header(sink_of(g), &e);

        return r < 0 ? r : maybe_flush(g);
}

/* Exactly size bytes go into the archive, whatever happens to the file; zeros stand for what it lost. */
static int add_content(struct get *g, int fd, uint64_t size, bool *short_read)
{
        uint64_t left = size;

        *short_read = false;
        while (left) {
                size_t want = left < PIECE ? (size_t) left : PIECE;
                char *room = buf_room(sink_of(g), want);
                ssize_t k = !room ? -1 : *short_read ? 0 : read(fd, room, want);

                if (!room)
                        return -ENOMEM;
                if (k <= 0) {
                        *short_read = true;
                        memset(room, 0, want);
                        k = (ssize_t) want;
                }
                buf_grew(sink_of(g), (size_t) k);
                left -= (uint64_t) k;
                int r = maybe_flush(g);
                if (r < 0)
                        return r;
        }
        return tar_write_zeros(sink_of(g), tar_padding(size));
}

static int add_file(struct get *g, int dir, const char *name)
{
        struct stat before, after;
        bool short_read;

        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &before) < 0 || !S_ISREG(before.st_mode)) { /* gone or replaced since it was listed */
                names_add(&g->changed, g->path);
                return 0;
        }
        int r = add_header(g, TAR_FILE, &before, "", 0);
        if (r >= 0)
                r = add_content(g, fd, (uint64_t) before.st_size, &short_read);
        if (r >= 0 && (short_read || fstat(fd, &after) < 0 || moved(&before, &after)))
                names_add(&g->changed, g->path);
        return r;
}

static int add_link(struct get *g, int dir, const char *name, const struct stat *st)
{
        char target[TAR_NAME_MAX + 1];
        ssize_t n = readlinkat(dir, name, target, sizeof(target));

        if (n < 0 || n > TAR_NAME_MAX) {
                names_add(&g->changed, g->path);
                return 0;
        }
        return add_header(g, TAR_SYMLINK, st, target, (size_t) n);
}

static int by_bytes(const void *a, const void *b)
{
        return strcmp(*(char *const *) a, *(char *const *) b);
}

struct listing {
        char **v;
        size_t n, cap;
};

static void listing_done(struct listing *l)
{
        for (size_t i = 0; i < l->n; i++)
                free(l->v[i]);
        free(l->v);
}

static int list_dir(int dir, struct listing *l)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d)
                return -errno;
        for (struct dirent *e; (e = readdir(d));) {
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (l->n == l->cap) {
                        l->cap = l->cap ? l->cap * 2 : 32;
                        l->v = xrealloc(l->v, l->cap * sizeof(*l->v));
                }
                l->v[l->n++] = xstrdup(e->d_name);
        }
        closedir(d);
        if (l->n)
                qsort(l->v, l->n, sizeof(*l->v), by_bytes);
        return 0;
}

static int add_dir(struct get *g, int dir, unsigned depth);

static int add_entry(struct get *g, int dir, const char *name, unsigned depth)
{
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                names_add(&g->changed, g->path);
                return 0;
        }
        if (S_ISREG(st.st_mode))
                return add_file(g, dir, name);
        if (S_ISLNK(st.st_mode))
                return add_link(g, dir, name, &st);
        if (!S_ISDIR(st.st_mode) || depth >= DEPTH_MAX) {
                names_add(&g->skipped, g->path);
                return 0;
        }
        _cleanup_close_ int sub = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0) {
                names_add(&g->changed, g->path);
                return 0;
        }
        return add_dir(g, sub, depth + 1);
}

/* g->path is the folder's path in the archive. */
static int add_dir(struct get *g, int dir, unsigned depth)
{
        _cleanup_(listing_done) struct listing l = { 0 };
        size_t len = strlen(g->path);
        struct stat st;

        if (fstat(dir, &st) < 0 || len + 1 >= sizeof(g->path)) {
                names_add(&g->skipped, g->path);
                return 0;
        }
        g->path[len] = '/';
        g->path[len + 1] = '\0';
        int r = add_header(g, TAR_DIR, &st, "", 0);
        if (r >= 0 && list_dir(dir, &l) < 0)
                names_add(&g->changed, g->path);
        for (size_t i = 0; i < l.n && r >= 0; i++) {
                size_t n = strlen(l.v[i]);

                if (len + 1 + n >= sizeof(g->path)) {
                        names_add(&g->skipped, l.v[i]);
                        continue;
                }
                memcpy(g->path + len + 1, l.v[i], n + 1);
                r = add_entry(g, dir, l.v[i], depth);
        }
        g->path[len] = '\0';
        return r;
}

static int send_file(struct get *g, int fd, const struct stat *before)
{
        _cleanup_free_ char *piece = xmalloc(PIECE);
        struct stat after;

        for (;;) {
                ssize_t k = read(fd, piece, PIECE);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                if (k == 0)
                        break;
                int r = conn_send(g->fd, GUEST_DATA, 0, piece, (size_t) k);
                if (r < 0)
                        return r;
                g->bytes += (uint64_t) k;
        }
        if (fstat(fd, &after) < 0 || moved(before, &after) || g->bytes != (uint64_t) before->st_size)
                names_add(&g->changed, g->path);
        return 0;
}

static int send_dir(struct get *g, int dir, bool gzip)
{
        if (gzip && !(g->gz = gz_out_new()))
                return -ENOMEM;
        g->out = BUF_MAX(8u << 20);
        g->plain = BUF_MAX(8u << 20);
        int r = add_dir(g, dir, 0);
        if (r >= 0)
                r = tar_write_end(sink_of(g));
        return r < 0 ? r : flush_plain(g, true);
}

/* Opens what was asked for; only a regular file or a folder is ever opened for reading. */
static int open_target(const char *root, const char *path, struct stat *st, struct err *e)
{
        _cleanup_close_ int top = root_open(root, e);
        bool self = !*path || strcmp(path, ".") == 0;

        if (top < 0)
                return top;
        if (!self && !guest_path_ok(path, strlen(path)))
                return err_set(e, -EINVAL, "`path` must be a plain path below the folder, got \"%s\"", path);
        _cleanup_close_ int look = beneath_open(top, path, O_PATH, 0, BENEATH_FOLLOW);
        if (look == -EXDEV)
                return err_set(e, look, "%s leads out of its folder", path);
        if (look < 0)
                return err_sys(e, look, "%s", path);
        if (fstat(look, st) < 0)
                return err_sys(e, -errno, "%s", path);
        if (S_ISDIR(st->st_mode))
                return steal_fd(&look);
        if (!S_ISREG(st->st_mode))
                return err_set(e, -EINVAL, "%s is neither a file nor a folder", path);
        int fd = beneath_open(top, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, BENEATH_FOLLOW);
        if (fd < 0)
                return err_sys(e, fd, "%s", path);
        if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
                close(fd);
                return err_set(e, -EAGAIN, "%s was replaced while it was opened", path);
        }
        return fd;
}

static void announce(struct get *g, const struct stat *st)
{
        struct reply r;

        reply_init(&r);
        jw_kstr(&r.w, "event", "head");
        jw_kstr(&r.w, "type", S_ISDIR(st->st_mode) ? "dir" : "file");
        jw_kint(&r.w, "size", S_ISDIR(st->st_mode) ? 0 : st->st_size);
        jw_kint(&r.w, "mode", st->st_mode & 07777);
        jw_kint(&r.w, "mtime", st->st_mtim.tv_sec);
        jw_kstr(&r.w, "name", g->path);
        reply_event(&r, g->fd);
}

void op_get(int fd, struct json *head)
{
        static struct get get;
        struct get *g = &get;
        const char *path = json_get_str(head, "path", "."), *root = json_get_str(head, "root", "work");
        struct err e = { 0 };
        struct reply out;
        struct stat st = { 0 };
        size_t dir_len;

        g->fd = fd;
        _cleanup_close_ int target = open_target(root, path, &st, &e);
        if (target < 0) {
                conn_error(fd, &e);
                return;
        }
        names_init(&g->changed);
        names_init(&g->skipped);
        const char *name = path_split(path, strlen(path), &dir_len);
        if (!*path || strcmp(path, ".") == 0)
                name = root;
        size_t n = min_size(strlen(name), TAR_NAME_MAX - 1);
        memcpy(g->path, name, n);
        g->path[n] = '\0';
        announce(g, &st);
        int r = S_ISDIR(st.st_mode) ? send_dir(g, target, json_get_bool(head, "gzip", true))
                                    : send_file(g, target, &st);
        if (r == -EPIPE || r == -ECONNRESET)
                return;
        if (r < 0) {
                err_sys(&e, r, "reading %s", path);
                conn_error(fd, &e);
                return;
        }
        conn_send(fd, GUEST_DATA, GUEST_END, NULL, 0);
        reply_init(&out);
        jw_kint(&out.w, "bytes", (int64_t) g->bytes);
        names_field(&out.w, "changedWhileReading", &g->changed);
        names_field(&out.w, "skipped", &g->skipped);
        reply_send(&out, fd);
}
