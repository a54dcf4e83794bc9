/* A request that is being handled: its life, what it says, its body. The answer is call_write.c. */
#include "http/server_impl.h"

#include "http/body_read.h"
#include "http/url.h"

#include <errno.h>
#include <stdlib.h>

/* "/path?query" of an origin-form or absolute-form target (RFC 9112 §3.2). */
static struct str origin_form(struct str t)
{
        if (t.n && t.p[0] != '/' && t.p[0] != '*') {
                const char *authority = memmem(t.p, t.n, "://", 3);
                size_t at = authority ? (size_t) (authority - t.p) + 3 : t.n;

                while (at < t.n && t.p[at] != '/' && t.p[at] != '?')
                        at++;
                t = str_n(t.p + at, t.n - at);
                if (!t.n)
                        t = STR("/");
        }
        return t;
}

static void find_path(struct call *c)
{
        struct str target = origin_form(c->head->target);
        struct buf path = BUF_MAX(target.n);

        if (url_split_target(target, &path, &c->query) < 0) {
                /* Not clean: no path for handlers, which match on it; the query is still there. */
                c->query = target;
                (void) str_cut(&c->query, '?');
                buf_clear(&path);
        }
        c->path_len = path.len;
        c->path = xmemdup(buf_cstr(&path), path.len + 1);
        buf_done(&path);
}

struct call *call_new(struct conn *conn, const struct h1_head *h, const char *p, size_t n)
{
        struct call *c = xcalloc(1, sizeof *c);

        c->server = conn->server;
        c->conn = conn;
        c->head = h1_head_keep(h, p, n);
        c->extra = BUF_MAX(H1_HEAD_MAX);
        c->out = BUF_MAX(SIZE_MAX / 2);
        c->keep = c->head->keep_alive;
        h1_body_init(&c->body, c->head);
        find_path(c);
        return c;
}

void call_free(struct call *c)
{
        buf_done(&c->extra);
        buf_done(&c->out);
        free(c->head);
        free(c->path);
        free(c);
}

struct str call_method(const struct call *c)
{
        return c->head->method;
}

struct str call_path(const struct call *c)
{
        return str_n(c->path, c->path_len);
}

struct str call_target(const struct call *c)
{
        return c->head->target;
}

struct str call_origin_form(const struct call *c)
{
        return origin_form(c->head->target);
}

void call_attach(struct call *c, void *p, void (*free_fn)(void *p))
{
        struct conn *conn = c->conn;

        if (conn->attached)
                conn->attached_free(conn->attached);
        conn->attached = p;
        conn->attached_free = free_fn;
}

void *call_attached(const struct call *c)
{
        return c->conn ? c->conn->attached : NULL;
}

struct str call_host(const struct call *c)
{
        return c->head->host;
}

struct str call_header(const struct call *c, const char *name)
{
        const struct h1_header *h = h1_find(c->head, name);

        return h ? h->value : str_n(NULL, 0);
}

const struct h1_head *call_head(const struct call *c)
{
        return c->head;
}

int call_query(const struct call *c, const char *key, struct buf *out)
{
        return url_query(c->query, key, out);
}

const char *call_peer(const struct call *c)
{
        return c->conn ? c->conn->addr->ip : "";
}

bool call_has_body(const struct call *c)
{
        return c->head->framing == H1_CHUNKED || (c->head->framing == H1_LENGTH && c->head->length);
}

int64_t call_body_length(const struct call *c)
{
        if (c->head->framing == H1_CHUNKED)
                return -1;
        return c->head->framing == H1_LENGTH ? (int64_t) c->head->length : 0;
}

void call_cancel_on_hangup(struct call *c, bool cancel)
{
        c->cancel = cancel;
        if (cancel && c->gone)
                coro_cancel(c->coro);
}

bool call_gone(const struct call *c)
{
        return c->gone;
}

void call_on_gone(struct call *c, void (*fn)(void *arg), void *arg)
{
        c->on_gone = fn;
        c->on_gone_arg = arg;
}

bool call_started(const struct call *c)
{
        return c->started;
}

static void hung_up(void *arg)
{
        struct call *c = arg;

        c->gone = true;
        if (c->on_gone)
                c->on_gone(c->on_gone_arg);
        if (c->cancel)
                coro_cancel(c->coro);
}

static void watch(struct call *c)
{
        stream_watch(c->conn->stream, hung_up, c);
}

/* Before the first read: the client may be waiting to be asked (RFC 9110 §10.1.1), and hang-ups now come as a read of
 * 0. */
static int coroutine_fn body_start(struct call *c)
{
        c->body_touched = true;
        stream_watch(c->conn->stream, NULL, NULL);
        if (!c->head->expect_continue || c->started)
                return 0;
        c->continue_sent = true;
        return stream_write(c->conn->stream, "HTTP/1.1 100 Continue\r\n\r\n", 25, c->server->limits.write_ms);
}

static ssize_t coroutine_fn read_body(struct call *c, void *p, size_t n, int64_t timeout_ms)
{
        ssize_t r = 0;

        if (c->handed_over)
                return -EINVAL;
        if (c->body_failed)
                return c->body_failed;
        if (c->body.done || !n)
                return 0;
        if (!c->body_touched)
                r = body_start(c);
        if (r == 0)
                r = body_read(c->conn->stream, &c->body, p, n, timeout_ms);
        if (r > 0)
                c->server->stats.bytes_in += (size_t) r;
        if (r < 0) {
                c->body_failed = (int) r;
                c->keep = false;
                c->gone |= r == -EPIPE || r == -ECONNRESET;
        } else if (c->body.done) {
                watch(c);
        }
        return r;
}

ssize_t coroutine_fn call_read(struct call *c, void *p, size_t n)
{
        return read_body(c, p, n, c->server->limits.body_ms);
}

int coroutine_fn call_read_all(struct call *c, struct buf *b, struct err *e)
{
        int64_t length = call_body_length(c);
        size_t step = (size_t) 16 << 10;

        if (length >= 0 && (uint64_t) length > b->max - b->len)
                return err_set(e, -EMSGSIZE, "the body is larger than %zu bytes", b->max);
        if (length >= 0)
                step = (size_t) length;
        for (;;) {
                char extra = 0;
                size_t room = min_size(step, b->max - b->len);
                char *p = room ? buf_room(b, room) : &extra; /* full: only the end may follow */

                if (!p)
                        return err_set(e, -ENOMEM, "no memory for the body");
                ssize_t r = call_read(c, p, room ? room : 1);
                if (r < 0)
                        return err_sys(e, (int) r, "reading the body");
                if (r == 0)
                        return 0;
                if (!room)
                        return err_set(e, -EMSGSIZE, "the body is larger than %zu bytes", b->max);
                buf_grew(b, (size_t) r);
        }
}

/* Reads away what the handler left of the body, when that is little. 0 when the connection can be used again. */
static int coroutine_fn drain(struct call *c)
{
        size_t size = 4096, seen = 0;

        /* A client that waits for 100-continue may or may not send the body now: nobody can tell (RFC 9110 §10.1.1). */
        if ((c->head->expect_continue && !c->continue_sent) || c->body_failed)
                return -EPIPE;
        if (c->body.framing == H1_LENGTH && c->body.left > DRAIN_MAX)
                return -EMSGSIZE;
        _cleanup_free_ char *p = xmalloc(size);
        while (!c->body.done) {
                ssize_t r = read_body(c, p, size, DRAIN_MS);

                if (r < 0)
                        return (int) r;
                seen += (size_t) r;
                if (seen > DRAIN_MAX)
                        return -EMSGSIZE;
        }
        return 0;
}

/* What the handler did not say. */
static void coroutine_fn answer_for(struct call *c)
{
        if (c->body_failed == -EPROTO)
                (void) call_reply_error(c, 400, "bad_request", "the body is malformed");
        else if (c->body_failed == -ETIMEDOUT)
                (void) call_reply_error(c, 408, "timeout", "the body took too long");
        else
                (void) call_reply_error(c, 500, "internal", "the request was not answered");
}

/* The answer is out (or failed). Decides about the connection; the call is freed by the caller. */
static void coroutine_fn finish(struct call *c)
{
        struct conn *conn = c->conn;
        int r;

        if (!c->started && !c->gone)
                answer_for(c);
        /* A cancelled handler has not said all it had to say: its answer must not look whole. */
        r = c->started && (c->ended || !coro_cancelled()) ? call_end(c) : -ECANCELED;
        stream_watch(conn->stream, NULL, NULL);
        conn->call = NULL;
        if (r < 0) {
                conn_free(conn); /* a cut answer must not look like a whole one */
                return;
        }
        if (c->keep && !c->body.done)
                c->keep = drain(c) == 0;
        if (c->keep && !c->gone)
                conn_idle(conn);
        else
                conn_linger(conn);
}

void coroutine_fn call_main(void *arg)
{
        struct call *c = arg;
        struct http_server *s = c->server;

        watch(c);
        s->handler(c, s->arg);
        if (!c->handed_over)
                finish(c);
        list_remove(&c->link);
        s->running--;
        call_free(c);
        server_coro_ended(s);
}
