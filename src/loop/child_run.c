#include <errno.h>
#include <signal.h>
#include <string.h>

#include "loop/child.h"
#include "loop/loop_impl.h"
#include "loop/stream_impl.h"

/* The first bytes of stderr; the rest is read and dropped, or the child would block on it. */
struct errors {
        char text[1024];
        size_t n;
};

static void on_stderr(void *arg, const void *p, size_t n)
{
        struct errors *x = arg;
        size_t take = min_size(n, sizeof(x->text) - 1 - x->n);

        memcpy(x->text + x->n, p, take);
        x->n += take;
}

/* All of in is queued at once: it is in memory anyway, and writing needs no second coroutine. */
static int feed(struct child *c, const void *in, size_t n)
{
        struct stream *s = child_take_stdio(c, 0);
        int r = n > 0 ? stream_put(s, in, n) : 0;

        /* A child that does not read its input is no error. */
        stream_close_after_flush(s, INT64_MAX);
        return r == -EPIPE ? 0 : r;
}

static int coroutine_fn collect(struct child *c, struct buf *out, int64_t until)
{
        struct stream *s = child_stdio(c, 1);

        for (;;) {
                char *room = NULL;
                size_t n = min_size((size_t) 64 << 10, out->max - out->len);

                if (n > 0)
                        room = buf_room(out, n);
                if (n > 0 && !room)
                        return -ENOMEM;
                char spare;
                ssize_t r = stream_read(s, n > 0 ? room : &spare, n > 0 ? n : 1, deadline_left(until));
                if (r <= 0)
                        return (int) r;
                if (n == 0)
                        return -ENOBUFS; /* exactly full is fine, one byte more is not */
                buf_grew(out, (size_t) r);
        }
}

int coroutine_fn child_run(const struct child_spec *spec, const void *in, size_t in_len, struct buf *out,
                           int64_t timeout_ms, struct err *e)
{
        _cleanup_(child_freep) struct child *c = NULL;
        struct child_spec piped = *spec;
        struct errors errors = { .n = 0 };
        int64_t until = deadline_in(timeout_ms);
        int r = coro_check();

        piped.io[0] = in_len > 0 ? CHILD_PIPE : CHILD_NULL;
        piped.io[1] = piped.io[2] = CHILD_PIPE;
        if (r == 0)
                r = child_spawn(&piped, &c, e);
        if (r < 0)
                return r;
        stream_passive(child_stdio(c, 2), on_stderr, NULL, &errors);
        if (in_len > 0)
                r = feed(c, in, in_len);
        if (r == 0)
                r = collect(c, out, until);
        if (r == 0)
                r = child_wait(c, deadline_left(until));
        /* What it wrote before its end may still be in the pipe. */
        char rest[sizeof(errors.text)];
        ssize_t n = stream_try_read(child_stdio(c, 2), rest, sizeof(rest));
        if (n > 0)
                on_stderr(&errors, rest, (size_t) n);
        if (r < 0)
                return err_sys(e, r, "%s", spec->argv[0]);
        while (errors.n > 0 && (errors.text[errors.n - 1] == '\n' || errors.text[errors.n - 1] == ' '))
                errors.n--;
        errors.text[errors.n] = '\0';
        if (errors.n > 0)
                (void) err_set(e, r == 0 ? 0 : -EIO, "%s", errors.text);
        return r;
}
