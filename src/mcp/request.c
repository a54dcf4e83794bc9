#include "mcp/internal.h"

#include "loop/wait.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RESULT_MAX ((size_t) 16 << 20) /* the object; 48 MiB in all with images */
#define BLOCKS_MAX ((size_t) 24 << 20)
#define ANSWER_MAX ((size_t) 80 << 20)
#define POST_RETRY_MS 20

/* A tools/call in progress. Thousands may wait at once: what only the start or the end needs is not kept here. */
struct mcp_request {
        struct mcp_server *s;
        struct call *c;
        struct coro *coro;
        struct owner *owner;
        const struct mcp_tool *tool;
        void *user;
        char *id, *token;         /* JSON text; token NULL without one */
        char *key;                /* in s->calls */
        struct mcp_request *same; /* an older one with the same key; only callers without a session can have those */
        struct sse *sse;          /* while the answer is a stream and the client is there */
        struct replay *replay;    /* what the client can ask for again; from when the answer is a stream */
        char *client;
        struct timer *timer;
        int64_t started, next_line, next_progress; /* the last two: ms since the start */
        double progress;
        struct buf json, blocks; /* what the handler filled in */
        char *failure;
        struct mask *mask;
        unsigned refs; /* the handler, and the stream */
        bool can_sse, resumable, quiet, modern, gone, cancelled, own_progress, broken;
};

static void unref(struct mcp_request *r)
{
        if (--r->refs > 0)
                return;
        buf_done(&r->json);
        buf_done(&r->blocks);
        free(r->failure);
        mask_unref(r->mask);
        free(r->id);
        free(r->token);
        free(r->client);
        free(r->key);
        free(r);
}

/* ---- the table of running calls ---- */

static void enter(struct mcp_request *r)
{
        struct mcp_server *s = r->s;

        r->same = map_put(s->calls, str_of(r->key), r);
        r->owner->calls++;
        s->stats.calls++;
        s->stats.running++;
}

static void leave(struct mcp_request *r)
{
        struct mcp_server *s = r->s;
        struct mcp_request *at = map_get(s->calls, str_of(r->key));

        if (at == r && !r->same) {
                (void) map_del(s->calls, str_of(r->key));
        } else if (at == r) {
                (void) map_put(s->calls, str_of(r->key), r->same);
        } else {
                while (at->same != r)
                        at = at->same;
                at->same = r->same;
        }
        r->same = NULL;
        r->owner->calls--;
        owner_put(s, r->owner);
        s->stats.running--;
}

/* ---- the stream ---- */

/* In the newer revision a closed stream is the cancellation; before, a lost connection says nothing. */
static void client_left(struct mcp_request *r)
{
        r->gone = true;
        if (!r->modern || !r->coro || r->cancelled)
                return;
        r->cancelled = true;
        coro_cancel(r->coro);
}

static void on_gone(void *arg)
{
        client_left(arg);
}

static void on_close(void *arg)
{
        struct mcp_request *r = arg;

        r->sse = NULL;
        client_left(r);
        unref(r);
}

/* Turns the pending JSON answer into a stream; true when there is one to post to. */
static bool to_stream(struct mcp_request *r)
{
        if (r->sse)
                return true;
        if (!r->can_sse || r->gone || r->cancelled)
                return false;
        r->refs++;
        r->sse = sse_detach(r->c, MCP_CALL_COMMENT_MS, on_close, r);
        if (!r->sse) {
                r->gone = true;
                r->refs--; /* never the last: the caller holds one */
                return false;
        }
        if (r->resumable) {
                char id[REPLAY_ID_MAX];

                r->replay = replay_new(r->s, r->owner, r->key, r);
                replay_id(r->replay, 0, id);
                (void) sse_post(r->sse, NULL, id, STR(""));
        }
        return true;
}

/* Notes have somewhere to go: to the client, or to where it can get them later. */
static bool to_listener(struct mcp_request *r)
{
        return to_stream(r) || r->replay;
}

static void end_stream(struct mcp_request *r)
{
        struct sse *sse = r->sse;

        r->sse = NULL;
        if (sse)
                sse_close(sse);
}

static void begin_note(struct jw *w, struct buf *b, const char *method)
{
        jw_init(w, b);
        jw_obj(w);
        jw_kstr(w, "jsonrpc", "2.0");
        jw_kstr(w, "method", method);
        jw_kobj(w, "params");
}

/* A client that does not read loses notes, never the result. */
static void post_note(struct mcp_request *r, struct jw *w)
{
        char id[REPLAY_ID_MAX];

        if (jw_end_all(w) < 0)
                return;
        if (r->replay)
                replay_id(r->replay, replay_note(r->replay, buf_str(w->b)), id);
        if (r->sse)
                (void) sse_post(r->sse, NULL, r->replay ? id : NULL, buf_str(w->b));
}

static void post_progress(struct mcp_request *r, double value, double total, const char *message)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        /* The protocol wants every value above the one before, whatever handler and clock make of it. */
        if (!(value > r->progress))
                value = r->progress + 0.001;
        r->progress = value;
        begin_note(&w, &b, "notifications/progress");
        jw_key(&w, "progressToken");
        jw_raw(&w, str_of(r->token));
        jw_key(&w, "progress");
        jw_double(&w, value);
        if (total > 0 && isfinite(total)) {
                jw_key(&w, "total");
                jw_double(&w, total);
        }
        if (message)
                jw_kstr(&w, "message", message);
        post_note(r, &w);
}

static void post_message(struct mcp_request *r, const char *text)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        begin_note(&w, &b, "notifications/message");
        jw_kstr(&w, "level", "info");
        jw_kstr(&w, "logger", r->tool->name);
        jw_kstr(&w, "data", text);
        post_note(r, &w);
}

/* Moves a due time past elapsed; true when it was due. */
static bool due(int64_t *next, int64_t elapsed, int64_t every)
{
        if (elapsed < *next)
                return false;
        *next += (elapsed - *next) / every * every + every;
        return true;
}

static void on_timer(void *arg)
{
        struct mcp_request *r = arg;
        int64_t elapsed = loop_now() - r->started, next;
        int64_t progress_every = r->tool->running_ms < MCP_PROGRESS_MS ? r->tool->running_ms : MCP_PROGRESS_MS;

        if (!to_listener(r))
                return;
        _cleanup_free_ char *text = xasprintf("%s still running", r->tool->name);
        if (due(&r->next_line, elapsed, r->tool->running_ms) && !r->quiet)
                post_message(r, text);
        /* Sooner and oftener than the lines: clients end calls that show no progress, and people want to see some. */
        if (r->token && due(&r->next_progress, elapsed, progress_every))
                post_progress(r, r->own_progress ? r->progress : (double) elapsed / 1000, 0, text);
        next = r->token && r->next_progress < r->next_line ? r->next_progress : r->next_line;
        timer_reset(r->timer, next - elapsed);
}

/* ---- for handlers ---- */

void *mcp_user(const struct mcp_request *r)
{
        return r->user;
}

struct call *mcp_call(const struct mcp_request *r)
{
        return r->c;
}

const char *mcp_client(const struct mcp_request *r)
{
        return r->client ? r->client : "";
}

bool mcp_has_progress(const struct mcp_request *r)
{
        return r->token;
}

bool mcp_cancelled(const struct mcp_request *r)
{
        return r->cancelled;
}

void mcp_progress(struct mcp_request *r, double value, double total, const char *message)
{
        if (!isfinite(value))
                return;
        r->own_progress = true;
        if (to_listener(r) && r->token) {
                _cleanup_free_ char *text = mask_cstr(r->mask, message);

                post_progress(r, value, total, text);
        }
}

void mcp_message(struct mcp_request *r, const char *text)
{
        if (!r->quiet && to_listener(r)) {
                _cleanup_free_ char *masked = mask_cstr(r->mask, text);

                post_message(r, masked);
        }
}

void mcp_mask(struct mcp_request *r, struct mask *m)
{
        mask_unref(r->mask);
        r->mask = mask_ref(m);
}

bool mcp_poll(struct mcp_request *r, int64_t retry_ms)
{
        if (!to_stream(r) || !r->replay)
                return false;
        (void) sse_retry(r->sse, retry_ms);
        end_stream(r);
        return true;
}

void mcp_result_json(struct mcp_request *r, struct str object)
{
        buf_clear(&r->json);
        if ((r->mask ? mask_json(r->mask, object, &r->json) : buf_addstr(&r->json, object)) < 0)
                r->broken = true;
}

/* Opens the next content block; they are kept as text with commas between them. */
static void begin_block(struct jw *w, struct mcp_request *r, const char *type)
{
        if (r->blocks.len > 0 && buf_addc(&r->blocks, ',') < 0)
                r->broken = true;
        jw_init(w, &r->blocks);
        jw_obj(w);
        jw_kstr(w, "type", type);
}

static void end_block(struct jw *w, struct mcp_request *r)
{
        if (jw_end_all(w) < 0)
                r->broken = true;
}

void mcp_result_text(struct mcp_request *r, const char *fmt, ...)
{
        _cleanup_buf_ struct buf text = BUF_MAX(RESULT_MAX);
        struct jw w;
        va_list ap;

        va_start(ap, fmt);
        if (buf_addv(&text, fmt, ap) < 0)
                r->broken = true;
        va_end(ap);
        begin_block(&w, r, "text");
        w.mask = r->mask;
        jw_kstrn(&w, "text", buf_str(&text));
        end_block(&w, r);
}

void mcp_result_image(struct mcp_request *r, const char *mime, const void *p, size_t n)
{
        struct jw w;

        begin_block(&w, r, "image");
        jw_key(&w, "data");
        jw_b64(&w, p, n);
        jw_kstr(&w, "mimeType", mime);
        end_block(&w, r);
}

void mcp_result_block(struct mcp_request *r, struct str block)
{
        if ((r->blocks.len > 0 && buf_addc(&r->blocks, ',') < 0) ||
            (r->mask ? mask_json(r->mask, block, &r->blocks) : buf_addstr(&r->blocks, block)) < 0)
                r->broken = true;
}

void mcp_fail(struct mcp_request *r, const char *fmt, ...)
{
        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
        va_list ap;

        va_start(ap, fmt);
        (void) buf_addv(&text, fmt, ap);
        va_end(ap);
        buf_done(&r->json);
        buf_done(&r->blocks);
        r->broken = false;
        free(r->failure);
        r->failure = mask_error(r->mask, buf_cstr(&text));
}

/* ---- the answer ---- */

static void text_block(struct jw *w, struct str text)
{
        jw_obj(w);
        jw_kstr(w, "type", "text");
        jw_kstrn(w, "text", text);
        jw_end(w);
}

static int result_body(const struct mcp_request *r, struct buf *b)
{
        struct jw w;

        jw_init(&w, b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_key(&w, "id");
        jw_raw(&w, str_of(r->id));
        jw_kobj(&w, "result");
        if (r->modern)
                modern_write_meta(&w, &r->s->cfg);
        jw_karr(&w, "content");
        if (r->failure)
                text_block(&w, str_of(r->failure));
        if (r->json.len > 0)
                text_block(&w, buf_str(&r->json));
        if (r->blocks.len > 0)
                jw_raw(&w, buf_str(&r->blocks));
        jw_end(&w);
        if (r->json.len > 0) {
                jw_key(&w, "structuredContent");
                jw_raw(&w, buf_str(&r->json));
        }
        jw_kbool(&w, "isError", r->failure);
        return jw_end_all(&w);
}

static void answer_body(struct mcp_request *r, struct buf *b)
{
        bool empty = !r->failure && r->json.len == 0 && r->blocks.len == 0;
        const char *why = "Internal error: the tool gave no result; it may have done its work";

        if (r->broken)
                why = "Internal error: the result is too large; the tool has done its work";
        if (r->failure || empty || r->broken)
                r->s->stats.errors++;
        if (!empty && !r->broken && result_body(r, b) == 0)
                return;
        buf_clear(b);
        (void) rpc_error_body(b, r->id, RPC_INTERNAL_ERROR, why);
}

/* The last event. Posting may be refused while the client is slow; it has as long as the server waits for a slow
 * reader. */
static void coroutine_fn post_answer(struct mcp_request *r, const char *id, struct str body)
{
        while (r->sse && sse_post(r->sse, NULL, id, body) == -EAGAIN)
                (void) coro_sleep(POST_RETRY_MS);
        end_stream(r);
}

/* Hands what is kept over to the server, with the response (.p NULL: there is none); its event's id into id. */
static void forget_replay(struct mcp_request *r, struct str response, char id[static REPLAY_ID_MAX])
{
        struct replay *p = steal_ptr(r->replay);

        if (p && response.p)
                replay_id(p, replay_last(p) + 1, id);
        if (p)
                replay_end(p, r->id, response);
}

static void coroutine_fn answer(struct mcp_request *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(ANSWER_MAX);

        answer_body(r, &b);
        /* The parts are in b now; a slow client must not hold both. */
        buf_done(&r->json);
        buf_done(&r->blocks);
        char id[REPLAY_ID_MAX] = "";
        forget_replay(r, buf_str(&b), id);
        if (r->sse)
                post_answer(r, id[0] ? id : NULL, buf_str(&b));
        else if (!r->gone)
                (void) call_reply(r->c, 200, "application/json", b.p, b.len);
}

/* A cancelled call has no response. A stream was ended when the cancellation came; who takes JSON only gets an answer
 * without content. */
static void coroutine_fn answer_nothing(struct mcp_request *r)
{
        if (!r->can_sse && !r->gone)
                (void) call_reply(r->c, 204, NULL, NULL, 0);
}

static void coroutine_fn finish(struct mcp_request *r)
{
        timer_stop(&r->timer);
        call_on_gone(r->c, NULL, NULL);
        leave(r);
        /* The handler's coroutine may be cancelled; its answer is cleanup. */
        coro_shield();
        if (r->cancelled)
                answer_nothing(r);
        else
                answer(r);
        coro_unshield();
        r->c = NULL;
        r->s = NULL;
        r->coro = NULL;
        unref(r);
}

/* ---- start and end ---- */

static int coroutine_fn check_limits(struct exchange *x, const char *id, const char *key)
{
        const struct owner *o = map_get(x->s->owners, str_of(x->owner));

        if (x->s->draining) {
                static const char body[] = "{\"error\":\"The server is restarting; nothing was run. Try again in a few "
                                           "seconds.\",\"reason\":\"maintenance\",\"retryAfterSec\":5}";

                (void) call_add_header(x->c, "Retry-After", "5");
                (void) call_reply(x->c, 503, "application/json", body, sizeof(body) - 1);
                return -EAGAIN;
        }
        if (o && o->calls >= x->s->cfg.calls_per_owner) {
                (void) call_add_header(x->c, "Retry-After", "5");
                reply_error(x, 429, id, RPC_SERVER_ERROR, "%zu calls are running, as many as may; nothing was run",
                            o->calls);
                return -EAGAIN;
        }
        /* Clients without a session count from the same 0 each; only within one is a repeated id a mistake. */
        if (x->session[0] && map_get(x->s->calls, str_of(key))) {
                reply_error(x, 400, id, RPC_INVALID_REQUEST,
                            "a request with this id is running in this session; nothing was run");
                return -EEXIST;
        }
        return 0;
}

static bool is_quiet(const struct exchange *x)
{
        _cleanup_free_ char *key = scoped_key(x->owner, x->session, "");
        uintptr_t level = (uintptr_t) map_get(x->s->levels, str_of(key));

        return x->session[0] && level > LEVEL_INFO + 1;
}

static struct mcp_request *request_new(struct exchange *x, const struct mcp_tool *tool, struct rpc *m, char *key,
                                       char *token)
{
        struct mcp_request *r = xcalloc(1, sizeof(*r));

        r->s = x->s;
        r->c = x->c;
        r->coro = coro_self();
        r->owner = owner_get(x->s, x->owner);
        r->tool = tool;
        r->user = x->user;
        r->id = steal_ptr(m->id);
        r->key = key;
        r->token = token;
        r->started = loop_now();
        r->next_line = tool->running_ms;
        r->progress = -INFINITY;
        r->json = BUF_MAX(RESULT_MAX);
        r->blocks = BUF_MAX(BLOCKS_MAX);
        r->refs = 1;
        r->can_sse = x->accept & ACCEPT_SSE;
        r->resumable = replay_possible(x);
        r->client = steal_ptr(x->client);
        r->modern = x->modern;
        r->quiet = x->modern ? modern_quiet(m) : is_quiet(x);
        return r;
}

static const struct mcp_tool *coroutine_fn find_tool(struct exchange *x, const struct rpc *m)
{
        const char *name = json_str(json_get(m->params, "name"));
        const struct json *args = json_get(m->params, "arguments");
        const struct mcp_tool *tool = name ? map_get(x->s->tool_by_name, json_strn(json_get(m->params, "name"))) : NULL;

        if (!name)
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "`name` is required: the tool to call");
        else if (!tool)
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "Unknown tool: %.200s", name);
        else if (args && json_type(args) != JSON_OBJECT)
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "`arguments` must be an object, got %s",
                            json_type_name(args));
        else
                return tool;
        return NULL;
}

void coroutine_fn serve_tool_call(struct exchange *x, struct rpc *m)
{
        const struct mcp_tool *tool = find_tool(x, m);
        const struct json *token = json_get(json_get(m->params, "_meta"), "progressToken");
        _cleanup_free_ char *key = NULL, *token_text = NULL;
        _cleanup_json_ struct json *args = NULL;
        struct mcp_request *r;

        if (!tool)
                return;
        token_text = rpc_id_text(token);
        if (token && !token_text) {
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "progressToken must be a string or an integer");
                return;
        }
        key = scoped_key(x->owner, x->caller, m->id);
        if (check_limits(x, m->id, key) < 0)
                return;
        r = request_new(x, tool, m, steal_ptr(key), steal_ptr(token_text));
        enter(r);
        /* Of the message only the arguments live as long as the handler. */
        args = json_ref(json_get(m->params, "arguments"));
        if (!args)
                args = json_obj();
        rpc_done(m);
        call_cancel_on_hangup(x->c, false);
        if (x->modern)
                call_on_gone(x->c, on_gone, r);
        if (r->can_sse)
                r->timer = timer_start(tool->running_ms < MCP_SWITCH_MS ? tool->running_ms : MCP_SWITCH_MS, 0, on_timer,
                                       r);
        if (!(x->accept & ACCEPT_JSON))
                (void) to_stream(r);
        (void) x->s->cfg.call(r, tool, args, x->s->cfg.arg);
        finish(r);
}

/* The exchange ends at once; the handler finds its waits cancelled and unwinds in its own time. */
static void cancel(struct mcp_request *r)
{
        if (r->cancelled)
                return;
        char none[REPLAY_ID_MAX];

        if (to_stream(r))
                end_stream(r);
        forget_replay(r, str_n(NULL, 0), none);
        r->cancelled = true;
        coro_cancel(r->coro);
}

void request_resume(struct mcp_request *r, struct call *c, uint64_t after)
{
        /* The client says that it lost the old stream, whether or not TCP has noticed. */
        end_stream(r);
        r->refs++;
        r->gone = false;
        r->sse = sse_detach(c, MCP_CALL_COMMENT_MS, on_close, r);
        if (!r->sse) {
                r->gone = true;
                r->refs--;
                return;
        }
        replay_post(r->replay, r->sse, after);
}

void request_cancel(struct exchange *x, const struct json *params)
{
        _cleanup_free_ char *id = rpc_id_text(json_get(params, "requestId")), *key = NULL;
        struct mcp_request *r;

        if (!id)
                return;
        key = scoped_key(x->owner, x->caller, id);
        r = map_get(x->s->calls, str_of(key));
        /* Of several it cannot be told which one was meant, and stopping another client's work is worse than not
         * stopping. */
        if (r && !r->same)
                cancel(r);
}
