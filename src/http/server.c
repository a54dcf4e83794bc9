/* The server as a whole: listening, limits, time, stopping. One connection is conn.c, one request call.c. */
#include "http/server_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BACKLOG 1024

static void defaults(struct http_limits *l)
{
        l->head_ms = l->head_ms ? l->head_ms : 10000;
        l->body_ms = l->body_ms ? l->body_ms : 30000;
        l->idle_ms = l->idle_ms ? l->idle_ms : 60000;
        l->write_ms = l->write_ms ? l->write_ms : 30000;
        l->connections = l->connections ? l->connections : 10000;
        l->requests_running = l->requests_running ? l->requests_running : 10000;
        l->per_address = l->per_address ? l->per_address : 256;
}

struct http_server *http_server_new(const struct http_limits *l, void (*handler)(struct call *c, void *arg), void *arg)
{
        struct http_server *s = xcalloc(1, sizeof *s);

        if (l)
                s->limits = *l;
        /* By default everything local comes from one address: a proxy, the adapters. A limit that was asked for counts
         * for all. */
        s->exempt_loopback = s->limits.per_address == 0;
        defaults(&s->limits);
        s->handler = handler;
        s->arg = arg;
        list_init(&s->listens);
        for (size_t i = 0; i < CONN_STATES; i++)
                list_init(&s->conns[i]);
        for (size_t i = 0; i < WHEEL_SLOTS; i++)
                list_init(&s->wheel[i]);
        s->addrs = map_new();
        s->scratch = xcalloc(1, sizeof *s->scratch);
        list_init(&s->calls);
        waitq_init(&s->drained);
        return s;
}

static void accepted(struct stream *stream, void *arg)
{
        struct listen *l = arg;

        conn_new(l->server, stream, l->tls, NULL, NULL);
}

void http_server_take(struct http_server *s, struct stream *stream, void *attached, void (*free_fn)(void *attached))
{
        conn_new(s, stream, NULL, attached, free_fn);
}

static int listen_on(struct http_server *s, const char *addr, unsigned port, struct tls_ctx *tls, struct err *e)
{
        struct listen *l = xcalloc(1, sizeof *l);
        int r;

        l->server = s;
        l->tls = tls;
        r = listen_tcp(addr, port, BACKLOG, accepted, l, &l->listener, e);
        if (r < 0) {
                free(l);
                return r;
        }
        list_append(&s->listens, &l->link);
        return 0;
}

int http_server_listen(struct http_server *s, const char *addr, unsigned port, struct err *e)
{
        return listen_on(s, addr, port, NULL, e);
}

int http_server_listen_tls(struct http_server *s, const char *addr, unsigned port, const char *cert, const char *key,
                           struct err *e)
{
        struct tls_ctx *tls = NULL;
        int r = tls_ctx_server(cert, key, &tls, e);

        if (r < 0)
                return r;
        r = listen_on(s, addr, port, tls, e);
        if (r < 0)
                tls_ctx_unref(tls);
        return r;
}

unsigned http_server_port(const struct http_server *s)
{
        if (list_empty(&s->listens))
                return 0;
        return listener_port(list_entry(s->listens.next, struct listen, link)->listener);
}

const char *server_date(struct http_server *s)
{
        int64_t now = wall_ms() / 1000;

        if (now != s->date_at) { /* IMF-fixdate, RFC 9110 §5.6.7; strftime would follow the locale */
                static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
                static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
                time_t t = (time_t) now;
                struct tm tm;

                gmtime_r(&t, &tm);
                (void) snprintf(s->date, sizeof s->date, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7],
                                tm.tm_mday % 100, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000, tm.tm_hour % 100,
                                tm.tm_min % 100, tm.tm_sec % 100);
                s->date_at = now;
        }
        return s->date;
}

/* The lists are in order of entry and every member of one has the same time, so only the front can be over it. */
static void expire(struct http_server *s, enum conn_state state, int64_t ms, void (*over)(struct conn *c))
{
        int64_t now = loop_now();

        while (!list_empty(&s->conns[state])) {
                struct conn *c = list_entry(s->conns[state].next, struct conn, link);

                if (now - c->since < ms)
                        return;
                over(c);
        }
}

static void head_too_slow(struct conn *c)
{
        conn_refuse(c, 408, "the request head took too long"); /* RFC 9110 §15.5.9 */
}

static void tick(void *arg)
{
        struct http_server *s = arg;

        expire(s, CONN_HEAD, s->limits.head_ms, head_too_slow);
        expire(s, CONN_IDLE, s->limits.idle_ms, conn_free);
        expire(s, CONN_LINGER, s->limits.head_ms, conn_free);
        if (!s->open)
                timer_stop(&s->tick);
}

void server_tick_start(struct http_server *s)
{
        int64_t ms = s->limits.head_ms < s->limits.idle_ms ? s->limits.head_ms : s->limits.idle_ms;

        ms = ms / 4 > 1000 ? 1000 : ms / 4 < 10 ? 10 : ms / 4;
        if (!s->tick)
                s->tick = timer_start(ms, ms, tick, s);
}

static void stop_listening(struct http_server *s)
{
        while (!list_empty(&s->listens)) {
                struct listen *l = list_entry(s->listens.next, struct listen, link);

                list_remove(&l->link);
                listener_closep(&l->listener);
                tls_ctx_unref(l->tls);
                free(l);
        }
}

static void drop_all(struct http_server *s, enum conn_state state)
{
        while (!list_empty(&s->conns[state]))
                conn_drop(list_entry(s->conns[state].next, struct conn, link));
}

static void drop_idle(struct http_server *s)
{
        drop_all(s, CONN_IDLE);
        drop_all(s, CONN_HEAD);
}

static void close_passive(struct http_server *s)
{
        drop_idle(s);
        while (!list_empty(&s->conns[CONN_DETACHED]))
                sse_close(list_entry(s->conns[CONN_DETACHED].next, struct conn, link)->sse);
}

static void cancel_calls(struct http_server *s)
{
        list_for_each (it, &s->calls)
                coro_cancel(list_entry(it, struct call, link)->coro);
        list_for_each (it, &s->conns[CONN_TLS])
                coro_cancel(list_entry(it, struct conn, link)->handshake);
}

static bool busy(const struct http_server *s)
{
        return s->running || s->counts[CONN_TLS];
}

void coroutine_fn http_server_stop(struct http_server *s, int64_t timeout_ms)
{
        int64_t until = loop_now() + timeout_ms;
        int r = 0;

        s->stopping = true;
        stop_listening(s);
        /* Detached streams stay: the answer of a running call may be one. Their owners end those that wait for nothing.
         */
        drop_idle(s);
        while (busy(s) && r == 0) {
                int64_t left = until - loop_now();

                r = left > 0 ? waitq_wait(&s->drained, left) : -ETIMEDOUT;
        }
        close_passive(s); /* what the calls have detached meanwhile */
        cancel_calls(s);
        /* Cancelled handlers end by themselves; one that shields a cleanup gets the time for it. */
        coro_shield();
        for (until = loop_now() + 10000; busy(s) && loop_now() < until;)
                (void) waitq_wait(&s->drained, until - loop_now());
        close_passive(s);
        /* The last bytes of the last answers. */
        for (until = loop_now() + 1000; s->counts[CONN_LINGER] && loop_now() < until;)
                (void) coro_sleep(10);
        coro_unshield();
        drop_all(s, CONN_LINGER);
}

static void server_destroy(struct http_server *s)
{
        close_passive(s);
        drop_all(s, CONN_LINGER);
        timer_stop(&s->tick);
        sse_wheel_stop(s);
        map_free(s->addrs);
        free(s->scratch);
        free(s);
}

void server_coro_ended(struct http_server *s)
{
        waitq_wake_all(&s->drained);
        if (s->dying && !busy(s))
                server_destroy(s);
}

void http_server_free(struct http_server *s)
{
        if (!s)
                return;
        s->stopping = true;
        stop_listening(s);
        if (busy(s)) { /* the last call to end takes the server with it */
                s->dying = true;
                close_passive(s);
                cancel_calls(s);
                return;
        }
        server_destroy(s);
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
        *ret = s->stats;
        ret->connections_open = s->open;
}
