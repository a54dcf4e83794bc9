/* The answer of a call. Heads wait in c->out and leave together with the first bytes of the body: one write, one
 * packet. */
#include "http/server_impl.h"

#include <errno.h>
#include <stdlib.h>

#define COPY_MAX \
        ((size_t) 16 << 10) /* body bytes that are copied behind what waits, rather than written by themselves */

/* Framing is the server's business, in every answer: a handler cannot contradict it. */
static bool header_is_ours(struct str name)
{
        return str_ieq(name, STR("content-length")) || str_ieq(name, STR("transfer-encoding")) ||
               str_ieq(name, STR("connection")) || str_ieq(name, STR("keep-alive")) || str_ieq(name, STR("upgrade")) ||
               str_ieq(name, STR("trailer"));
}

int call_add_header(struct call *c, const char *name, const char *value)
{
        struct str k = str_of(name);

        if (c->started || header_is_ours(k))
                return -EINVAL;
        int r = h1_write_header(&c->extra, name, str_of(value));
        if (r == 0) {
                c->has_date |= str_ieq(k, STR("date"));
                c->has_nosniff |= str_ieq(k, STR("x-content-type-options"));
        }
        return r;
}

void call_abort(struct call *c)
{
        c->failed = -ECONNABORTED;
        c->started = c->ended = true;
}

void call_bare(struct call *c)
{
        c->bare = true;
}

/* Chooses how the end of the answer is told (RFC 9112 §6) and writes the lines for it. */
static int add_framing(struct call *c, int64_t length)
{
        bool head = str_eq(c->head->method, STR("HEAD"));
        unsigned status = c->status;

        c->no_body = head || status == 204 || status == 304 || status < 200;
        if (status == 204 || status < 200) /* RFC 9110 §8.6: no length here */
                return 0;
        if (length >= 0) {
                c->counted = !c->no_body;
                c->left = (uint64_t) length;
                return status == 304 ? 0 : buf_addf(&c->out, "Content-Length: %lld\r\n", (long long) length);
        }
        if (status == 304)
                return 0;
        if (c->head->minor == 1) {
                c->chunked = !c->no_body;
                return buf_adds(&c->out, "Transfer-Encoding: chunked\r\n");
        }
        c->keep &= c->no_body; /* HTTP/1.0: the end of the connection is the end of the body */
        return 0;
}

/* Whether the connection can live on is known now, but for a body that turns out to be longer than what is drained. */
static int add_connection(struct call *c)
{
        if (c->server->stopping)
                c->keep = false;
        if (!c->body.done && ((c->head->expect_continue && !c->continue_sent) ||
                              (c->body.framing == H1_LENGTH && c->body.left > DRAIN_MAX)))
                c->keep = false;
        if (!c->keep)
                return buf_adds(&c->out, "Connection: close\r\n");
        return c->head->minor == 0 ? buf_adds(&c->out, "Connection: keep-alive\r\n") : 0;
}

int call_prepare(struct call *c, unsigned status, const char *type, int64_t length)
{
        int r;

        if (c->started)
                return -EALREADY;
        if (status < 200)
                return -EINVAL;
        c->started = true;
        c->status = status;
        r = h1_write_status_line(&c->out, status);
        if (r == 0 && !c->has_date && !c->bare) /* RFC 9110 §6.6.1 */
                r = buf_addf(&c->out, "Date: %s\r\n", server_date(c->server));
        if (r == 0 && type)
                r = h1_write_header(&c->out, "Content-Type", str_of(type));
        if (r == 0)
                r = add_framing(c, length);
        if (r == 0)
                r = add_connection(c);
        if (r == 0 && !c->has_nosniff && !c->bare)
                r = buf_adds(&c->out, "X-Content-Type-Options: nosniff\r\n");
        if (r == 0)
                r = buf_addstr(&c->out, buf_str(&c->extra));
        if (r == 0)
                r = h1_write_end(&c->out);
        buf_done(&c->extra);
        if (r < 0)
                c->failed = r;
        return r;
}

static int coroutine_fn raw_write(struct call *c, const void *p, size_t n)
{
        struct http_server *s = c->server;

        if (c->failed)
                return c->failed;
        c->failed = stream_write(c->conn->stream, p, n, s->limits.write_ms);
        if (c->failed == 0)
                s->stats.bytes_out += n;
        return c->failed;
}

/* What waits, then the bytes. The buffer is given back: a call that waits holds none. */
static int coroutine_fn push(struct call *c, const void *p, size_t n, const char *suffix)
{
        struct buf out = c->out;
        int r = c->failed;

        c->out = BUF_MAX(out.max);
        if (r == 0 && n <= COPY_MAX) {
                /* Alone it needs no copy. */
                if (out.len || *suffix) {
                        r = buf_add(&out, p, n);
                        if (r == 0)
                                r = buf_adds(&out, suffix);
                        n = 0;
                }
        }
        if (r == 0 && out.len)
                r = raw_write(c, out.p, out.len);
        if (r == 0 && n)
                r = raw_write(c, p, n);
        if (r == 0 && n && *suffix)
                r = raw_write(c, suffix, strlen(suffix));
        buf_done(&out);
        if (r < 0)
                c->failed = r;
        return r;
}

int coroutine_fn call_start(struct call *c, unsigned status, const char *type, int64_t length)
{
        return call_prepare(c, status, type, length);
}

int coroutine_fn call_write(struct call *c, const void *p, size_t n)
{
        if (!c->started || c->ended || c->handed_over)
                return -EINVAL;
        if (!n || c->no_body)
                return c->failed;
        if (c->counted) {
                if (n > c->left)
                        return -EMSGSIZE;
                c->left -= n;
        }
        if (!c->chunked)
                return push(c, p, n, "");
        int r = h1_write_chunk_head(&c->out, n);
        return r < 0 ? r : push(c, p, n, "\r\n");
}

int coroutine_fn call_flush(struct call *c)
{
        int r = c->handed_over ? -EINVAL : push(c, "", 0, "");

        if (r == 0)
                r = c->failed = stream_flush(c->conn->stream, c->server->limits.write_ms);
        return r;
}

int coroutine_fn call_end(struct call *c)
{
        if (c->ended || c->handed_over)
                return c->failed;
        c->ended = true;
        if (c->failed == 0 && c->counted && c->left)
                c->failed = -EPIPE; /* less than was announced: the connection must break */
        return push(c, "", 0, c->chunked ? "0\r\n\r\n" : "");
}

int coroutine_fn call_reply(struct call *c, unsigned status, const char *type, const void *body, size_t n)
{
        int r = call_prepare(c, status, type, body ? (int64_t) n : 0);

        if (r < 0)
                return r;
        c->ended = true;
        return push(c, body ? body : "", body && !c->no_body ? n : 0, "");
}

int coroutine_fn call_reply_json(struct call *c, unsigned status, const struct json *j)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 256 << 20);
        int r = json_print(j, &b);

        return r < 0 ? r : call_reply(c, status, "application/json", b.p, b.len);
}

int coroutine_fn call_reply_error(struct call *c, unsigned status, const char *code, const char *fmt, ...)
{
        _cleanup_buf_ struct buf message = BUF_MAX(8192), b = BUF_MAX(64 << 10);
        va_list ap;

        va_start(ap, fmt);
        int r = buf_addv(&message, fmt, ap);
        va_end(ap);
        if (r == 0)
                r = http_error_body(&b, code, buf_str(&message));
        return r < 0 ? r : call_reply(c, status, "application/json", b.p, b.len);
}

int coroutine_fn call_upgrade(struct call *c, const char *token, struct stream **ret)
{
        struct conn *conn = c->conn;

        /* A body would stand between the head and the new protocol's first byte (RFC 9110 §7.8). */
        if (c->started || !c->head->upgrade || call_has_body(c))
                return -EINVAL;
        c->started = c->ended = true;
        c->status = 101;
        int r = h1_write_status_line(&c->out, 101);
        if (r == 0)
                r = h1_write_header(&c->out, "Upgrade", str_of(token));
        if (r == 0)
                r = buf_adds(&c->out, "Connection: Upgrade\r\n");
        if (r == 0)
                r = buf_addstr(&c->out, buf_str(&c->extra));
        if (r == 0)
                r = h1_write_end(&c->out);
        if (r == 0)
                r = push(c, "", 0, "");
        if (r < 0) {
                c->failed = r;
                return r;
        }
        stream_watch(conn->stream, NULL, NULL);
        c->handed_over = true;
        *ret = steal_ptr(conn->stream);
        c->conn = NULL;
        conn_free(conn);
        return 0;
}
