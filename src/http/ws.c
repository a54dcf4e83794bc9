/*
 * wslay never does I/O here: its callbacks move bytes between two buffers, and only the functions below wait. Whoever
 * writes to the stream takes along what others have queued meanwhile, so frames never mix.
 */
#include "http/ws.h"

#include "base/b64.h"
#include "base/list.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <wslay/wslay.h>

#define READ_SIZE 4096
#define OUT_MAX ((size_t) 512 << 20)
#define WRITE_MS 30000
#define CLOSE_MS 2000
#define QUEUED_MAX ((size_t) 256 << 10) /* unsent answers to pings: a peer that reads nothing does not get more */

struct message {
        struct list link;
        bool binary;
        size_t n;
        char bytes[];
};

struct ws {
        struct stream *stream;
        wslay_event_context_ptr ev;
        struct buf out;
        const char *in; /* of ws_recv, what wslay has not taken yet */
        size_t in_len;
        struct list messages;
        struct waitq turn;
        bool writing;
        int failed; /* first error that leaves the framing in doubt */
};

static ssize_t take(wslay_event_context_ptr ev, uint8_t *p, size_t n, int flags, void *arg)
{
        struct ws *w = arg;
        size_t k = min_size(n, w->in_len);

        (void) flags;
        if (!k) {
                wslay_event_set_error(ev, WSLAY_ERR_WOULDBLOCK);
                return -1;
        }
        memcpy(p, w->in, k);
        w->in += k;
        w->in_len -= k;
        return (ssize_t) k;
}

static ssize_t give(wslay_event_context_ptr ev, const uint8_t *p, size_t n, int flags, void *arg)
{
        struct ws *w = arg;

        (void) flags;
        if (buf_add(&w->out, p, n) < 0) {
                wslay_event_set_error(ev, WSLAY_ERR_CALLBACK_FAILURE);
                return -1;
        }
        return (ssize_t) n;
}

static void got(wslay_event_context_ptr ev, const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
        struct ws *w = arg;

        (void) ev;
        if (m->opcode != WSLAY_TEXT_FRAME && m->opcode != WSLAY_BINARY_FRAME)
                return;
        struct message *x = try_malloc(sizeof *x + m->msg_length);
        if (!x) {
                w->failed = -ENOMEM;
                return;
        }
        x->link = (struct list){ 0 };
        x->binary = m->opcode == WSLAY_BINARY_FRAME;
        x->n = m->msg_length;
        if (x->n)
                memcpy(x->bytes, m->msg, x->n);
        list_append(&w->messages, &x->link);
}

/* RFC 6455 §4.2.2 item 5.4 */
static int accept_key(struct str key, struct buf *out)
{
        _cleanup_buf_ struct buf in = BUF_MAX(128);
        unsigned char sum[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        int r = buf_addstr(&in, key);

        if (r == 0)
                r = buf_adds(&in, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        if (r == 0 && EVP_Digest(in.p, in.len, sum, &n, EVP_sha1(), NULL) != 1)
                r = -EIO;
        return r < 0 ? r : b64_encode(out, sum, n);
}

/* RFC 6455 §4.2.1. Answers and returns -EPROTO when the request is no opening handshake. */
static int coroutine_fn check_handshake(struct call *c)
{
        _cleanup_buf_ struct buf nonce = BUF_MAX(32);
        const struct h1_head *h = call_head(c);
        struct str version = call_header(c, "Sec-WebSocket-Version");

        if (!h->upgrade || !h1_has_token(h, "Upgrade", "websocket") || !str_eq(h->method, STR("GET")) ||
            call_has_body(c)) {
                (void) call_add_header(c, "Sec-WebSocket-Version", "13");
                (void) call_reply_error(c, 426, "websocket_only", "this address speaks WebSocket only");
                return -EPROTO;
        }
        if (!str_eq(version, STR("13"))) { /* §4.2.2 item 4 */
                (void) call_add_header(c, "Sec-WebSocket-Version", "13");
                (void) call_reply_error(c, 426, "websocket_version", "only version 13 of WebSocket is spoken here");
                return -EPROTO;
        }
        if (b64_decode(&nonce, call_header(c, "Sec-WebSocket-Key")) < 0 || nonce.len != 16) {
                (void) call_reply_error(c, 400, "bad_request", "Sec-WebSocket-Key is malformed");
                return -EPROTO;
        }
        return 0;
}

int coroutine_fn ws_accept(struct call *c, const char *protocol, size_t max_message, struct ws **ret)
{
        static const struct wslay_event_callbacks callbacks = {
                .recv_callback = take,
                .send_callback = give,
                .on_msg_recv_callback = got,
        };
        _cleanup_buf_ struct buf key = BUF_MAX(64);
        int r = check_handshake(c);

        if (r == 0)
                r = accept_key(call_header(c, "Sec-WebSocket-Key"), &key);
        if (r == 0)
                r = call_add_header(c, "Sec-WebSocket-Accept", buf_cstr(&key));
        if (r == 0 && protocol && h1_has_token(call_head(c), "Sec-WebSocket-Protocol", protocol))
                r = call_add_header(c, "Sec-WebSocket-Protocol", protocol);
        if (r < 0)
                return r;
        struct ws *w = xcalloc(1, sizeof *w);
        w->out = BUF_MAX(OUT_MAX);
        list_init(&w->messages);
        waitq_init(&w->turn);
        if (wslay_event_context_server_init(&w->ev, &callbacks, w) != 0) {
                free(w);
                return -ENOMEM;
        }
        wslay_event_config_set_max_recv_msg_length(w->ev, max_message);
        r = call_upgrade(c, "websocket", &w->stream);
        if (r < 0) {
                ws_free(w);
                return r;
        }
        *ret = w;
        return 0;
}

/* Sends all that is queued; when another coroutine is at it, that one takes ours along. */
static int coroutine_fn drain(struct ws *w)
{
        int r = w->failed;

        if (r == 0 && wslay_event_want_write(w->ev) && wslay_event_send(w->ev) != 0)
                return -EPROTO;
        if (r == 0 && w->writing)
                return w->out.len > QUEUED_MAX ? -EPIPE : 0;
        if (r < 0)
                return r;
        w->writing = true;
        while (r == 0 && w->out.len) {
                struct buf out = w->out;

                w->out = BUF_MAX(OUT_MAX);
                r = stream_write(w->stream, out.p, out.len, WRITE_MS);
                buf_done(&out);
        }
        w->writing = false;
        if (r < 0)
                w->failed = r;
        waitq_wake(&w->turn);
        return r;
}

static int deliver(struct ws *w, struct buf *b)
{
        struct message *m = list_entry(w->messages.next, struct message, link);
        int r = buf_add(b, m->bytes, m->n);

        if (r == 0)
                r = m->binary ? 2 : 1;
        list_remove(&m->link);
        free(m);
        return r;
}

int coroutine_fn ws_recv(struct ws *w, struct buf *b, int64_t timeout_ms)
{
        int64_t until = loop_now() + timeout_ms;
        _cleanup_free_ char *p = NULL;

        buf_clear(b);
        for (;;) {
                int64_t left = until - loop_now();

                if (!list_empty(&w->messages))
                        return deliver(w, b);
                if (w->failed)
                        return w->failed;
                if (wslay_event_get_close_received(w->ev))
                        return 0;
                if (!wslay_event_get_read_enabled(w->ev))
                        return -EPROTO; /* wslay has given up on the peer and told it why */
                if (!p)
                        p = xmalloc(READ_SIZE);
                ssize_t n = stream_read(w->stream, p, READ_SIZE, timeout_ms < 0 ? -1 : left > 0 ? left : 0);
                if (n <= 0)
                        return n == 0 ? -EPIPE : (int) n; /* an end without a close frame, RFC 6455 §7.1.5: 1006 */
                w->in = p;
                w->in_len = (size_t) n;
                int bad = wslay_event_recv(w->ev);
                w->in = NULL;
                w->in_len = 0;
                int r = drain(w); /* pongs, a close */
                if (bad || r < 0)
                        return bad ? -EPROTO : r;
        }
}

int coroutine_fn ws_send(struct ws *w, bool binary, const void *p, size_t n)
{
        struct wslay_event_msg m = { .opcode = binary ? WSLAY_BINARY_FRAME : WSLAY_TEXT_FRAME,
                                     .msg = p,
                                     .msg_length = n };

        while (w->writing) {
                int r = waitq_wait(&w->turn, -1);

                if (r < 0)
                        return r;
        }
        int bad = wslay_event_queue_msg(w->ev, &m);
        if (bad)
                return bad == WSLAY_ERR_NO_MORE_MSG ? -EPIPE : bad == WSLAY_ERR_NOMEM ? -ENOMEM : -EINVAL;
        return drain(w);
}

void coroutine_fn ws_close(struct ws *w, unsigned code, const char *reason)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 64 << 20);
        int64_t until = loop_now() + CLOSE_MS;
        size_t n = reason ? min_size(strlen(reason), 123) : 0; /* RFC 6455 §5.5: 125 with the code */
        int r;

        if (wslay_event_queue_close(w->ev, (uint16_t) code, (const uint8_t *) reason, n) != 0 || drain(w) < 0)
                return;
        do /* §7.1.1: the peer's close frame, but not for ever */
                r = ws_recv(w, &b, until > loop_now() ? until - loop_now() : 0);
        while (r > 0);
}

void ws_free(struct ws *w)
{
        if (!w)
                return;
        while (!list_empty(&w->messages)) {
                struct message *m = list_entry(w->messages.next, struct message, link);

                list_remove(&m->link);
                free(m);
        }
        wslay_event_context_free(w->ev);
        buf_done(&w->out);
        stream_close_after_flush(w->stream, CLOSE_MS);
        free(w);
}
