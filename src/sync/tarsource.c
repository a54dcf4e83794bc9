#include "base/mem.h"
#include "guest/gz.h"
#include "guest/tar.h"
#include "sync/send.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE ((size_t) 512 << 10)
#define SLACK ((size_t) 64 << 10) /* headers, padding and the end marker beyond the piece */

struct tar_source {
        const struct send_spec *spec;
        struct send_result *res;
        struct gz_out *gz;
        struct buf raw; /* only with gzip */
        size_t next, dirs_at;
        int fd;
        uint64_t left; /* of the open file */
        size_t padding;
        bool short_read, ended;
        const struct entry *entry;
};

struct tar_source *tar_source_new(const struct send_spec *spec, struct send_result *res)
{
        struct tar_source *s = xcalloc(1, sizeof *s);

        s->spec = spec;
        s->res = res;
        s->fd = -1;
        s->raw = BUF_MAX(PIECE + SLACK);
        if (spec->gzip)
                s->gz = gz_out_new();
        if (spec->gzip && !s->gz) {
                free(s);
                return NULL;
        }
        return s;
}

void tar_source_free(struct tar_source *s)
{
        if (!s)
                return;
        closep(&s->fd);
        gz_out_free(s->gz);
        buf_done(&s->raw);
        free(s);
}

void tar_source_freep(struct tar_source **s)
{
        tar_source_free(*s);
}

static void name_in(struct buf *list, const struct entry *e)
{
        if (list->max == 0)
                list->max = (size_t) 1 << 20;
        (void) buf_add(list, e->path, (size_t) e->path_len + 1); /* full: the list is partial */
}

static int add_link(struct tar_source *s, const struct entry *e, struct buf *out)
{
        char target[GUEST_PATH_MAX + 1];
        ssize_t n = readlinkat(s->spec->tree->root_fd, e->path, target, sizeof target - 1);
        struct tar_entry t = { .type = TAR_SYMLINK, .mode = 0777, .link = target };

        if (n < 0) {
                name_in(&s->res->gone, e);
                return 0;
        }
        target[n] = '\0';
        t.link_len = (size_t) n;
        t.path = e->path;
        t.path_len = e->path_len;
        return tar_write_header(out, &t);
}

static int open_file(struct tar_source *s, const struct entry *e, struct buf *out)
{
        struct tar_entry t = { .type = TAR_FILE, .link = "" };
        struct stat st;
        int r;

        s->fd = openat(s->spec->tree->root_fd, e->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (s->fd < 0 || fstat(s->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                closep(&s->fd);
                s->fd = -1;
                name_in(&s->res->gone, e);
                return 0;
        }
        t.path = e->path;
        t.path_len = e->path_len;
        t.size = (uint64_t) st.st_size;
        t.mode = (st.st_mode & 0777) | 0400; /* what the owner may not read here is still of use in the box */
        t.mtime = (int64_t) st.st_mtime;
        r = tar_write_header(out, &t);
        s->entry = e;
        s->left = t.size;
        s->padding = tar_padding(t.size);
        s->short_read = false;
        return r;
}

static int read_file(struct tar_source *s, struct buf *out)
{
        while (s->left && out->len < PIECE) {
                size_t want = (size_t) (s->left < PIECE - out->len ? s->left : PIECE - out->len);
                char *p = buf_room(out, want);
                ssize_t got = 0;

                if (!p)
                        return -ENOMEM;
                if (!s->short_read) {
                        do
                                got = read(s->fd, p, want);
                        while (got < 0 && errno == EINTR);
                }
                if (got <= 0) { /* the header is out: the promised size must come */
                        s->short_read = true;
                        memset(p, 0, want);
                        got = (ssize_t) want;
                }
                buf_grew(out, (size_t) got);
                s->left -= (size_t) got;
        }
        return 0;
}

static int close_file(struct tar_source *s, struct buf *out)
{
        struct stat st;
        struct cache_key now;

        if (!s->short_read && fstat(s->fd, &st) == 0) {
                cache_key_of(&st, &now);
                s->short_read = now.mtime_ns != s->entry->key.mtime_ns || now.size != s->entry->key.size;
        }
        if (s->short_read)
                name_in(&s->res->changing, s->entry);
        closep(&s->fd);
        s->fd = -1;
        return tar_write_zeros(out, s->padding);
}

static int add_dir(struct tar_source *s, struct buf *out)
{
        const char *p = s->spec->tree->empty_dirs.p + s->dirs_at;
        struct tar_entry t = { .type = TAR_DIR, .mode = 0755, .link = "", .path = p, .path_len = strlen(p) };

        s->dirs_at += t.path_len + 1;
        return tar_write_header(out, &t);
}

static int next_entry(struct tar_source *s, struct buf *out)
{
        const struct entry *e;

        if (s->spec->with_dirs && s->dirs_at < s->spec->tree->empty_dirs.len)
                return add_dir(s, out);
        if (s->next == s->spec->need_n) {
                s->ended = true;
                return tar_write_end(out);
        }
        e = &s->spec->tree->v[s->spec->need[s->next++]];
        return e->kind == GUEST_KIND_LINK ? add_link(s, e, out) : open_file(s, e, out);
}

static int fill_raw(struct tar_source *s, struct buf *out)
{
        int r = 0;

        while (r == 0 && !s->ended && out->len < PIECE && !tree_stopped(s->spec->tree)) {
                if (s->fd < 0) {
                        r = next_entry(s, out);
                        continue;
                }
                r = read_file(s, out);
                if (r == 0 && s->left == 0)
                        r = close_file(s, out);
        }
        return r;
}

int tar_source_fill(struct tar_source *s, struct buf *out)
{
        int r;

        buf_clear(out);
        if (!s->gz) {
                r = fill_raw(s, out);
                return r < 0 ? r : s->ended;
        }
        while (out->len == 0) {
                buf_clear(&s->raw);
                r = fill_raw(s, &s->raw);
                if (r == 0)
                        r = gz_deflate(s->gz, s->raw.p, s->raw.len, s->ended, out);
                if (r < 0 || s->ended || tree_stopped(s->spec->tree))
                        break;
        }
        return r < 0 ? r : s->ended;
}
