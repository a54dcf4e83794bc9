/* Server-sent events (HTML standard §9.2): from a handler, or on a passive stream that costs no stack. */
#include "http/server_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define QUEUE_MAX ((size_t) 256 << 10) /* what a slow peer may leave lying */
#define MISSED_MAX 4                   /* heartbeats a full queue may swallow before the peer counts as gone */

static bool one_line(const char *s)
{
        return !s[strcspn(s, "\r\n")];
}

static int add_event(struct buf *b, const char *event, const char *id, struct str data)
{
        int r = 0;

        if ((event && !one_line(event)) || (id && !one_line(id)))
                return -EINVAL;
        if (event)
                r = buf_addf(b, "event: %s\n", event);
        if (r == 0 && id)
                r = buf_addf(b, "id: %s\n", id);
        do {
                struct str line = data;
                const char *end = line.n ? memchr(line.p, '\n', line.n) : NULL;
                const char *cr = line.n ? memchr(line.p, '\r', end ? (size_t) (end - line.p) : line.n) : NULL;

                if (cr)
                        end = cr;
                if (end)
                        line.n = (size_t) (end - line.p);
                if (r == 0)
                        r = buf_adds(b, "data: ");
                if (r == 0)
                        r = buf_addstr(b, line);
                if (r == 0)
                        r = buf_adds(b, "\n");
                if (!end)
                        break;
                size_t skip = line.n + (*end == '\r' && data.n > line.n + 1 && end[1] == '\n' ? 2 : 1);
                data = str_n(data.p + skip, data.n - skip);
        } while (r == 0);
        return r == 0 ? buf_adds(b, "\n") : r;
}

static size_t event_max(struct str data)
{
        return data.n * 8 + 2048;
}

/* Does not suspend: the head waits in c->out. */
static int add_sse_head(struct call *c)
{
        int r = call_add_header(c, "Cache-Control", "no-cache");

        if (r == 0) /* nginx buffers otherwise */
                r = call_add_header(c, "X-Accel-Buffering", "no");
        return r < 0 ? r : call_prepare(c, 200, "text/event-stream", -1);
}

int coroutine_fn sse_start(struct call *c)
{
        int r = add_sse_head(c);

        return r < 0 ? r : call_flush(c);
}

int coroutine_fn sse_event(struct call *c, const char *event, const char *id, struct str data)
{
        _cleanup_buf_ struct buf b = BUF_MAX(event_max(data));
        int r = add_event(&b, event, id, data);

        return r < 0 ? r : call_write(c, b.p, b.len);
}

int coroutine_fn sse_comment(struct call *c, const char *text)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        int r = one_line(text) ? buf_addf(&b, ": %s\n\n", text) : -EINVAL;

        return r < 0 ? r : call_write(c, b.p, b.len);
}

/* Chunk framing around p[0..n), queued without suspension. */
static int post(struct sse *x, const char *p, size_t n)
{
        _cleanup_buf_ struct buf b = BUF_MAX(n + 64);
        int r = x->chunked ? h1_write_chunk_head(&b, n) : 0;

        if (r == 0)
                r = buf_add(&b, p, n);
        if (r == 0 && x->chunked)
                r = buf_adds(&b, "\r\n");
        /* One event may be of any size; it is what piles up behind a slow reader that is bounded. */
        if (r == 0)
                r = stream_post(x->conn->stream, b.p, b.len, stream_queued(x->conn->stream) ? QUEUE_MAX : SIZE_MAX);
        if (r == 0)
                x->conn->server->stats.bytes_out += b.len;
        return r;
}

static void wheel_insert(struct http_server *s, struct sse *x)
{
        x->due = s->wheel_now + x->period;
        list_append(&s->wheel[x->due % WHEEL_SLOTS], &x->slot);
}

enum ending { GONE, LAST, NEXT };

/* The object is gone before on_close runs, so that it may do anything. NEXT: the connection goes on to its next
 * request; LAST: what is queued still goes out. */
static void end(struct sse *x, enum ending how)
{
        struct conn *conn = x->conn;
        void (*on_close)(void *arg) = x->on_close;
        void *arg = x->arg;

        list_remove(&x->slot);
        conn->server->wheel_count--;
        conn->sse = NULL;
        free(x);
        if (on_close)
                on_close(arg);
        if (how == GONE) {
                conn_free(conn);
                return;
        }
        stream_watch(conn->stream, NULL, NULL);
        if (how == NEXT)
                conn_idle(conn);
        else
                conn_linger(conn);
}

static void hung_up(void *arg)
{
        end(arg, GONE);
}

static void beat(struct sse *x)
{
        int r = x->gone ? -EPIPE : post(x, ":\n\n", 3);

        if (r == -EAGAIN && ++x->missed < MISSED_MAX)
                r = 0;
        else if (r == 0)
                x->missed = 0;
        if (r < 0)
                end(x, GONE);
        else
                wheel_insert(x->conn->server, x);
}

static void wheel_turn(void *arg)
{
        struct http_server *s = arg;
        struct list due;

        s->wheel_now++;
        /* Moved aside first: a callback may add to the slot or end any stream. */
        list_init(&due);
        list_for_each_safe (it, &s->wheel[s->wheel_now % WHEEL_SLOTS]) {
                if (list_entry(it, struct sse, slot)->due <= s->wheel_now) {
                        list_remove(it);
                        list_append(&due, it);
                }
        }
        while (!list_empty(&due)) {
                struct sse *x = list_entry(due.next, struct sse, slot);

                list_remove(&x->slot);
                beat(x);
        }
        if (!s->wheel_count)
                sse_wheel_stop(s);
}

void sse_wheel_stop(struct http_server *s)
{
        timer_stop(&s->wheel_timer);
}

struct sse *sse_detach(struct call *c, int64_t heartbeat_ms, void (*on_close)(void *arg), void *arg)
{
        struct conn *conn = c->conn;
        struct http_server *s = c->server;
        struct sse *x;

        if (c->handed_over || (!c->started && add_sse_head(c) < 0))
                return NULL;
        if (c->ended || c->failed || c->counted)
                return NULL;
        x = xcalloc(1, sizeof *x);
        x->conn = conn;
        x->on_close = on_close;
        x->arg = arg;
        x->chunked = c->chunked;
        x->keep = c->keep && c->body.done && c->chunked;
        /* A peer that is gone already is told at the next tick: on_close must not run before the caller has the object.
         */
        x->gone = c->gone || stream_dead(conn->stream);
        x->period = x->gone ? 1 : (uint64_t) ((heartbeat_ms + WHEEL_TICK_MS - 1) / WHEEL_TICK_MS);
        if (!x->period)
                x->period = 1;
        c->handed_over = true;
        c->conn = NULL;
        conn->call = NULL;
        conn->sse = x;
        conn_enter(conn, CONN_DETACHED);
        stream_watch(conn->stream, hung_up, x);
        if (c->out.len)
                (void) stream_post(conn->stream, c->out.p, c->out.len, QUEUE_MAX);
        buf_done(&c->out);
        s->wheel_count++;
        wheel_insert(s, x);
        if (!s->wheel_timer)
                s->wheel_timer = timer_start(WHEEL_TICK_MS, WHEEL_TICK_MS, wheel_turn, s);
        return x;
}

int sse_post(struct sse *x, const char *event, const char *id, struct str data)
{
        _cleanup_buf_ struct buf b = BUF_MAX(event_max(data));

        if (x->gone)
                return -EPIPE;
        int r = add_event(&b, event, id, data);
        return r < 0 ? r : post(x, b.p, b.len);
}

int sse_retry(struct sse *x, int64_t ms)
{
        char line[48];
        int n = snprintf(line, sizeof line, "retry: %lld\n\n", (long long) ms);

        return x->gone ? -EPIPE : post(x, line, (size_t) n);
}

void sse_close(struct sse *x)
{
        enum ending how = x->gone ? GONE : x->keep ? NEXT : LAST;

        /* Without its end a chunked answer looks cut; no queue is too full for these few bytes. */
        if (how != GONE && x->chunked && stream_post(x->conn->stream, "0\r\n\r\n", 5, SIZE_MAX) < 0)
                how = GONE;
        end(x, how);
}
