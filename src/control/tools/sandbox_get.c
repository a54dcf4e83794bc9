#include "control/copy.h"
#include "control/tool.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define IMAGES_MAX 10
#define IMAGE_BYTES_MAX ((size_t) 1 << 20)  /* of one image */
#define IMAGES_BYTES_MAX ((size_t) 8 << 20) /* of all */

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

static void write_copy(struct jw *w, struct control *ctl, const char *arg, const struct copy *c)
{
        jw_kstr(w, "path", arg);
        copy_write_link(w, ctl, c);
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

        if (!str_starts(str_of(c->type), STR("image/")) || *count >= IMAGES_MAX || n > IMAGE_BYTES_MAX ||
            *total + n > IMAGES_BYTES_MAX)
                return;
        _cleanup_free_ char *p = copy_bytes(t->c, c, IMAGE_BYTES_MAX);
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
        struct root_path at = { 0 };
        int r = split_root(arg, &at, e);

        if (r == 0)
                r = copy_out(t->c, t->who, b->id, at.root, at.path, t->mask, &c, e);
        free(at.path);
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
