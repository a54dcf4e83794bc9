#include "auth/template.h"

#include "auth/html.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

#define DEPTH_MAX 12

struct frame {
        const struct json *data;
        const struct frame *up;
};

struct render {
        const struct template_set *set;
        struct buf *out;
        int depth;
};

static int run(struct render *r, struct str t, const struct frame *f);

static const struct json *lookup(const struct frame *f, struct str name)
{
        char key[64];

        if (name.n >= sizeof key)
                return NULL;
        (void) snprintf(key, sizeof key, "%.*s", (int) name.n, name.p);
        for (; f; f = f->up) {
                /* {{.}}: the item itself. */
                if (cstr_eq(key, "."))
                        return f->data;
                if (json_has(f->data, key))
                        return json_get(f->data, key);
        }
        return NULL;
}

static int add_value(struct render *r, const struct json *v)
{
        switch (json_type(v)) {
        case JSON_STRING:
                return html_escape(r->out, json_strn(v));
        case JSON_INT:
                return buf_addf(r->out, "%lld", (long long) json_int(v));
        default:
                return 0;
        }
}

static bool is_true(const struct json *v)
{
        switch (json_type(v)) {
        case JSON_NULL:
                return false;
        case JSON_BOOL:
                return json_bool(v);
        case JSON_STRING:
                return json_strn(v).n > 0;
        case JSON_ARRAY:
                return json_len(v) > 0;
        case JSON_INT:
                return json_int(v) != 0;
        default:
                return true;
        }
}

/* A text of the catalogue: it is ours, but it is escaped all the same, so that it may hold any character. */
static int add_text(struct render *r, struct str name, const struct frame *f)
{
        char key[64];

        if (name.n >= sizeof key)
                return -EINVAL;
        (void) snprintf(key, sizeof key, "%.*s", (int) name.n, name.p);
        const struct json *v = json_get(r->set->texts, key);
        struct str s = json_strn(v ? v : json_get(r->set->fallback, key));
        if (!s.p)
                return -ENOENT;
        while (s.n) {
                struct str rest = s, piece = str_cut(&rest, '{');
                int e = html_escape(r->out, piece);

                if (e < 0 || piece.n == s.n)
                        return e;
                struct str value = str_cut(&rest, '}');
                e = add_value(r, lookup(f, value));
                if (e < 0)
                        return e;
                s = rest;
        }
        return 0;
}

/* The end of the section that begins at t: the offset of its closing tag. Sections of the same name may nest. */
static bool find_close(struct str t, struct str name, size_t *ret_at, size_t *ret_after)
{
        int open = 1;

        for (size_t i = 0; i + 3 < t.n; i++) {
                if (t.p[i] != '{' || t.p[i + 1] != '{' || !strchr("#^/", t.p[i + 2]))
                        continue;
                struct str tag = str_n(t.p + i + 3, t.n - i - 3);
                if (tag.n < name.n + 2 || !str_starts(tag, name) || tag.p[name.n] != '}')
                        continue;
                open += t.p[i + 2] == '/' ? -1 : 1;
                if (open == 0) {
                        *ret_at = i;
                        *ret_after = i + 3 + name.n + 2;
                        return true;
                }
        }
        return false;
}

static int run_section(struct render *r, char kind, struct str name, struct str body, const struct frame *f)
{
        const struct json *v = lookup(f, name);
        int e = 0;

        if (kind == '^')
                return is_true(v) ? 0 : run(r, body, f);
        if (!is_true(v))
                return 0;
        if (json_type(v) != JSON_ARRAY) {
                struct frame inner = { .data = v, .up = f };

                return run(r, body, json_type(v) == JSON_OBJECT ? &inner : f);
        }
        for (size_t i = 0; e == 0 && i < json_len(v); i++) {
                struct frame inner = { .data = json_at(v, i), .up = f };

                e = run(r, body, &inner);
        }
        return e;
}

static int run_file(struct render *r, struct str name, const struct frame *f)
{
        char file[64];
        size_t n = 0;

        if (name.n >= sizeof file || r->depth >= DEPTH_MAX)
                return -EINVAL;
        (void) snprintf(file, sizeof file, "%.*s", (int) name.n, name.p);
        const char *p = r->set->file(file, &n);
        if (!p)
                return -ENOENT;
        r->depth++;
        int e = run(r, str_n(p, n), f);
        r->depth--;
        return e;
}

static int add_asset(struct render *r, struct str name)
{
        char file[64];

        (void) snprintf(file, sizeof file, "%.*s", (int) min_size(name.n, sizeof file - 1), name.p);
        const char *path = r->set->asset(file);
        return path ? html_escape(r->out, str_of(path)) : -ENOENT;
}

/* One tag (without braces) at the start of *t; the section it opens is consumed. */
static int run_tag(struct render *r, struct str tag, struct str *t, const struct frame *f)
{
        char kind = tag.n ? tag.p[0] : '\0';
        struct str name = tag.n ? str_n(tag.p + 1, tag.n - 1) : tag;
        size_t at, after;

        switch (kind) {
        case '_':
                return add_text(r, name, f);
        case '>':
                return run_file(r, name, f);
        case '@':
                return add_asset(r, name);
        case '#':
        case '^':
                if (r->depth >= DEPTH_MAX || !find_close(*t, name, &at, &after))
                        return -EINVAL;
                struct str body = str_n(t->p, at);
                *t = str_n(t->p + after, t->n - after);
                r->depth++;
                int e = run_section(r, kind, name, body, f);
                r->depth--;
                return e;
        case '/':
        case '\0':
                return -EINVAL;
        default:
                return add_value(r, lookup(f, tag));
        }
}

static int run(struct render *r, struct str t, const struct frame *f)
{
        while (t.n) {
                const char *open = memmem(t.p, t.n, "{{", 2);
                size_t n = open ? (size_t) (open - t.p) : t.n;
                int e = buf_add(r->out, t.p, n);

                if (e < 0 || !open)
                        return e;
                t = str_n(open + 2, t.n - n - 2);
                const char *close = memmem(t.p, t.n, "}}", 2);
                if (!close)
                        return -EINVAL;
                struct str tag = str_n(t.p, (size_t) (close - t.p));
                t = str_n(close + 2, t.n - tag.n - 2);
                e = run_tag(r, tag, &t, f);
                if (e < 0)
                        return e;
        }
        return 0;
}

int template_render(const struct template_set *set, const char *file, const struct json *data, struct buf *out)
{
        struct render r = { .set = set, .out = out };
        struct frame top = { .data = data };
        size_t before = out->len;
        int e = run_file(&r, str_of(file), &top);

        if (e < 0)
                out->len = before;
        return e;
}
