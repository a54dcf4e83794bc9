#include "control/guest_client.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEND_MS 120000
#define SMALL_FRAME 1024u

int coroutine_fn guest_open(struct control *c, const char *box, struct json *head, struct guest_op *ret, struct err *e)
{
        _cleanup_json_ struct json *h = head;
        _cleanup_buf_ struct buf text = BUF_MAX(GUEST_CONTROL_MAX);

        *ret = (struct guest_op){ .idle_ms = -1, .send_ms = SEND_MS };
        json_set_int(h, "v", GUEST_VERSION);
        if (json_print(h, &text) < 0)
                return err_set(
                        e, -E2BIG,
                        "the call is too large: its command, environment and input together must stay under 256 KiB");
        return guest_open_text(c, box, buf_str(&text), ret, e);
}

int coroutine_fn guest_open_text(struct control *c, const char *box, struct str text, struct guest_op *ret,
                                 struct err *e)
{
        *ret = (struct guest_op){ .idle_ms = -1, .send_ms = SEND_MS };
        int r = c->driver->ops->connect(c->driver, box, &ret->s, e);

        if (r < 0)
                return r;
        r = guest_send(ret, GUEST_CONTROL, false, text.p, text.n);
        if (r < 0) {
                guest_close(ret);
                return err_sys(e, r, "the box does not take the call");
        }
        return 0;
}

int coroutine_fn guest_send(struct guest_op *g, enum guest_stream stream, bool end, const void *p, size_t n)
{
        const char *at = p;

        do {
                size_t part = min_size(n, GUEST_FRAME_MAX);
                unsigned char head[GUEST_HEADER_LEN];
                struct guest_header h = { stream, end && part == n ? GUEST_END : 0, (uint32_t) part };

                guest_encode(&h, head);
                int r;
                if (part <= SMALL_FRAME) { /* one system call for what most frames are */
                        char frame[GUEST_HEADER_LEN + SMALL_FRAME];

                        memcpy(frame, head, sizeof head);
                        if (part)
                                memcpy(frame + sizeof head, at, part);
                        r = stream_write(g->s, frame, sizeof head + part, g->send_ms);
                } else {
                        r = stream_write(g->s, head, sizeof head, g->send_ms);
                        if (r == 0)
                                r = stream_write(g->s, at, part, g->send_ms);
                }
                if (r < 0)
                        return r;
                at += part;
                n -= part;
        } while (n);
        return 0;
}

static int coroutine_fn read_control(struct guest_op *g, struct json **ret, struct err *e)
{
        _cleanup_buf_ struct buf text = BUF_MAX(GUEST_CONTROL_MAX);
        char *p = buf_room(&text, g->left);

        if (!p)
                return err_set(e, -ENOMEM, "no memory for the answer of the box's daemon");
        int r = g->left ? stream_read_full(g->s, p, g->left, g->idle_ms) : -EPROTO;
        if (r < 0) /* -ENODATA would say that the result was read */
                return err_set(e, r == -ENODATA ? -ECONNRESET : r,
                               "the box's daemon broke off in the middle of an answer");
        buf_grew(&text, g->left);
        g->left = 0;
        r = json_parse(text.p, text.len, ret, e);
        return r < 0 ? err_wrap(e, "the box's daemon sent a broken answer") : 0;
}

ssize_t coroutine_fn guest_recv(struct guest_op *g, void *p, size_t n, enum guest_stream *ret_stream,
                                struct json **ret_control, struct err *e)
{
        if (g->result)
                return -ENODATA;
        while (g->left == 0) {
                unsigned char head[GUEST_HEADER_LEN];
                int r = stream_read_full(g->s, head, sizeof head, g->idle_ms);

                if (r == 0)
                        r = guest_decode(head, &g->frame);
                if (r < 0)
                        return err_set(e, r == -ENODATA ? -ECONNRESET : r,
                                       "the box's daemon ended the call without a result");
                g->left = g->frame.length;
                if (g->frame.stream != GUEST_CONTROL)
                        continue;
                struct json *control = NULL;
                r = read_control(g, &control, e);
                if (r < 0)
                        return r;
                if (json_get_bool(control, "done", false)) {
                        g->result = control;
                        return -ENODATA;
                }
                *ret_control = control;
                return 0;
        }
        ssize_t got = stream_read(g->s, p, min_size(n, g->left), g->idle_ms);
        if (got == 0)
                got = -ECONNRESET;
        if (got < 0)
                return err_set(e, (int) got, "the box's daemon ended the call without a result");
        g->left -= (uint32_t) got;
        *ret_stream = g->frame.stream;
        return got;
}

int guest_result_error(const struct json *result, struct err *e)
{
        static const struct {
                const char *name;
                int code;
        } codes[] = { { "ENOENT", -ENOENT },
                      { "EEXIST", -EEXIST },
                      { "ENOSPC", -ENOSPC },
                      { "EINVAL", -EINVAL },
                      { "ENOTDIR", -ENOTDIR },
                      { "EISDIR", -EISDIR },
                      { "EACCES", -EACCES },
                      { "EPERM", -EPERM },
                      { "ELOOP", -ELOOP },
                      { "EXDEV", -EXDEV },
                      { "EMFILE", -EMFILE },
                      { "EAGAIN", -EAGAIN },
                      { "EPROTO", -EPROTO },
                      { "ETIMEDOUT", -ETIMEDOUT },
                      { "EDQUOT", -ENOSPC },
                      { "E2BIG", -E2BIG },
                      { "EBADMSG", -EBADMSG },
                      { "ECONNREFUSED", -ECONNREFUSED },
                      { "ENAMETOOLONG", -ENAMETOOLONG } };
        const char *error = json_get_str(result, "error", NULL);

        if (!error)
                return 0;
        const char *code = json_get_str(result, "code", "");
        int r = -EIO;
        for (size_t i = 0; i < ARRAY_LEN(codes); i++)
                if (cstr_eq(codes[i].name, code))
                        r = codes[i].code;
        return err_set(e, r, "%.400s", error);
}

int coroutine_fn guest_finish(struct guest_op *g, struct err *e)
{
        char drop[4096];

        for (;;) {
                enum guest_stream stream;
                _cleanup_json_ struct json *control = NULL;
                ssize_t n = guest_recv(g, drop, sizeof drop, &stream, &control, e);

                if (n == -ENODATA)
                        return guest_result_error(g->result, e);
                if (n < 0)
                        return (int) n;
        }
}

void guest_close(struct guest_op *g)
{
        if (g->s)
                stream_close(steal_ptr(g->s));
        json_unref(steal_ptr(g->result));
}

int coroutine_fn guest_ask(struct control *c, const char *box, struct json *head, struct json **ret, struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        int r = guest_open(c, box, head, &g, e);

        if (r < 0)
                return r;
        g.idle_ms = 60000;
        r = guest_finish(&g, e);
        if (r == 0 && ret)
                *ret = json_ref(g.result);
        return r;
}

int work_path(const char *arg, const char *name, char **ret, struct err *e)
{
        struct str s = str_of(arg);

        if (str_eq(s, STR("/work")) || str_eq(s, STR("/work/")) || s.n == 0 || str_eq(s, STR(".")) ||
            str_eq(s, STR("./"))) {
                *ret = xstrdup(".");
                return 0;
        }
        if (str_starts(s, STR("/work/")))
                s = str_n(s.p + 6, s.n - 6);
        while (s.n > 1 && s.p[s.n - 1] == '/')
                s.n--;
        if (str_starts(s, STR("./")))
                s = str_n(s.p + 2, s.n - 2);
        if (s.n && s.p[0] == '/')
                return err_set(e, -EINVAL, "`%s` must lie below /work, got \"%.200s\"", name, arg);
        if (s.n && s.p[0] == '~')
                return err_set(e, -EINVAL, "`%s` must lie below /work; ~ is not expanded, got \"%.200s\"", name, arg);
        if (!guest_path_ok(s.p, s.n) || s.n > GUEST_PATH_MAX)
                return err_set(e, -EINVAL,
                               "`%s` must be a path below /work without empty, \".\" or \"..\" parts, got \"%.200s\"",
                               name, arg);
        *ret = xstrndup(s.p, s.n);
        return 0;
}
