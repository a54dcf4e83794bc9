#include "control/guest_client.h"
#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINK_MS ((int64_t) 3600 * 1000)
#define KEEP_MS ((int64_t) 24 * 3600 * 1000)
#define IMAGES_MAX 10
#define IMAGE_BYTES_MAX ((size_t) 1 << 20)  /* of one image */
#define IMAGES_BYTES_MAX ((size_t) 8 << 20) /* of all */
#define COPY_MAX ((int64_t) 64 << 30)

struct copy {
        char object[25], name[256];
        const char *type;
        int64_t bytes;
        bool archive;
        struct json *changed; /* array or NULL */
        unsigned char magic[16];
        size_t magic_len;
};

struct root_path {
        const char *root;
        char *path;
};

/* Below /work, or /tmp, or /dev/shm: the only places a person's files are. */
static int split_root(const char *arg, struct root_path *ret, struct err *e)
{
        static const struct {
                const char *prefix, *root;
        } roots[] = { { "/tmp", "tmp" }, { "/dev/shm", "shm" } };

        for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
                struct str s = str_of(arg), p = str_of(roots[i].prefix);

                if (!str_starts(s, p) || (s.n > p.n && s.p[p.n] != '/'))
                        continue;
                s = str_trim(str_n(s.p + p.n, s.n - p.n), "/");
                if (s.n && !guest_path_ok(s.p, s.n))
                        return err_set(e, -EINVAL, "`path` must not hold empty, \".\" or \"..\" parts, got \"%.200s\"",
                                       arg);
                *ret = (struct root_path){ roots[i].root, s.n ? xstrndup(s.p, s.n) : xstrdup(".") };
                return 0;
        }
        ret->root = "work";
        return work_path(arg, "path", &ret->path, e);
}

static const char *type_of(const struct copy *c)
{
        static const struct {
                const char *magic;
                size_t n;
                const char *type;
        } magics[] = { { "\x89PNG\r\n\x1a\n", 8, "image/png" },
                       { "\xff\xd8\xff", 3, "image/jpeg" },
                       { "GIF8", 4, "image/gif" } };

        if (c->archive)
                return "application/gzip";
        for (size_t i = 0; i < ARRAY_LEN(magics); i++)
                if (c->magic_len >= magics[i].n && memcmp(c->magic, magics[i].magic, magics[i].n) == 0)
                        return magics[i].type;
        if (c->magic_len >= 12 && memcmp(c->magic, "RIFF", 4) == 0 && memcmp(c->magic + 8, "WEBP", 4) == 0)
                return "image/webp";
        return "application/octet-stream";
}

static int take_data(struct copy *c, struct object_writer *w, const char *p, size_t n, struct err *e)
{
        size_t head = min_size(n, sizeof c->magic - c->magic_len);

        memcpy(c->magic + c->magic_len, p, head);
        c->magic_len += head;
        if (w->bytes + (int64_t) n > COPY_MAX)
                return err_set(e, -EFBIG, "larger than 64 GiB");
        int r = object_write(w, p, n);
        return r < 0 ? err_sys(e, r, "the server cannot store the copy") : 0;
}

static int coroutine_fn read_copy(struct guest_op *g, struct copy *c, struct object_writer *w, struct err *e)
{
        const size_t size = 64 << 10;
        _cleanup_free_ char *piece = xmalloc(size);

        for (;;) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;
                ssize_t n = guest_recv(g, piece, size, &stream, &control, e);
                int r = 0;

                if (n == -ENODATA)
                        return guest_result_error(g->result, e);
                if (n < 0)
                        return (int) n;
                if (control)
                        c->archive = cstr_eq(json_get_str(control, "type", ""), "dir");
                else if (stream == GUEST_DATA)
                        r = take_data(c, w, piece, (size_t) n, e);
                if (r < 0)
                        return r;
        }
}

static void name_copy(struct copy *c, const char *box, const char *path)
{
        const char *slash = path ? strrchr(path, '/') : NULL;
        const char *base = slash ? slash + 1 : path;

        if (!base || cstr_eq(base, "."))
                base = box;
        (void) snprintf(c->name, sizeof c->name, "%.200s%s", base, c->archive ? ".tar.gz" : "");
}

static int coroutine_fn copy_out(struct tool_call *t, struct box *b, const char *arg, struct copy *c, struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct object_writer w = { .fd = -1 };
        struct root_path at = { 0 };
        int r = split_root(arg, &at, e);

        if (r < 0)
                return r;
        struct json *head = json_obj();
        json_set_str(head, "op", "get");
        json_set_str(head, "path", at.path);
        json_set_str(head, "root", at.root);
        r = guest_open(t->c, b->id, head, &g, e);
        if (r == 0) {
                g.idle_ms = 120000;
                r = object_begin(t->c->objects, &w, e);
        }
        if (r == 0)
                r = read_copy(&g, c, &w, e);
        if (r < 0) {
                object_abort(&w);
                free(at.path);
                return r;
        }
        c->changed = json_ref(json_get(g.result, "changedWhileReading"));
        c->type = type_of(c);
        c->bytes = w.bytes;
        (void) snprintf(c->object, sizeof c->object, "%s", w.id);
        name_copy(c, b->id, at.path);
        free(at.path);
        if (t->mask) { /* the bytes are the file's own; its name is written down and goes into a link */
                _cleanup_free_ char *name = mask_cstr(t->mask, c->name);

                (void) snprintf(c->name, sizeof c->name, "%s", name);
        }
        return object_commit(&w, t->who->account, b->id, c->name, c->type, KEEP_MS, e);
}

static void write_copy(struct jw *w, struct control *ctl, const char *arg, const struct copy *c)
{
        int64_t until = wall_ms() + LINK_MS;
        _cleanup_free_ char *url = link_make(ctl, c->object, c->name, until);
        char at[RFC3339_LEN];

        jw_kstr(w, "path", arg);
        jw_kstr(w, "url", url);
        jw_kstr(w, "expiresAt", rfc3339(until, at));
        jw_kint(w, "bytes", c->bytes);
        jw_kbool(w, "archive", c->archive);
        jw_kstr(w, "contentType", c->type);
        jw_karr(w, "changedWhileReading");
        for (size_t i = 0; i < json_len(c->changed) && i < 100; i++)
                jw_json(w, json_at(c->changed, i));
        jw_end(w);
}

/* Small images are shown to the model at once. */
static void show_image(struct tool_call *t, const struct copy *c, size_t *count, size_t *total)
{
        size_t n = (size_t) c->bytes;
        struct object_row row;

        if (!str_starts(str_of(c->type), STR("image/")) || *count >= IMAGES_MAX || n > IMAGE_BYTES_MAX ||
            *total + n > IMAGES_BYTES_MAX)
                return;
        _cleanup_close_ int fd = object_read(t->c->objects, c->object, &row, NULL);
        _cleanup_free_ char *p = fd >= 0 ? try_malloc(n) : NULL;
        size_t got = 0;
        while (p && got < n) {
                ssize_t k = pread(fd, p + got, n - got, (off_t) got);

                if (k <= 0)
                        return;
                got += (size_t) k;
        }
        if (!p)
                return;
        mcp_result_image(t->r, c->type, p, n);
        ++*count;
        *total += n;
}

struct images {
        size_t count, bytes;
};

static int coroutine_fn get_one(struct tool_call *t, struct box *b, const char *arg, struct jw *w,
                                struct images *images, struct err *e)
{
        struct copy c = { 0 };
        int r = copy_out(t, b, arg, &c, e);

        if (r == 0) {
                write_copy(w, t->c, arg, &c);
                show_image(t, &c, &images->count, &images->bytes);
        }
        json_unref(c.changed);
        return r;
}

/* One entry of files[], as JSON text. */
static int coroutine_fn get_entry(struct tool_call *t, struct box *b, const char *arg, struct images *images,
                                  struct buf *out)
{
        struct err e = { 0 };
        struct jw w;

        jw_init(&w, out);
        jw_obj(&w);
        int r = get_one(t, b, arg, &w, images, &e);
        if (r == -ECANCELED)
                return r;
        if (r < 0) {
                jw_kstr(&w, "path", arg);
                jw_kstr(&w, "error", err_text(&e));
        }
        return jw_end_all(&w);
}

/* As many as the result has room for; how many that leaves out is said, and none of those is copied. */
static void coroutine_fn get_many(struct tool_call *t, struct box *b, const struct json *paths)
{
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX * 2);
        struct images images = { 0 };
        size_t i = 0, n = json_len(paths);
        struct jw w;

        jw_init(&w, &out);
        jw_obj(&w);
        jw_karr(&w, "files");
        for (; i < n; i++) {
                _cleanup_buf_ struct buf entry = BUF_MAX(TOOL_TEXT_MAX);
                int r = get_entry(t, b, json_str(json_at(paths, i)), &images, &entry);

                if (r == -ECANCELED)
                        return;
                if (r < 0 || out.len + entry.len > TOOL_TEXT_MAX - 512)
                        break;
                jw_raw(&w, buf_str(&entry));
        }
        jw_end(&w);
        if (i < n) {
                jw_kint(&w, "leftOut", (int64_t) (n - i));
                jw_kstr(&w, "next",
                        "the result is full: ask for the rest of `paths` in another call, or for a folder that holds "
                        "them");
        }
        tool_answer(t, &w, &out);
}

void coroutine_fn tool_sandbox_get(struct tool_call *t)
{
        const char *path = json_get_str(t->args, "path", NULL);
        const struct json *paths = json_get(t->args, "paths");
        _cleanup_box_ struct box *b = NULL;
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX);
        struct images images = { 0 };
        struct err e = { 0 };
        struct jw w;

        if (!path == !paths) {
                mcp_fail(t->r, "sandbox_get: give either `path` (one file or folder) or `paths` (several)");
                return;
        }
        if (box_acquire(t->c, t->who, json_get_str(t->args, "id", ""), &b, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        if (paths) {
                get_many(t, b, paths);
                return;
        }
        jw_init(&w, &out);
        jw_obj(&w);
        int r = get_one(t, b, path, &w, &images, &e);
        if (r == -ECANCELED)
                return;
        if (r < 0)
                mcp_fail(t->r, "sandbox_get: %s: %s", path, err_text(&e));
        else
                tool_answer(t, &w, &out);
}
