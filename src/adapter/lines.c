#include "adapter/lines.h"

void lines_init(struct lines *l, size_t max)
{
        *l = (struct lines){ .pending = BUF_MAX(max) };
}

void lines_done(struct lines *l)
{
        buf_done(&l->pending);
}

static int give(struct str line, int (*fn)(struct str line, void *arg), void *arg)
{
        line = str_trim(line, " \t\r");
        return line.n ? fn(line, arg) : 0;
}

static void keep(struct lines *l, struct str part)
{
        if (!l->too_long && part.n && buf_add(&l->pending, part.p, part.n) < 0)
                l->too_long = true;
}

static int end_line(struct lines *l, struct str part, int (*fn)(struct str line, void *arg), void *arg)
{
        int r;

        if (l->pending.len == 0 && !l->too_long && part.n <= l->pending.max)
                return give(part, fn, arg);
        keep(l, part);
        r = l->too_long ? fn(str_n(NULL, 0), arg) : give(buf_str(&l->pending), fn, arg);
        l->too_long = false;
        buf_done(&l->pending); /* a long line must not cost memory for ever */
        return r;
}

int lines_feed(struct lines *l, const char *p, size_t n, int (*fn)(struct str line, void *arg), void *arg)
{
        struct str in = str_n(p, n);
        int r = 0;

        while (r == 0 && in.n) {
                const char *end = memchr(in.p, '\n', in.n);

                if (!end) {
                        keep(l, in);
                        break;
                }
                struct str part = str_cut(&in, '\n');
                r = end_line(l, part, fn, arg);
        }
        return r;
}

int lines_end(struct lines *l, int (*fn)(struct str line, void *arg), void *arg)
{
        return l->pending.len || l->too_long ? end_line(l, str_n(NULL, 0), fn, arg) : 0;
}
