#include "adapter/exchange.h"
#include "adapter/era.h"
#include "adapter/rawjson.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TICK_MS 1000
#define NOTIFY_MS 3000
#define MESSAGE_MAX ((size_t) 256 << 20)
#define REFUSAL_MAX ((size_t) 1 << 20)
#define READ_CHUNK 16384
#define TAIL_MS 2 /* how long the end of a stream may follow the result, for the connection to be kept */

static void tick(void *arg)
{
        struct exchange *x = arg;
        int64_t now = loop_now(), gone = now - x->last_tick;
        bool moved = x->bytes != x->seen;

        x->last_tick = now;
        x->seen = x->bytes;
        if (gone > 2 * x->tick_ms)
                gone = 2 * x->tick_ms;
        x->total_ms += gone;
        x->quiet_ms = moved ? 0 : x->quiet_ms + gone;
        if (x->spec->hooks)
                x->spec->hooks->tick(x->spec->hooks->arg, moved);
        if (x->found || x->silent || x->late)
                return;
        x->silent = x->quiet_ms >= x->u->config->silence_ms;
        x->late = x->total_ms >= x->spec->limit_ms;
        if ((x->silent || x->late) && x->hc)
                hc_abort(x->hc);
}

static void set_fate(struct exchange *x, enum fate fate, int r, const char *what)
{
        x->ret->fate = fate;
        if (!x->ret->reason.msg[0])
                (void) err_sys(&x->ret->reason, r ? r : -EIO, "%s", what);
}

/* A read or a connection failed with r: why, as far as the caller is concerned. */
void exchange_failed(struct exchange *x, int r)
{
        if (coro_cancelled()) {
                x->cancelled = true;
                x->ret->fate = FATE_CANCELLED;
        } else if (x->silent) {
                x->ret->fate = FATE_SILENT;
                (void) err_set(&x->ret->reason, -ETIMEDOUT, "its connection carried nothing for %lld seconds",
                               (long long) (x->u->config->silence_ms + 999) / 1000);
        } else if (x->late) {
                x->ret->fate = FATE_TIMEOUT;
                (void) err_set(&x->ret->reason, -ETIMEDOUT, "it took longer than %lld minutes",
                               (long long) x->spec->limit_ms / 60000);
        } else {
                set_fate(x, FATE_LOST, r == -ECANCELED ? -ECONNRESET : r, "its connection broke");
        }
}

/* A message of the server in reply to our request: a result, an error, or something on the way to it. Returns 1 when
 * done. */
static int take_response(struct exchange *x, struct str text)
{
        struct str value;

        x->ret->message = BUF_MAX(MESSAGE_MAX);
        if (buf_addstr(&x->ret->message, text) < 0) {
                set_fate(x, FATE_BAD, -ENOMEM, "its answer is too long");
                return 1;
        }
        text = buf_str(&x->ret->message);
        if (raw_get(text, "result", &value))
                x->ret->fate = FATE_RESULT;
        else if (raw_get(text, "error", &value))
                x->ret->fate = FATE_ERROR;
        else
                set_fate(x, FATE_BAD, -EPROTO, "its answer has neither result nor error");
        x->ret->value = value;
        x->found = true;
        return 1;
}

static void take_notification(struct exchange *x, const struct json *j, struct str text)
{
        const char *method = json_get_str(j, "method", "");
        const struct json *params = json_get(j, "params");
        struct str raw;

        if (!x->spec->hooks)
                return;
        if (strcmp(method, "notifications/progress") == 0 && json_type(json_get(params, "progressToken")) == JSON_INT &&
            json_get_int(params, "progressToken", -1) == x->spec->id && raw_get(text, "params", &raw))
                x->spec->hooks->progress(x->spec->hooks->arg, raw);
        else if (strcmp(method, "notifications/message") == 0)
                x->spec->hooks->message(x->spec->hooks->arg, params);
}

/* The server asks us something: ping is answered, nothing else was offered. */
struct reply {
        struct upstream *u;
        struct buf body;
};

static void coroutine_fn send_reply(void *arg)
{
        struct reply *r = arg;

        exchange_notify(r->u, buf_str(&r->body));
        buf_done(&r->body);
        free(r);
}

static void answer_server(struct exchange *x, const struct json *j, struct str text)
{
        struct reply *r = xcalloc(1, sizeof *r);
        struct str id;

        r->u = x->u;
        r->body = BUF_MAX(4096);
        if (raw_get(text, "id", &id)) {
                (void) buf_adds(&r->body, "{\"jsonrpc\":\"2.0\",\"id\":");
                (void) buf_addstr(&r->body, id);
                (void) buf_adds(&r->body,
                                strcmp(json_get_str(j, "method", ""), "ping") == 0
                                        ? ",\"result\":{}}"
                                        : ",\"error\":{\"code\":-32601,\"message\":\"not supported by this client\"}}");
        }
        if (!id.n || !coro_start(send_reply, r, 0, "reply")) {
                buf_done(&r->body);
                free(r);
        }
}

static int take_message(struct exchange *x, struct str text)
{
        _cleanup_json_ struct json *j = NULL;
        const struct json *id;

        if (json_parse(text.p, text.n, &j, NULL) < 0 || json_type(j) != JSON_OBJECT)
                return 0;
        id = json_get(j, "id");
        if (json_get(j, "method")) {
                if (id)
                        answer_server(x, j, text);
                else
                        take_notification(x, j, text);
                return 0;
        }
        if (!id && json_get(j, "error"))
                return take_response(x, text); /* it could not even read our id */
        if (json_type(id) != JSON_INT || json_int(id) != x->spec->id)
                return 0;
        return take_response(x, text);
}

static int on_event(const char *event, const char *id, struct str data, void *arg)
{
        struct exchange *x = arg;

        (void) id;
        if (x->found || data.n == 0 || (event && event[0] && strcmp(event, "message") != 0))
                return 0;
        (void) take_message(x, data);
        return 0;
}

void coroutine_fn exchange_read_events(struct exchange *x)
{
        char chunk[READ_CHUNK];
        ssize_t n;

        while (!x->found) {
                n = hc_read(x->hc, chunk, sizeof chunk, -1);
                if (n < 0) {
                        exchange_failed(x, (int) n);
                        return;
                }
                if (n == 0) {
                        x->ret->fate = FATE_LOST;
                        (void) err_set(&x->ret->reason, -ENODATA, "its stream ended without the result");
                        return;
                }
                x->bytes += (uint64_t) n;
                if (sse_parser_feed(&x->sse, chunk, (size_t) n, on_event, x) < 0) {
                        set_fate(x, FATE_BAD, -EMSGSIZE, "its event stream cannot be read");
                        return;
                }
        }
        while (hc_read(x->hc, chunk, sizeof chunk, TAIL_MS) > 0)
                ;
}

static int coroutine_fn read_body(struct exchange *x, struct buf *body)
{
        ssize_t n;

        for (;;) {
                char *p = buf_room(body, READ_CHUNK);

                if (!p)
                        return -EMSGSIZE;
                n = hc_read(x->hc, p, READ_CHUNK, -1);
                if (n <= 0)
                        return (int) n;
                buf_grew(body, (size_t) n);
                x->bytes += (uint64_t) n;
        }
}

static void coroutine_fn read_json(struct exchange *x)
{
        _cleanup_buf_ struct buf body = BUF_MAX(MESSAGE_MAX);
        int r = read_body(x, &body);

        if (r == -EMSGSIZE)
                set_fate(x, FATE_BAD, r, "its answer cannot be read");
        else if (r < 0)
                exchange_failed(x, r);
        else if (!take_message(x, buf_str(&body)))
                set_fate(x, FATE_BAD, -EPROTO, "its answer is no response to the request");
}

static enum fate fate_of_status(unsigned status)
{
        if (status == 503)
                return FATE_UNAVAILABLE;
        return status == 401 || status == 403 ? FATE_REFUSED : FATE_BAD;
}

static int64_t retry_after(const struct exchange *x, const struct json *j)
{
        struct str header = hc_header(x->hc, "Retry-After");
        uint64_t n;

        if (json_get(j, "retryAfterSec"))
                return json_get_int(j, "retryAfterSec", 0) * 1000;
        return header.p && parse_u64(header, 3600, &n) == 0 ? (int64_t) n * 1000 : 0;
}

/* Anything but 200: a JSON-RPC error is passed on, our server's {"error": "…"} is quoted. */
static void coroutine_fn read_refusal(struct exchange *x)
{
        _cleanup_buf_ struct buf body = BUF_MAX(REFUSAL_MAX);
        _cleanup_json_ struct json *j = NULL;
        int r = read_body(x, &body);
        struct str error;

        if (r < 0 && r != -EMSGSIZE) {
                exchange_failed(x, r);
                return;
        }
        if (json_parse(body.p ? body.p : "", body.len, &j, NULL) < 0)
                j = NULL;
        x->ret->fate = fate_of_status(x->status);
        x->ret->retry_after_ms = retry_after(x, j);
        if (json_type(json_get(j, "error")) == JSON_OBJECT && x->ret->fate == FATE_BAD &&
            raw_get(buf_str(&body), "error", &error)) {
                (void) take_response(x, buf_str(&body));
                return;
        }
        const char *text = json_get_str(j, "error", NULL), *why = json_get_str(j, "reason", NULL);
        (void) err_set(&x->ret->reason, -EIO, "HTTP %u%s%.300s%s%.60s%s", x->status, text ? ": " : "", text ? text : "",
                       why ? " (" : "", why ? why : "", why ? ")" : "");
}

bool exchange_is_events(const struct exchange *x)
{
        struct str s = hc_header(x->hc, "Content-Type");
        struct str t = s.p ? str_trim(str_cut(&s, ';'), " \t") : s;

        return t.p && str_ieq(t, STR("text/event-stream"));
}

static void read_challenge(struct exchange *x)
{
        const struct h1_head *head = hc_head(x->hc);

        for (size_t i = 0; i < head->header_count; i++)
                if (str_ieq(head->headers[i].name, STR("WWW-Authenticate")))
                        challenge_parse(&x->ret->challenge, head->headers[i].value);
}

static void coroutine_fn read_answer(struct exchange *x)
{
        struct str session;
        int r = hc_answer(x->hc, NULL);

        if (r < 0) {
                exchange_failed(x, r);
                return;
        }
        x->bytes++;
        x->status = hc_status(x->hc);
        session = hc_header(x->hc, "Mcp-Session-Id");
        if (session.p)
                (void) buf_addstr(&x->session, session);
        if (x->status == 401 || x->status == 403)
                read_challenge(x);
        if (x->status != 200) {
                read_refusal(x);
        } else if (exchange_is_events(x)) {
                sse_parser_init(&x->sse, MESSAGE_MAX);
                x->sse_on = true;
                exchange_read_events(x);
        } else {
                read_json(x);
        }
}

static size_t add_header(const char **h, size_t k, const char *name, const char *value)
{
        h[k++] = name;
        h[k++] = value;
        return k;
}

void exchange_headers(const struct upstream *u, const struct up_spec *spec, bool opening, const char **h)
{
        size_t k = 0;

        upstream_headers(u, h, EXCHANGE_HEADERS_MAX - 16);
        if (spec && spec->anonymous && h[0] && strcmp(h[0], "Authorization") == 0)
                for (k = 0; h[k + 2]; k++)
                        h[k] = h[k + 2];
        else
                while (h[k])
                        k++;
        k = add_header(h, k, "Content-Type", "application/json");
        k = add_header(h, k, "Accept", "application/json, text/event-stream");
        if (!opening)
                k = add_header(h, k, "MCP-Protocol-Version", u->modern ? ERA_MODERN : u->version);
        if (!opening && !u->modern && u->session)
                k = add_header(h, k, "Mcp-Session-Id", u->session);
        if (u->modern && spec)
                k = add_header(h, k, "Mcp-Method", spec->method);
        h[k] = NULL;
}

/* Mcp-Name, in the newer era. name must stay as long as h. */
static void add_name(const struct upstream *u, const struct up_spec *spec, struct buf *name, const char **h)
{
        size_t k = 0;

        if (!u->modern || !spec->name || era_header_value(name, str_of(spec->name)) < 0)
                return;
        while (h[k])
                k++;
        k = add_header(h, k, "Mcp-Name", buf_cstr(name));
        h[k] = NULL;
}

static void not_opened(struct exchange *x, int r, bool not_sent)
{
        struct answer *ret = x->ret;

        ret->fate = coro_cancelled() ? FATE_CANCELLED : not_sent ? FATE_NOT_SENT : FATE_LOST;
        if (!ret->reason.msg[0])
                (void) err_sys(&ret->reason, r, "connecting failed");
}

void coroutine_fn exchange_run(struct exchange *x, struct upstream *u, const struct up_spec *spec, struct str body,
                               bool opening, struct answer *ret)
{
        _cleanup_buf_ struct buf name = BUF_MAX(4096);
        const char *headers[EXCHANGE_HEADERS_MAX];
        bool not_sent = false;
        int r;

        *x = (struct exchange){ .u = u, .spec = spec, .ret = ret, .session = BUF_MAX(1024), .last_tick = loop_now() };
        x->tick_ms = u->config->silence_ms < 4 * TICK_MS ? u->config->silence_ms / 4 + 1 : TICK_MS;
        exchange_headers(u, spec, opening, headers);
        add_name(u, spec, &name, headers);
        /* A pooled connection may turn out dead, and the pool then sends the request again by itself: what must not run
         * twice says so. */
        const struct http_request req = { .method = "POST",
                                          .path = u->config->mcp.path,
                                          .headers = headers,
                                          .body = body.p,
                                          .body_len = body.n,
                                          .connect_ms = EXCHANGE_CONNECT_MS,
                                          .once = !spec->repeatable };
        r = hc_open(u->http, &req, &x->hc, &not_sent, &ret->reason);
        if (r < 0) {
                not_opened(x, r, not_sent);
                return;
        }
        x->sent = true;
        x->timer = timer_start(x->tick_ms, x->tick_ms, tick, x);
        read_answer(x);
        hc_closep(&x->hc);
        if (ret->fate == FATE_LOST && !u->modern && x->sse_on && x->sse.id[0])
                exchange_resume(x);
        timer_stop(&x->timer);
}

void exchange_done(struct exchange *x)
{
        if (x->sse_on)
                sse_parser_done(&x->sse);
        buf_done(&x->session);
}

/* One request whose answer is of no interest. */
static void coroutine_fn post_and_forget(struct upstream *u, const struct http_request *req, int64_t limit_ms)
{
        _cleanup_(hc_closep) struct hc *hc = NULL;
        char drain[512];

        if (hc_open(u->http, req, &hc, NULL, NULL) < 0 || hc_answer(hc, NULL) < 0)
                return;
        while (hc_read(hc, drain, sizeof drain, limit_ms) > 0)
                ;
}

void coroutine_fn exchange_notify(struct upstream *u, struct str body)
{
        const char *headers[EXCHANGE_HEADERS_MAX];

        exchange_headers(u, NULL, false, headers);
        const struct http_request req = { .method = "POST",
                                          .path = u->config->mcp.path,
                                          .headers = headers,
                                          .body = body.p,
                                          .body_len = body.n,
                                          .connect_ms = NOTIFY_MS,
                                          .answer_ms = NOTIFY_MS };
        post_and_forget(u, &req, NOTIFY_MS);
}

void coroutine_fn exchange_delete(struct upstream *u, int64_t limit_ms)
{
        const char *headers[EXCHANGE_HEADERS_MAX];

        exchange_headers(u, NULL, false, headers);
        const struct http_request req = { .method = "DELETE",
                                          .path = u->config->mcp.path,
                                          .headers = headers,
                                          .connect_ms = limit_ms,
                                          .answer_ms = limit_ms };
        post_and_forget(u, &req, limit_ms);
}
