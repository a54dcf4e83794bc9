/* A connection while no request runs on it: a small passive object that collects a head. */
#include "http/server_impl.h"

#include <errno.h>
#include <stdlib.h>

#define POST_MAX ((size_t) 64 << 10)
#define LINGERING_MAX 1024 /* beyond, connections are closed without ceremony */

static struct addr *addr_get(struct http_server *s, struct stream *stream)
{
        struct str peer = str_of(stream_peer(stream));
        const char *colon = memrchr(peer.p, ':', peer.n);

        if (colon)
                peer.n = (size_t) (colon - peer.p);
        peer = str_trim(peer, "[]");
        peer.n = min_size(peer.n, sizeof(struct addr) - offsetof(struct addr, ip) - 1);
        struct addr *a = map_get(s->addrs, peer);
        if (!a) {
                a = xcalloc(1, sizeof *a);
                memcpy(a->ip, peer.p, peer.n);
                (void) map_put(s->addrs, peer, a);
        }
        a->count++;
        return a;
}

static void addr_put(struct http_server *s, struct addr *a)
{
        if (--a->count)
                return;
        (void) map_del(s->addrs, str_of(a->ip));
        free(a);
}

static bool is_loopback(const struct addr *a)
{
        return str_starts(str_of(a->ip), STR("127.")) || cstr_eq(a->ip, "::1") || cstr_eq(a->ip, "unix");
}

void conn_enter(struct conn *c, enum conn_state state)
{
        list_remove(&c->link);
        c->server->counts[c->state]--;
        c->state = state;
        c->server->counts[state]++;
        c->since = loop_now();
        list_append(&c->server->conns[state], &c->link);
}

void conn_free(struct conn *c)
{
        struct http_server *s = c->server;

        list_remove(&c->link);
        s->counts[c->state]--;
        s->open--;
        addr_put(s, c->addr);
        buf_done(&c->in);
        if (c->upstream)
                c->upstream_free(c->upstream);
        if (c->attached)
                c->attached_free(c->attached);
        stream_close(c->stream);
        tls_ctx_unref(c->tls);
        free(c);
}

void conn_drop(struct conn *c)
{
        stream_close_after_flush(steal_ptr(c->stream), c->server->limits.write_ms);
        conn_free(c);
}

static void linger_data(void *arg, const void *p, size_t n)
{
        struct conn *c = arg;

        c->server->stats.bytes_in += n;
}

static void linger_end(void *arg, int r)
{
        (void) r;
        conn_free(arg);
}

void conn_linger(struct conn *c)
{
        buf_done(&c->in);
        if (stream_dead(c->stream) || c->server->dying) {
                conn_drop(c);
                return;
        }
        if (c->server->counts[CONN_LINGER] >=
            LINGERING_MAX) { /* a flood: the answer may be lost, descriptors are not */
                conn_free(c);
                return;
        }
        conn_enter(c, CONN_LINGER);
        stream_watch(c->stream, NULL, NULL);
        if (stream_shutdown(c->stream) < 0) {
                conn_free(c);
                return;
        }
        stream_passive(c->stream, linger_data, linger_end, c);
}

const char *http_error_code(unsigned status)
{
        switch (status) {
        case 400:
                return "bad_request";
        case 408:
                return "timeout";
        case 413:
                return "too_large";
        case 414:
                return "uri_too_long";
        case 417:
                return "expectation_failed";
        case 431:
                return "headers_too_large";
        case 501:
                return "not_implemented";
        case 503:
                return "overloaded";
        case 505:
                return "version_not_supported";
        default:
                return "internal";
        }
}

int http_error_body(struct buf *b, const char *code, struct str message)
{
        struct jw w;

        jw_init(&w, b);
        jw_obj(&w);
        jw_kstrn(&w, "error", message);
        jw_kstr(&w, "code", code);
        return jw_end_all(&w);
}

/* An answer without a call: to what is no request, and when there is no room for one. Outside of any coroutine. */
void conn_refuse(struct conn *c, unsigned status, const char *reason)
{
        _cleanup_buf_ struct buf body = BUF_MAX(1024), out = BUF_MAX(4096);
        struct http_server *s = c->server;
        int r = http_error_body(&body, http_error_code(status), str_of(reason));

        s->stats.refused++;
        if (r == 0)
                r = h1_write_status_line(&out, status);
        if (r == 0)
                r = buf_addf(
                        &out,
                        "Date: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n"
                        "X-Content-Type-Options: nosniff\r\n%s\r\n",
                        server_date(s), body.len, status == 503 ? "Retry-After: 2\r\n" : "");
        if (r == 0)
                r = buf_addstr(&out, buf_str(&body));
        stream_passive(c->stream, NULL, NULL, NULL);
        if (r == 0)
                r = stream_post(c->stream, out.p, out.len, POST_MAX);
        if (r < 0) {
                conn_free(c);
                return;
        }
        s->stats.bytes_out += out.len;
        conn_linger(c);
}

/* p[0..used) is a head, what follows was read too far. */
static void start_call(struct conn *c, const char *p, size_t used, size_t n)
{
        struct http_server *s = c->server;

        if (s->running >= s->limits.requests_running) {
                conn_refuse(c, 503, "too many requests are running");
                return;
        }
        if (str_eq(s->scratch->method, STR("CONNECT"))) { /* RFC 9110 §9.3.6: this is no proxy */
                conn_refuse(c, 501, "CONNECT is not available");
                return;
        }
        stream_passive(c->stream, NULL, NULL, NULL);
        struct call *call = call_new(c, s->scratch, p, used);
        if (n > used && stream_unread(c->stream, p + used, n - used) < 0) {
                call_free(call);
                conn_free(c);
                return;
        }
        buf_done(&c->in);
        call->coro = coro_start(call_main, call, 0, "http call");
        if (!call->coro) {
                call_free(call);
                conn_refuse(c, 503, "too many requests are running");
                return;
        }
        s->stats.requests++;
        s->running++;
        list_append(&s->calls, &call->link);
        c->call = call;
        conn_enter(c, CONN_RUNNING);
}

static void on_data(void *arg, const void *p, size_t n)
{
        struct conn *c = arg;
        struct http_server *s = c->server;
        struct h1_error err = { 0 };

        s->stats.bytes_in += n;
        if (c->state == CONN_IDLE)
                conn_enter(c, CONN_HEAD);
        /* A head that comes whole is parsed where it lies. */
        if (c->in.len) {
                if (buf_add(&c->in, p, n) < 0) {
                        conn_free(c);
                        return;
                }
                p = c->in.p;
                n = c->in.len;
        }
        long r = h1_request_parse(p, n, &c->scanned, s->scratch, &err);
        if (r < 0) {
                conn_refuse(c, err.status, err.reason);
        } else if (r > 0) {
                struct buf keep = c->in; /* start_call may free the conn */

                c->in = BUF_MAX(keep.max);
                start_call(c, p, (size_t) r, n);
                buf_done(&keep);
        } else if (!c->in.len && buf_add(&c->in, p, n) < 0) {
                conn_free(c);
        }
}

static void on_end(void *arg, int r)
{
        (void) r;
        conn_free(arg);
}

void conn_idle(struct conn *c)
{
        c->scanned = 0;
        /* The parser gives up at H1_HEAD_MAX; one read may carry as much again. */
        c->in = BUF_MAX(H1_HEAD_MAX + ((size_t) 256 << 10));
        conn_enter(c, CONN_IDLE);
        if (c->server->stopping) {
                conn_linger(c);
                return;
        }
        stream_passive(c->stream, on_data, on_end, c);
}

static void coroutine_fn handshake(void *arg)
{
        struct conn *c = arg;
        struct http_server *s = c->server;
        struct stream *plain = c->stream, *secure = NULL;
        struct err e;

        int r = tls_wrap(c->tls, plain, NULL, s->limits.head_ms, &secure, &e);
        c->handshake = NULL;
        tls_ctx_unref(steal_ptr(c->tls));
        if (r < 0) {
                s->stats.refused++;
                conn_free(c);
        } else {
                c->stream = secure;
                conn_idle(c);
        }
        server_coro_ended(s);
}

void conn_new(struct http_server *s, struct stream *stream, struct tls_ctx *tls, void *attached,
              void (*attached_free)(void *attached))
{
        struct conn *c = xcalloc(1, sizeof *c);

        c->server = s;
        c->stream = stream;
        c->attached = attached;
        c->attached_free = attached_free;
        c->state = tls ? CONN_TLS : CONN_IDLE;
        c->addr = addr_get(s, stream);
        c->since = loop_now();
        s->counts[c->state]++;
        list_append(&s->conns[c->state], &c->link);
        s->open++;
        s->stats.connections_total++;
        server_tick_start(s);
        bool crowd = c->addr->count > s->limits.per_address && !(s->exempt_loopback && is_loopback(c->addr));
        if (crowd || s->open - s->counts[CONN_LINGER] > s->limits.connections) {
                if (tls) { /* nothing can be said before a handshake, and that would be work */
                        s->stats.refused++;
                        conn_free(c);
                } else {
                        conn_refuse(c, 503, crowd ? "too many connections from this address" : "too many connections");
                }
                return;
        }
        if (!tls) {
                conn_idle(c);
                return;
        }
        c->handshake = coro_start(handshake, c, 0, "tls handshake");
        c->tls = tls_ctx_ref(tls);
        if (!c->handshake)
                conn_free(c);
}
