#include "http/client.h"

#include "base/list.h"
#include "http/body_read.h"
#include "http/tls.h"
#include "loop/loop.h"
#include "loop/stream_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define POOL_MAX 8
#define POOL_MS 50000 /* below the 60 s after which our own server closes */
#define CONNECT_MS 10000
#define WRITE_MS 30000
#define COPY_MAX ((size_t) 16 << 10)

struct pooled {
        struct list link; /* newest first */
        struct http_client *client;
        struct stream *stream;
        int64_t since;
};

struct http_client {
        struct url origin;
        struct list pool;
        size_t pool_len;
        struct tls_ctx *tls;
        char *ca;
        int coroutine_fn (*dial)(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e);
        void *dial_arg;
        struct h1_head *scratch;
};

struct hc {
        struct http_client *client;
        struct stream *stream;
        char *method;
        struct buf request; /* the head, kept for a second try */
        const void *body;
        size_t body_len;
        int64_t connect_ms, answer_ms, write_ms;
        struct h1_head *head;
        struct h1_body in;
        bool streamed, once, sent, reused, aborted;
};

struct http_client *http_client_new(const struct url *origin)
{
        struct http_client *h = xcalloc(1, sizeof *h);

        h->origin = *origin;
        list_init(&h->pool);
        h->scratch = xcalloc(1, sizeof *h->scratch);
        return h;
}

void http_client_set_ca(struct http_client *h, const char *path)
{
        free(h->ca);
        h->ca = xstrdup(path);
}

void http_client_set_dial(struct http_client *h,
                          int coroutine_fn (*dial)(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e),
                          void *arg)
{
        h->dial = dial;
        h->dial_arg = arg;
}

/* The pool */

static struct stream *pooled_out(struct pooled *p)
{
        struct stream *s = p->stream;

        list_remove(&p->link);
        p->client->pool_len--;
        stream_watch(s, NULL, NULL);
        free(p);
        return s;
}

static void pooled_gone(void *arg)
{
        stream_close(pooled_out(arg));
}

static void pool_put(struct http_client *h, struct stream *s)
{
        struct pooled *p = xcalloc(1, sizeof *p);

        while (h->pool_len >= POOL_MAX)
                pooled_gone(list_entry(h->pool.prev, struct pooled, link));
        p->client = h;
        p->stream = s;
        p->since = loop_now();
        list_append(h->pool.next, &p->link);
        h->pool_len++;
        stream_watch(s, pooled_gone, p);
}

/* The newest connection that is quiet and open, or NULL. */
static struct stream *pool_take(struct http_client *h)
{
        while (!list_empty(&h->pool)) {
                struct pooled *p = list_entry(h->pool.next, struct pooled, link);
                bool old = loop_now() - p->since > POOL_MS;
                struct stream *s = pooled_out(p);
                char c;

                /* Bytes without a question belong to nobody: such a connection is not trusted. */
                if (!old && !stream_dead(s) && stream_try_read(s, &c, 1) == -EAGAIN)
                        return s;
                stream_close(s);
        }
        return NULL;
}

void http_client_free(struct http_client *h)
{
        if (!h)
                return;
        while (!list_empty(&h->pool))
                pooled_gone(list_entry(h->pool.next, struct pooled, link));
        tls_ctx_unref(h->tls);
        free(h->ca);
        free(h->scratch);
        free(h);
}

/* Opening */

static int coroutine_fn connect_origin(struct http_client *h, int64_t timeout_ms, struct stream **ret, struct err *e)
{
        int64_t until = loop_now() + timeout_ms;
        struct stream *s = NULL;
        int r = 0;

        if (h->origin.https && !h->tls)
                r = tls_ctx_client(h->ca, &h->tls, e);
        if (r == 0 && h->dial)
                r = h->dial(h->dial_arg, timeout_ms, &s, e);
        else if (r == 0)
                r = stream_connect_tcp(h->origin.host, h->origin.port, timeout_ms, &s, e);
        if (r < 0)
                return r;
        if (h->origin.https) {
                struct stream *secure;
                int64_t left = until - loop_now();

                r = tls_wrap(h->tls, s, h->origin.host, left > 0 ? left : 0, &secure, e);
                if (r < 0) {
                        stream_close(s);
                        return r;
                }
                s = secure;
        }
        *ret = s;
        return 0;
}

static int add_host(struct buf *b, const struct url *u)
{
        bool v6 = strchr(u->host, ':') != NULL;
        bool standard = u->port == (u->https ? 443 : 80);
        int r = buf_addf(b, v6 ? "Host: [%s]" : "Host: %s", u->host);

        if (r == 0 && !standard)
                r = buf_addf(b, ":%u", u->port);
        return r == 0 ? buf_adds(b, "\r\n") : r;
}

static bool needs_length(const char *method)
{
        return cstr_eq(method, "POST") || cstr_eq(method, "PUT") || cstr_eq(method, "PATCH"); /* RFC 9110 §8.6 */
}

static int build_head(struct buf *b, const struct http_client *h, const struct http_request *q)
{
        bool has_host = false;
        int r = h1_write_request_line(b, q->method, q->path);

        for (const char *const *p = q->headers; r == 0 && p && p[0]; p += 2) {
                struct str name = str_of(p[0]);

                if (str_ieq(name, STR("content-length")) || str_ieq(name, STR("transfer-encoding")))
                        return -EINVAL; /* framing is decided here */
                has_host |= str_ieq(name, STR("host"));
                r = h1_write_header(b, p[0], str_of(p[1]));
        }
        if (r == 0 && !has_host)
                r = add_host(b, &h->origin);
        if (r == 0 && q->streamed)
                r = buf_adds(b, "Transfer-Encoding: chunked\r\n");
        else if (r == 0 && (q->body_len || needs_length(q->method)))
                r = buf_addf(b, "Content-Length: %zu\r\n", q->body_len);
        return r == 0 ? h1_write_end(b) : r;
}

/* Writes head and given body. *touched is set once a byte may have left. */
static int coroutine_fn send_request(struct hc *x, bool *touched)
{
        int r;

        if (x->body_len && x->body_len <= COPY_MAX) {
                _cleanup_buf_ struct buf both = BUF_MAX(x->request.len + x->body_len);

                r = buf_addstr(&both, buf_str(&x->request));
                if (r == 0)
                        r = buf_add(&both, x->body, x->body_len);
                *touched = true;
                return r < 0 ? r : stream_write(x->stream, both.p, both.len, x->write_ms);
        }
        *touched = true;
        r = stream_write(x->stream, x->request.p, x->request.len, x->write_ms);
        if (r == 0 && x->body_len)
                r = stream_write(x->stream, x->body, x->body_len, x->write_ms);
        return r;
}

static int coroutine_fn reopen(struct hc *x, bool *touched, struct err *e)
{
        int r = connect_origin(x->client, x->connect_ms, &x->stream, e);

        x->reused = false;
        if (r < 0)
                return r;
        if (x->aborted) {
                stream_closep(&x->stream);
                return err_set(e, -ECANCELED, "the request was given up");
        }
        r = send_request(x, touched);
        return r < 0 ? err_sys(e, r, "sending the request") : 0;
}

static int coroutine_fn open_and_send(struct hc *x, bool fresh, bool *touched, struct err *e)
{
        x->stream = fresh ? NULL : pool_take(x->client);
        x->reused = x->stream != NULL;
        if (x->reused) {
                int r = send_request(x, touched);

                if (r == 0)
                        return 0;
                /* An answer may be there although the body did not go out whole; only a closed connection is retried.
                 */
                if ((r != -EPIPE && r != -ECONNRESET) || x->streamed || x->once)
                        return err_sys(e, r, "sending the request");
                stream_closep(&x->stream);
        }
        return reopen(x, touched, e);
}

int coroutine_fn hc_open(struct http_client *h, const struct http_request *q, struct hc **ret, bool *ret_not_sent,
                         struct err *e)
{
        struct hc *x = xcalloc(1, sizeof *x);
        bool touched = false;

        x->client = h;
        x->request = BUF_MAX(H1_HEAD_MAX);
        x->method = xstrdup(q->method);
        x->body = q->body;
        x->body_len = q->streamed ? 0 : q->body_len;
        x->streamed = q->streamed;
        x->once = q->once;
        x->write_ms = q->write_ms ? q->write_ms : WRITE_MS;
        x->sent = !q->streamed;
        x->connect_ms = q->connect_ms ? q->connect_ms : CONNECT_MS;
        x->answer_ms = q->answer_ms;
        int r = build_head(&x->request, h, q);
        if (r < 0)
                r = err_sys(e, r, "the request cannot be written");
        else
                r = open_and_send(x, q->fresh, &touched, e);
        if (ret_not_sent)
                *ret_not_sent = !touched;
        if (r < 0) {
                hc_close(x);
                return r;
        }
        *ret = x;
        return 0;
}

/* Streamed bodies */

int coroutine_fn hc_write(struct hc *x, const void *p, size_t n)
{
        _cleanup_buf_ struct buf b = BUF_MAX(COPY_MAX + 64);
        int r;

        if (x->aborted)
                return -ECANCELED;
        if (!x->streamed || x->sent)
                return -EINVAL;
        if (!n)
                return 0;
        r = h1_write_chunk_head(&b, n);
        if (r == 0 && n <= COPY_MAX) {
                r = buf_add(&b, p, n);
                if (r == 0)
                        r = buf_adds(&b, "\r\n");
                return r < 0 ? r : stream_write(x->stream, b.p, b.len, x->write_ms);
        }
        if (r == 0)
                r = stream_write(x->stream, b.p, b.len, x->write_ms);
        if (r == 0 && !x->aborted)
                r = stream_write(x->stream, p, n, x->write_ms);
        if (r == 0 && !x->aborted)
                r = stream_write(x->stream, "\r\n", 2, x->write_ms);
        return x->aborted ? -ECANCELED : r;
}

int coroutine_fn hc_write_end(struct hc *x)
{
        if (x->aborted)
                return -ECANCELED;
        if (!x->streamed || x->sent)
                return -EINVAL;
        int r = stream_write(x->stream, "0\r\n\r\n", 5, x->write_ms);
        x->sent = r == 0;
        return r;
}

/* Answers */

/* One head. *silent tells that the connection ended before its first byte. */
static int coroutine_fn read_head(struct hc *x, int64_t until, bool *silent, struct err *e)
{
        _cleanup_buf_ struct buf in = BUF_MAX(H1_HEAD_MAX + 8192);
        struct h1_head *h = x->client->scratch;
        struct h1_error why = { 0 };
        size_t scanned = 0;

        for (;;) {
                int64_t left = until < 0 ? -1 : until - loop_now();
                char *room = buf_room(&in, in.len ? 4096 : 1024);

                if (!room)
                        return err_set(e, -EPROTO, "the answer's head is too long");
                ssize_t n = stream_read(x->stream, room, in.len ? 4096 : 1024, until < 0 || left > 0 ? left : 0);
                if (x->aborted)
                        return err_set(e, -ECANCELED, "the request was given up");
                if (n <= 0) {
                        *silent = in.len == 0 && (n == 0 || n == -ECONNRESET || n == -EPIPE);
                        return n == 0 ? err_set(e, -EPIPE, "the server closed the connection without an answer")
                                      : err_sys(e, (int) n, "waiting for the answer");
                }
                buf_grew(&in, (size_t) n);
                long used = h1_response_parse(in.p, in.len, &scanned, str_of(x->method), h, &why);
                if (used < 0)
                        return err_set(e, -EPROTO, "the answer is no valid HTTP: %s", why.reason);
                if (used > 0) {
                        x->head = h1_head_keep(h, in.p, (size_t) used);
                        h1_body_init(&x->in, h);
                        return stream_unread(x->stream, in.p + used, in.len - (size_t) used);
                }
        }
}

int coroutine_fn hc_answer(struct hc *x, struct err *e)
{
        int64_t until = x->answer_ms ? loop_now() + x->answer_ms : -1;
        bool silent = false, touched;

        if (x->aborted)
                return err_set(e, -ECANCELED, "the request was given up");
        for (;;) {
                int r = read_head(x, until, &silent, e);

                /* RFC 9112 §9.3.1: a kept connection may close at any time, also just when a request is on its way. */
                if (r < 0 && silent && x->reused && !x->streamed && !x->once) {
                        stream_closep(&x->stream);
                        r = reopen(x, &touched, e);
                        if (r == 0)
                                continue;
                }
                if (r < 0)
                        return r;
                if (!x->head)
                        return err_set(e, -EPROTO, "the answer has no head");
                if (x->head->status >= 200 || x->head->status == 101)
                        break;
                free(steal_ptr(x->head)); /* 1xx: the real one follows, RFC 9110 §15.2 */
                x->reused = false;
        }
        buf_done(&x->request);
        return 0;
}

unsigned hc_status(const struct hc *x)
{
        return x->head ? x->head->status : 0;
}

const struct h1_head *hc_head(const struct hc *x)
{
        return x->head;
}

struct str hc_header(const struct hc *x, const char *name)
{
        const struct h1_header *h = x->head ? h1_find(x->head, name) : NULL;

        return h ? h->value : str_n(NULL, 0);
}

ssize_t coroutine_fn hc_read(struct hc *x, void *p, size_t n, int64_t idle_ms)
{
        if (x->aborted)
                return -ECANCELED;
        if (!x->head || !x->stream || !n)
                return -EINVAL;
        ssize_t r = body_read(x->stream, &x->in, p, n, idle_ms);
        return x->aborted ? -ECANCELED : r;
}

int coroutine_fn hc_read_all(struct hc *x, struct buf *b, int64_t idle_ms, struct err *e)
{
        for (;;) {
                char extra = 0;
                size_t room = min_size((size_t) 16 << 10, b->max - b->len);
                char *p = room ? buf_room(b, room) : &extra; /* full: only the end may follow */

                if (!p)
                        return err_set(e, -ENOMEM, "no memory for the answer");
                ssize_t r = hc_read(x, p, room ? room : 1, idle_ms);
                if (r < 0)
                        return err_sys(e, (int) r, "reading the answer");
                if (r == 0)
                        return 0;
                if (!room)
                        return err_set(e, -EMSGSIZE, "the answer is larger than %zu bytes", b->max);
                buf_grew(b, (size_t) r);
        }
}

struct stream *hc_take_stream(struct hc *x)
{
        return x->head && x->head->status == 101 ? steal_ptr(x->stream) : NULL;
}

void hc_close(struct hc *x)
{
        if (!x)
                return;
        if (x->stream && x->head && x->head->status != 101 && x->in.done && x->sent && x->head->keep_alive)
                pool_put(x->client, x->stream);
        else
                stream_close(x->stream);
        buf_done(&x->request);
        free(x->method);
        free(x->head);
        free(x);
}

void hc_closep(struct hc **x)
{
        hc_close(*x);
        *x = NULL;
}

void hc_abort(struct hc *x)
{
        x->aborted = true;
        stream_closep(&x->stream);
}
