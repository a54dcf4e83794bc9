/*
 * One proxied exchange. The call's coroutine sends the request and reads the answer; a body that is not short has a
 * second coroutine, since a service may answer before it has taken all (RFC 9112 §9.5) or while it takes it.
 *
 * What is read from the service lies in the loop's scratch buffer until it is queued to the client: nothing suspends in
 * between, and a waiting exchange holds no buffer.
 */
#include "http/proxy.h"

#include "http/server_impl.h"
#include "loop/stream_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SHORT_BODY ((size_t) 16 << 10) /* goes out in one piece with its head */
#define PIECE ((size_t) 64 << 10)
#define FRONT 32 /* room before a piece for its chunk head; behind it for what ends it */
#define COPY_MAX ((size_t) 16 << 10)
#define CONTINUE_MS 1000      /* a service that has no opinion about the body so far gets it (RFC 9110 §10.1.1) */
#define WRITE_MS (10 * 60000) /* how long either side may take nothing */
#define FRESH_MS 1000         /* what must not be sent twice goes only over a connection used so lately */
#define KEEP_MS 50000
#define UNREAD_MAX ((size_t) 60 << 10) /* behind a head that is not the last */

/* A connection to a service that waits for its client's next request. */
struct upstream {
        struct stream *stream;
        struct conn *conn; /* which it is kept at; NULL while in use */
        int64_t since;
        char key[96];
};

struct exchange {
        struct call *c;
        const struct proxy_target *t;
        struct stream *up; /* NULL once it was given up */
        int64_t idle_ms;   /* how long a kept connection had waited; < 0: a fresh one */
        struct buf in;     /* of a head that came in pieces */
        size_t scanned;
        struct buf body; /* a short one */
        struct h1_body answer;
        bool keep_alive, surplus;
        struct waitq uploaded;
        struct coro *uploader;
        int upload_result;
        bool client_failed;
};

/* ---- connections to the service ---- */

static void upstream_free(void *p)
{
        struct upstream *u = p;

        stream_close(u->stream);
        free(u);
}

static void kept_gone(void *arg)
{
        struct upstream *u = arg;

        u->conn->upstream = NULL;
        upstream_free(u);
}

static void keep(struct exchange *x)
{
        struct upstream *u = xcalloc(1, sizeof *u);

        u->stream = steal_ptr(x->up);
        u->conn = x->c->conn;
        u->since = loop_now();
        (void) snprintf(u->key, sizeof u->key, "%s", x->t->key);
        u->conn->upstream = u;
        u->conn->upstream_free = upstream_free;
        stream_watch(u->stream, kept_gone, u);
}

/* RFC 9110 §9.2.2, of those methods that services hold to it. */
static bool repeatable(const struct exchange *x)
{
        struct str m = x->c->head->method;

        return (str_eq(m, STR("GET")) || str_eq(m, STR("HEAD")) || str_eq(m, STR("OPTIONS"))) && !call_has_body(x->c) &&
               !x->c->head->upgrade;
}

/* The kept connection, if it is to this service, quiet and open. */
static struct stream *take_kept(struct exchange *x, int64_t *idle_ms)
{
        struct upstream *u = steal_ptr(x->c->conn->upstream);
        char c;

        if (!u)
                return NULL;
        struct stream *s = steal_ptr(u->stream);
        bool same = cstr_eq(u->key, x->t->key);
        *idle_ms = loop_now() - u->since;
        free(u);
        stream_watch(s, NULL, NULL);
        /* Bytes without a question belong to nobody: such a connection is not trusted. What came so far was seen while
         * the connection was watched; what must not be sent twice is worth one more look. */
        bool quiet = !s->in.len && !stream_dead(s) && (repeatable(x) || stream_try_read(s, &c, 1) == -EAGAIN);
        if (same && *idle_ms < KEEP_MS && quiet)
                return s;
        stream_close(s);
        return NULL;
}

static int coroutine_fn connect_service(struct exchange *x, bool fresh, struct err *e)
{
        int64_t idle_ms = -1;

        x->up = fresh ? NULL : take_kept(x, &idle_ms);
        if (x->up && !repeatable(x) && idle_ms > FRESH_MS)
                stream_closep(&x->up);
        x->idle_ms = x->up ? idle_ms : -1;
        return x->up ? 0 : x->t->dial(x->t->arg, &x->up, e);
}

static void moved(const struct exchange *x)
{
        if (x->t->moved_ms)
                *x->t->moved_ms = loop_now();
}

/* ---- the request ---- */

static bool short_body(const struct call *c)
{
        return c->head->framing == H1_LENGTH && c->head->length <= SHORT_BODY && !c->head->expect_continue;
}

static bool wants_upgrade(const struct exchange *x)
{
        const struct h1_head *h = x->c->head;

        /* h2c would be HTTP that this proxy does not read. */
        return h->upgrade && x->t->upgraded && !call_has_body(x->c) && !h1_has_token(h, "upgrade", "h2c");
}

static int coroutine_fn read_short_body(struct exchange *x, struct err *e)
{
        x->body = BUF_MAX(SHORT_BODY);
        return call_has_body(x->c) ? call_read_all(x->c, &x->body, e) : 0;
}

static int coroutine_fn send_head(struct exchange *x, struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(2 * H1_HEAD_MAX + SHORT_BODY);
        const struct call *c = x->c;
        int r = proxy_request_head(&b, c->head, call_origin_form(c), call_peer(c), x->t->policy,
                                   c->head->expect_continue, wants_upgrade(x));

        if (r == 0)
                r = buf_addstr(&b, buf_str(&x->body));
        if (r < 0)
                return err_sys(e, r, "the request cannot be passed on");
        r = stream_write(x->up, b.p, b.len, WRITE_MS);
        return r < 0 ? err_sys(e, r, "sending the request") : 0;
}

/* Reads pieces of the client's body into p and sends them; 0 at the end. */
static int coroutine_fn upload_pieces(struct exchange *x, char *p)
{
        bool chunked = x->c->head->framing == H1_CHUNKED;

        for (;;) {
                char *at = p + FRONT;
                ssize_t n = call_read(x->c, at, PIECE);

                if (n < 0) {
                        x->client_failed = true;
                        return (int) n;
                }
                if (!x->up)
                        return -ECANCELED;
                moved(x);
                if (n == 0)
                        return chunked ? stream_write(x->up, "0\r\n\r\n", 5, WRITE_MS) : 0;
                size_t len = (size_t) n;
                if (chunked) {
                        char head[20];
                        size_t k = (size_t) snprintf(head, sizeof head, "%zx\r\n", len);

                        memcpy(at - k, head, k);
                        memcpy(at + len, "\r\n", 2);
                        at -= k;
                        len += k + 2;
                }
                int r = stream_write(x->up, at, len, WRITE_MS);
                if (r < 0)
                        return r;
        }
}

static void coroutine_fn upload_main(void *arg)
{
        struct exchange *x = arg;
        char *p = xmalloc(FRONT + PIECE + FRONT);

        x->upload_result = upload_pieces(x, p);
        free(p);
        /* Without the rest of the request there is nothing to wait for; a service that takes no more may have answered.
         */
        if (x->client_failed)
                stream_closep(&x->up);
        x->uploader = NULL;
        waitq_wake_all(&x->uploaded);
}

static int upload_start(struct exchange *x, struct err *e)
{
        x->upload_result = -EINPROGRESS;
        x->uploader = coro_start(upload_main, x, 0, "proxy upload");
        return x->uploader ? 0 : err_set(e, -EAGAIN, "too many requests are running");
}

/* The uploader borrows this exchange: it leaves first, whatever becomes of the caller. */
static void coroutine_fn upload_stop(struct exchange *x)
{
        if (!x->uploader)
                return;
        coro_cancel(x->uploader);
        coro_shield();
        while (x->uploader)
                (void) waitq_wait(&x->uploaded, -1);
        coro_unshield();
}

/* ---- the answer ---- */

/* Queues what waits for the client and n bytes at p, which must not be part of it. */
static int put(struct call *c, const char *p, size_t n)
{
        struct stream *s = c->conn->stream;
        int r = c->failed;

        if (c->out.len && n && n <= COPY_MAX) {
                if (r == 0)
                        r = buf_add(&c->out, p, n);
                n = 0;
        }
        c->server->stats.bytes_out += c->out.len + n;
        if (r == 0 && c->out.len)
                r = stream_put(s, c->out.p, c->out.len);
        buf_done(&c->out);
        if (r == 0 && n)
                r = stream_put(s, p, n);
        if (r < 0)
                c->failed = r;
        return r;
}

/* Bytes of the body, framed for the client where they lie: FRONT bytes before p and behind p + n are free. */
static int put_piece(struct exchange *x, char *p, size_t n)
{
        struct call *c = x->c;
        char head[20];

        if (c->no_body)
                return 0;
        if (c->chunked && n) {
                size_t k = (size_t) snprintf(head, sizeof head, "%zx\r\n", n);

                memcpy(p + n, "\r\n", 2);
                memcpy(p - k, head, k);
                p -= k;
                n += k + 2;
        }
        if (!c->chunked || !x->answer.done)
                return put(c, p, n);
        if (!n)
                return put(c, "0\r\n\r\n", 5);
        memcpy(p + n, "0\r\n\r\n", 5);
        return put(c, p, n + 5);
}

/* Takes the framing out of p[0..n) in place and passes on what is left. */
static int relay(struct exchange *x, char *p, size_t n)
{
        size_t at = 0, out = 0;

        while (at < n && !x->answer.done) {
                const char *data;
                size_t len;
                long r = h1_body_feed(&x->answer, p + at, n - at, &data, &len);

                if (r < 0) { /* what was good before it goes out, with no end behind it */
                        (void) put_piece(x, p, out);
                        return (int) r;
                }
                if (len && data != p + out)
                        memmove(p + out, data, len);
                out += len;
                at += (size_t) r;
        }
        x->surplus |= at < n;
        return out || x->answer.done || x->c->out.len ? put_piece(x, p, out) : 0;
}

/* 0 when something was read and passed on or the body ended, -EAGAIN when there is nothing. */
static int relay_some(struct exchange *x)
{
        char *p = loop_scratch() + FRONT;
        size_t n = LOOP_SCRATCH - 2 * FRONT;

        if (!x->up->in.len && !x->up->in_err && !x->up->maybe_readable)
                return -EAGAIN;
        if (x->answer.framing == H1_LENGTH && n > x->answer.left)
                n = (size_t) x->answer.left;
        ssize_t got = stream_try_read(x->up, p, n);
        if (got < 0)
                return (int) got;
        moved(x);
        if (got > 0)
                return relay(x, p, (size_t) got);
        if (x->answer.framing != H1_UNTIL_CLOSE)
                return -EPIPE; /* cut short: never to be taken for a whole one (RFC 9112 §8) */
        x->answer.done = true;
        return put_piece(x, p, 0);
}

static int coroutine_fn relay_body(struct exchange *x)
{
        struct call *c = x->c;

        while (!x->answer.done) {
                int r = stream_wait_room(c->conn->stream, STREAM_HIGH_WATER, WRITE_MS);

                if (r < 0)
                        return c->failed = r;
                if (!x->up)
                        return -ECANCELED;
                if (stream_queued(c->conn->stream) > STREAM_HIGH_WATER)
                        continue;
                r = relay_some(x);
                if (r == -EAGAIN) {
                        if (c->out.len) /* what is there goes out before there is more */
                                (void) put(c, NULL, 0);
                        r = stream_wait_readable(x->up, -1);
                }
                if (r == 0 && c->failed)
                        r = c->failed;
                if (r == 0)
                        r = coro_spend();
                if (r < 0)
                        return r;
        }
        return 0;
}

/* An answer's head, parsed into the server's scratch head: valid until the next suspension. */
struct came {
        char *rest; /* what was read behind it, with FRONT bytes of room on both sides */
        size_t n;
};

/* 1 when a whole head is there, 0 when more is needed. */
static int parse_head(struct exchange *x, char *p, size_t n, struct came *ret, struct err *e)
{
        struct h1_error why = { 0 };
        struct h1_head *h = x->c->server->scratch;

        if (x->in.len) {
                if (!buf_room(&x->in, n + FRONT) || buf_add(&x->in, p, n) < 0)
                        return err_set(e, -EPROTO, "the head of the answer is too long");
                p = x->in.p;
                n = x->in.len;
        }
        long used = h1_response_parse(p, n, &x->scanned, x->c->head->method, h, &why);
        if (used < 0)
                return err_set(e, -EPROTO, "the answer is no valid HTTP: %s", why.reason);
        if (used == 0) {
                if (!x->in.len && (!buf_room(&x->in, n + FRONT) || buf_add(&x->in, p, n) < 0))
                        return err_set(e, -ENOMEM, "no memory for the answer");
                return 0;
        }
        *ret = (struct came){ p + used, n - (size_t) used };
        return 1;
}

/* 1 with a head, 0 without (*silent: the connection ended before its first byte), -errno. */
static int coroutine_fn read_head(struct exchange *x, int64_t timeout_ms, struct came *ret, bool *silent, struct err *e)
{
        int64_t until = deadline_in(timeout_ms);

        for (;;) {
                int r = x->up ? stream_wait_readable(x->up, deadline_left(until)) : -ECANCELED;
                if (r < 0)
                        return err_sys(e, r, "waiting for the answer");
                char *p = loop_scratch() + FRONT;
                ssize_t n = x->up ? stream_try_read(x->up, p, LOOP_SCRATCH - 2 * FRONT) : -ECANCELED;
                if (n == -EAGAIN)
                        continue;
                if (n <= 0) {
                        *silent = !x->in.len && n != -ECANCELED;
                        return n == -ECANCELED ? err_sys(e, (int) n, "waiting for the answer")
                                               : err_set(e, -ECONNRESET, "the connection ended without an answer");
                }
                r = parse_head(x, p, (size_t) n, ret, e);
                if (r != 0)
                        return r;
        }
}

/* 1xx other than 101 is not for the client (RFC 9110 §15.2 lets a proxy drop it); behind it comes the next head. */
static int next_head(struct exchange *x, const struct came *came)
{
        int r = 0;

        if (came->n > UNREAD_MAX)
                r = -EPROTO;
        else if (came->n)
                r = stream_unread(x->up, came->rest, came->n);
        buf_done(&x->in);
        x->scanned = 0;
        return r;
}

static bool interim(const struct exchange *x)
{
        unsigned status = x->c->server->scratch->status;

        return status < 200 && status != 101;
}

/* A final head, or 101. */
static int coroutine_fn final_head(struct exchange *x, struct came *ret, bool *silent, struct err *e)
{
        for (int i = 0; i < 100; i++) {
                int r = read_head(x, x->t->answer_ms ? x->t->answer_ms : -1, ret, silent, e);

                if (r < 0 || !interim(x))
                        return r;
                x->idle_ms = -1; /* it lives: never again on another connection */
                r = next_head(x, ret);
                if (r < 0)
                        return err_sys(e, r, "the answer is no valid HTTP");
        }
        return err_set(e, -EPROTO, "interim answers without an end");
}

/* The client's head, from the scratch head; nothing suspends from parsing it to here. */
static int answer_head(struct exchange *x, struct err *e)
{
        struct call *c = x->c;
        const struct h1_head *h = c->server->scratch;
        int64_t length = -1;

        c->has_nosniff = true; /* not ours to add */
        c->has_date = h1_find(h, "date") != NULL;
        if (h->framing == H1_LENGTH || (h->framing == H1_NO_BODY && h1_find(h, "content-length")))
                length = (int64_t) h->length;
        int r = proxy_response_headers(&c->extra, h, x->t->policy);
        if (r < 0)
                return err_set(e, -EPROTO, "the head of the answer is too long");
        if (x->uploader || !c->body.done)
                c->keep = false; /* what it did not take cannot be told from the next request in time */
        h1_body_init(&x->answer, h);
        x->keep_alive = h->keep_alive;
        r = call_prepare(c, h->status, NULL, length);
        return r < 0 ? err_sys(e, r, "the answer cannot be passed on") : 0;
}

static int coroutine_fn switch_protocols(struct exchange *x, const struct came *came, struct err *e)
{
        struct call *c = x->c;
        const struct h1_head *h = c->server->scratch;
        struct stream *client = NULL;
        char token[64];

        if (!wants_upgrade(x) || !h->upgrade)
                return err_set(e, -EPROTO, "the service changed to a protocol that was not asked for");
        struct str name = h1_find(h, "upgrade")->value;
        (void) snprintf(token, sizeof token, "%.*s", (int) name.n, name.p);
        int r = proxy_response_headers(&c->extra, h, x->t->policy);
        if (r == 0 && came->n)
                r = came->n > UNREAD_MAX ? -EPROTO : stream_unread(x->up, came->rest, came->n);
        if (r < 0)
                return err_sys(e, r, "the service's change of protocol cannot be passed on");
        if (call_upgrade(c, token, &client) == 0)
                x->t->upgraded(x->t->arg, client, steal_ptr(x->up));
        return 0;
}

static int coroutine_fn answer(struct exchange *x, struct came *came, struct err *e)
{
        struct call *c = x->c;

        if (c->server->scratch->status == 101)
                return switch_protocols(x, came, e);
        int r = answer_head(x, e);
        if (r < 0)
                return r;
        r = x->answer.done ? put_piece(x, came->rest, 0) : came->n ? relay(x, came->rest, came->n) : 0;
        x->surplus |= x->answer.framing == H1_NO_BODY && came->n;
        if (r == 0)
                r = relay_body(x);
        if (r == 0 && c->out.len)
                r = put(c, NULL, 0);
        if (r < 0) {
                call_abort(c); /* a cut answer must not look like a whole one */
                return 0;
        }
        c->left = 0;
        c->ended = true;
        if (!x->uploader && x->upload_result == 0 && x->keep_alive && !x->surplus && x->up && c->conn)
                keep(x);
        return 0;
}

/* ---- the whole ---- */

/* The service's word on a body that the client has not sent yet. 1: it answered already. */
static int coroutine_fn ask_for_body(struct exchange *x, struct came *came, struct err *e)
{
        struct err why = { 0 };
        bool silent;

        if (!x->c->head->expect_continue)
                return 0;
        int r = read_head(x, CONTINUE_MS, came, &silent, &why);
        if (r == -ETIMEDOUT)
                return 0;
        if (r < 0) {
                *e = why;
                return r;
        }
        return interim(x) ? next_head(x, came) : 1;
}

static int coroutine_fn attempt(struct exchange *x, bool fresh, bool *again, struct err *e)
{
        struct came came = { 0 };
        bool silent = false;
        int r = connect_service(x, fresh, e);

        if (r < 0)
                return r;
        bool reused = x->idle_ms >= 0;
        *again = false;
        r = send_head(x, e);
        if (r < 0) { /* an answer may be there although not all was taken */
                *again = reused && (r == -EPIPE || r == -ECONNRESET) && repeatable(x);
                return r;
        }
        bool streamed = call_has_body(x->c) && !short_body(x->c);
        int early = streamed ? ask_for_body(x, &came, e) : 0;
        if (early < 0)
                return early;
        if (streamed && !early && (r = upload_start(x, e)) < 0)
                return r;
        r = early ? 1 : final_head(x, &came, &silent, e);
        if (r < 0) {
                *again = reused && silent && x->idle_ms >= 0 && repeatable(x);
                return r;
        }
        return answer(x, &came, e);
}

int coroutine_fn proxy_serve(struct call *c, const struct proxy_target *t, struct err *e)
{
        struct exchange x = { .c = c, .t = t, .in = BUF_MAX(H1_HEAD_MAX + LOOP_SCRATCH) };
        bool again = false;
        int r = 0;

        waitq_init(&x.uploaded);
        call_cancel_on_hangup(c, true);
        if (short_body(c))
                r = read_short_body(&x, e);
        if (r == 0) {
                r = attempt(&x, false, &again, e);
                if (r < 0 && again) {
                        stream_closep(&x.up);
                        r = attempt(&x, true, &again, e);
                }
        }
        upload_stop(&x);
        stream_closep(&x.up);
        buf_done(&x.in);
        buf_done(&x.body);
        if (c->handed_over || c->started)
                return 0;
        /* The client is gone or sent a broken body: the server says what is left to say. */
        return c->gone || x.client_failed || c->body_failed || coro_cancelled() ? 0 : r;
}
