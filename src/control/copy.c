#include "control/copy.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEEP_MS ((int64_t) 24 * 3600 * 1000)
#define COPY_MAX ((int64_t) 64 << 30)

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
        if (c->magic_len >= 8 && memcmp(c->magic + 4, "ftyp", 4) == 0)
                return "video/mp4";
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

int coroutine_fn copy_out(struct control *c, const struct identity *who, const char *box, const char *root,
                          const char *path, struct mask *mask, struct copy *ret, struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct object_writer w = { .fd = -1 };
        struct json *head = json_obj();

        *ret = (struct copy){ 0 };
        json_set_str(head, "op", "get");
        json_set_str(head, "path", path);
        json_set_str(head, "root", root);
        int r = guest_open(c, box, head, &g, e);
        if (r == 0) {
                g.idle_ms = 120000;
                r = object_begin(c->objects, &w, e);
        }
        if (r == 0)
                r = read_copy(&g, ret, &w, e);
        if (r < 0) {
                object_abort(&w);
                return r;
        }
        ret->type = type_of(ret);
        ret->bytes = w.bytes;
        (void) snprintf(ret->object, sizeof ret->object, "%s", w.id);
        name_copy(ret, box, path);
        if (mask) {
                _cleanup_free_ char *name = mask_cstr(mask, ret->name);

                (void) snprintf(ret->name, sizeof ret->name, "%s", name);
        }
        r = object_commit(&w, who->account, box, ret->name, ret->type, KEEP_MS, e);
        if (r == 0)
                ret->changed = json_ref(json_get(g.result, "changedWhileReading"));
        return r;
}

void copy_write_link(struct jw *w, const struct control *c, const struct copy *copy)
{
        int64_t until = wall_ms() + COPY_LINK_MS;
        _cleanup_free_ char *url = link_make(c, copy->object, copy->name, until);
        char at[RFC3339_LEN];

        jw_kstr(w, "url", url);
        jw_kstr(w, "expiresAt", rfc3339(until, at));
}

char *copy_bytes(const struct control *c, const struct copy *copy, size_t max)
{
        size_t n = (size_t) copy->bytes, got = 0;
        struct object_row row;

        if (n > max)
                return NULL;
        _cleanup_close_ int fd = object_read(c->objects, copy->object, &row, NULL);
        _cleanup_free_ char *p = fd >= 0 ? try_malloc(n) : NULL;
        while (p && got < n) {
                ssize_t k = pread(fd, p + got, n - got, (off_t) got);

                if (k <= 0)
                        return NULL;
                got += (size_t) k;
        }
        return steal_ptr(p);
}
