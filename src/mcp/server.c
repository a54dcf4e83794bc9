#include "mcp/internal.h"

#include <errno.h>
#include <stdlib.h>

#define BODY_MAX ((size_t) 4 << 20)
#define LEVELS_MAX 10000 /* sessions with a log level of their own */

static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26" }; /* the newest first */

static const char *const level_names[] = {
        [LEVEL_DEBUG] = "debug",     [LEVEL_INFO] = "info",           [LEVEL_NOTICE] = "notice",
        [LEVEL_WARNING] = "warning", [LEVEL_ERROR] = "error",         [LEVEL_CRITICAL] = "critical",
        [LEVEL_ALERT] = "alert",     [LEVEL_EMERGENCY] = "emergency",
};

static const char *known_version(struct str v)
{
        for (size_t i = 0; i < ARRAY_LEN(versions); i++)
                if (str_eq(v, str_of(versions[i])))
                        return versions[i];
        return NULL;
}

/* ---- owners ---- */

struct owner *owner_get(struct mcp_server *s, const char *name)
{
        struct owner *o = map_get(s->owners, str_of(name));

        if (o)
                return o;
        o = xcalloc(1, sizeof(*o));
        o->name = xstrdup(name);
        list_init(&o->streams);
        (void) map_put(s->owners, str_of(name), o);
        return o;
}

void owner_put(struct mcp_server *s, struct owner *o)
{
        if (o->calls > 0 || o->n_streams > 0 || o->n_replays > 0)
                return;
        (void) map_del(s->owners, str_of(o->name));
        free(o->name);
        free(o);
}

char *scoped_key(const char *owner, const char *caller, const char *last)
{
        return xasprintf("%s%c%s%c%s", owner, SCOPE_SEPARATOR, caller, SCOPE_SEPARATOR, last);
}

/* ---- the server ---- */

static char *list_of(const struct mcp_config *cfg)
{
        struct buf b = BUF_MAX((size_t) 16 << 20);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "tools");
        for (size_t i = 0; i < cfg->tool_count; i++)
                jw_raw(&w, str_of(cfg->tools[i].listing));
        (void) jw_end_all(&w);
        return buf_steal(&b);
}

struct mcp_server *mcp_server_new(const struct mcp_config *cfg)
{
        struct mcp_server *s = xcalloc(1, sizeof(*s));

        s->cfg = *cfg;
        if (!s->cfg.calls_per_owner)
                s->cfg.calls_per_owner = 4096;
        if (!s->cfg.streams_per_owner)
                s->cfg.streams_per_owner = 64;
        if (!s->cfg.streams)
                s->cfg.streams = 4096;
        s->tools = list_of(cfg);
        s->tool_by_name = map_new();
        s->owners = map_new();
        s->calls = map_new();
        s->levels = map_new();
        list_init(&s->streams);
        s->replays = map_new();
        list_init(&s->replays_kept);
        s->params = map_new();
        for (size_t i = 0; i < cfg->tool_count; i++) {
                (void) map_put(s->tool_by_name, str_of(cfg->tools[i].name), (void *) (uintptr_t) &cfg->tools[i]);
                params_learn(s, &cfg->tools[i]);
        }
        return s;
}

void mcp_server_free(struct mcp_server *s)
{
        if (!s)
                return;
        events_close(s, NULL, NULL);
        replays_free(s);
        params_free(s);
        map_free(s->tool_by_name);
        map_free(s->owners);
        map_free(s->calls);
        map_free(s->levels);
        free(s->tools);
        free(s);
}

void mcp_server_drain(struct mcp_server *s)
{
        s->draining = true;
        events_close(s, NULL, NULL);
}

void mcp_server_stats(const struct mcp_server *s, struct mcp_stats *ret)
{
        *ret = s->stats;
}

/* ---- answers ---- */

/* A client that takes only streams gets its one message as one; every other gets JSON. */
static void coroutine_fn reply_body(struct exchange *x, unsigned status, const struct buf *b)
{
        if (status == 200 && !(x->accept & ACCEPT_JSON)) {
                if (sse_start(x->c) == 0)
                        (void) sse_event(x->c, NULL, NULL, buf_str(b));
                return;
        }
        (void) call_reply(x->c, status, "application/json", b->p, b->len);
}

void coroutine_fn reply_error(struct exchange *x, unsigned status, const char *id, int code, const char *fmt, ...)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        struct err e;
        va_list ap;

        va_start(ap, fmt);
        (void) err_setv(&e, code, fmt, ap);
        va_end(ap);
        (void) rpc_error_body(&b, id, code, e.msg);
        reply_body(x, status, &b);
}

void coroutine_fn reply_result(struct exchange *x, const char *id, const char *result)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 16 << 20);

        if (rpc_result_body(&b, id, str_of(result)) < 0) {
                reply_error(x, 200, id, RPC_INTERNAL_ERROR, "Internal error");
                return;
        }
        reply_body(x, 200, &b);
}

/* ---- methods ---- */

static void write_initialize(struct jw *w, const struct mcp_config *cfg, const char *version)
{
        jw_obj(w);
        jw_kstr(w, "protocolVersion", version);
        jw_kobj(w, "capabilities");
        jw_kobj(w, "logging");
        jw_end(w);
        jw_kobj(w, "tools");
        jw_kbool(w, "listChanged", true);
        jw_end(w);
        jw_end(w);
        jw_kobj(w, "serverInfo");
        jw_kstr(w, "name", cfg->name);
        if (cfg->title)
                jw_kstr(w, "title", cfg->title);
        jw_kstr(w, "version", cfg->version);
        jw_end(w);
        if (cfg->instructions)
                jw_kstr(w, "instructions", cfg->instructions);
}

char *client_name(const struct json *info)
{
        const char *name = json_get_str(info, "name", ""), *version = json_get_str(info, "version", "");

        return xasprintf("%.100s%s%.40s", name, version[0] ? "/" : "", version);
}

static void coroutine_fn serve_initialize(struct exchange *x, const struct rpc *m)
{
        const struct mcp_config *cfg = &x->s->cfg;
        struct str asked = json_strn(json_get(m->params, "protocolVersion"));
        const char *version = versions[0];
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        if (!asked.p) {
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "`protocolVersion` is required: a string like \"%s\"",
                            versions[0]);
                return;
        }
        for (size_t i = 0; i < ARRAY_LEN(versions); i++)
                if (str_eq(asked, str_of(versions[i])))
                        version = versions[i];
        if (cfg->session_new) {
                _cleanup_free_ char *client = client_name(json_get(m->params, "clientInfo"));
                char id[MCP_SESSION_ID_MAX + 1] = "";

                if (cfg->session_new(x->owner, version, client, id, cfg->arg) < 0) {
                        reply_error(x, 500, m->id, RPC_INTERNAL_ERROR,
                                    "Internal error: the session could not be stored");
                        return;
                }
                (void) call_add_header(x->c, "Mcp-Session-Id", id);
                x->s->stats.sessions_opened++;
        }
        jw_init(&w, &b);
        write_initialize(&w, cfg, version);
        (void) jw_end_all(&w);
        reply_result(x, m->id, buf_cstr(&b));
}

static void coroutine_fn serve_tools_list(struct exchange *x, const struct rpc *m)
{
        /* There is one page, so no cursor was ever given out. */
        if (json_get(m->params, "cursor"))
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "Invalid cursor");
        else
                reply_result(x, m->id, x->s->tools);
}

static void coroutine_fn serve_set_level(struct exchange *x, const struct rpc *m)
{
        const char *name = json_str(json_get(m->params, "level"));
        _cleanup_free_ char *key = scoped_key(x->owner, x->session, "");
        uintptr_t level = 0;

        while (level < ARRAY_LEN(level_names) && !cstr_eq(name, level_names[level]))
                level++;
        if (level == ARRAY_LEN(level_names)) {
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS,
                            "`level` must be one of debug, info, notice, warning, error, critical, alert, emergency");
                return;
        }
        /* Without a session there is nobody to remember it for: each such request is a client of its own. */
        if (level == LEVEL_INFO)
                (void) map_del(x->s->levels, str_of(key));
        else if (x->session[0] && map_len(x->s->levels) < LEVELS_MAX)
                (void) map_put(x->s->levels, str_of(key), (void *) (level + 1));
        reply_result(x, m->id, "{}");
}

static void coroutine_fn serve_request(struct exchange *x, struct rpc *m)
{
        if (cstr_eq(m->method, "tools/call"))
                serve_tool_call(x, m);
        else if (cstr_eq(m->method, "initialize"))
                serve_initialize(x, m);
        else if (cstr_eq(m->method, "ping"))
                reply_result(x, m->id, "{}");
        else if (cstr_eq(m->method, "tools/list"))
                serve_tools_list(x, m);
        else if (cstr_eq(m->method, "logging/setLevel"))
                serve_set_level(x, m);
        else
                reply_error(x, 200, m->id, RPC_METHOD_NOT_FOUND, "Method not found: %.200s", m->method);
}

/* ---- transport ---- */

/* The parts of a comma-separated list header, parameters cut. */
static bool next_part(struct str *list, struct str *ret)
{
        struct str part;

        if (list->n == 0)
                return false;
        part = str_cut(list, ',');
        *ret = str_trim(str_cut(&part, ';'), " \t");
        return true;
}

static unsigned accepts(const struct call *c)
{
        const struct h1_head *h = call_head(c);
        unsigned r = 0;
        bool seen = false;

        for (size_t i = 0; i < h->header_count; i++) {
                struct str list = h->headers[i].value, part;

                if (!str_ieq(h->headers[i].name, STR("accept")))
                        continue;
                seen = true;
                while (next_part(&list, &part)) {
                        if (str_ieq(part, STR("*/*")))
                                r |= ACCEPT_JSON | ACCEPT_SSE;
                        else if (str_ieq(part, STR("application/json")) || str_ieq(part, STR("application/*")))
                                r |= ACCEPT_JSON;
                        else if (str_ieq(part, STR("text/event-stream")) || str_ieq(part, STR("text/*")))
                                r |= ACCEPT_SSE;
                }
        }
        return seen ? r : ACCEPT_JSON | ACCEPT_SSE;
}

static bool is_json(struct str content_type)
{
        return str_ieq(str_trim(str_cut(&content_type, ';'), " \t"), STR("application/json"));
}

static int coroutine_fn check_version(struct exchange *x)
{
        struct str v = call_header(x->c, "mcp-protocol-version");

        x->version = v.p ? known_version(v) : NULL;
        if (!v.p || x->version)
                return 0;
        reply_error(x, 400, NULL, RPC_INVALID_REQUEST,
                    "Bad request: unsupported MCP-Protocol-Version; supported are " MCP_MODERN_VERSION ", %s, %s, %s",
                    versions[0], versions[1], versions[2]);
        return -EPROTONOSUPPORT;
}

static int coroutine_fn check_session(struct exchange *x, const char *id)
{
        const struct mcp_config *cfg = &x->s->cfg;
        struct str given = call_header(x->c, "mcp-session-id");
        struct mcp_session session = { 0 };
        int r = -ENOENT;

        if (!given.p)
                return 0;
        if (given.n > 0 && given.n <= MCP_SESSION_ID_MAX && cfg->session_check) {
                memcpy(x->session, given.p, given.n);
                x->session[given.n] = '\0';
                r = cfg->session_check(x->owner, x->session, &session, cfg->arg);
        }
        if (r < 0)
                x->session[0] = '\0';
        else if (!x->version)
                x->version = known_version(str_of(session.version));
        if (r == 0 && session.client[0])
                x->client = xstrdup(session.client);
        if (r == -ENOENT)
                reply_error(x, 404, id, RPC_SESSION_NOT_FOUND, "Session not found");
        else if (r < 0)
                reply_error(x, 500, id, RPC_INTERNAL_ERROR, "Internal error: the session could not be looked up");
        return r;
}

static void name_caller(struct exchange *x)
{
        struct str v = x->s->cfg.caller_header ? call_header(x->c, x->s->cfg.caller_header) : str_n(NULL, 0);

        if (x->session[0])
                x->caller = xstrdup(x->session);
        else if (v.n > 0 && v.n <= 128)
                x->caller = xasprintf("@%.*s", (int) v.n, v.p);
        else
                x->caller = xstrdup("");
}

static void coroutine_fn serve_message(struct exchange *x, struct rpc *m)
{
        bool first = m->kind == RPC_REQUEST && cstr_eq(m->method, "initialize");

        if (modern_is(x, m)) {
                serve_modern(x, m);
                return;
        }
        if (check_version(x) < 0)
                return;
        /* A client that begins anew may still carry the id of a session that ended. */
        if (!first && check_session(x, m->id) < 0)
                return;
        name_caller(x);
        if (m->kind == RPC_REQUEST) {
                serve_request(x, m);
                return;
        }
        if (m->kind == RPC_NOTIFICATION && cstr_eq(m->method, "notifications/cancelled"))
                request_cancel(x, m->params);
        (void) call_reply(x->c, 202, NULL, NULL, 0);
}

/* In a function of its own, so that neither the body nor its buffer lives while a handler waits. */
static int coroutine_fn read_message(struct exchange *x, struct rpc *m)
{
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);
        struct err e = { 0 };
        int r;

        r = call_read_all(x->c, &body, &e);
        if (r == -EMSGSIZE || r == -ENOBUFS)
                reply_error(x, 413, NULL, RPC_INVALID_REQUEST, "the message is longer than %zu bytes", BODY_MAX);
        if (r < 0)
                return r;
        r = rpc_parse(body.p, body.len, m, &e);
        if (r < 0)
                reply_error(x, 400, m->id, e.code, "%s", e.msg);
        return r;
}

static void coroutine_fn serve_post(struct exchange *x)
{
        _cleanup_rpc_ struct rpc m = { 0 };

        if (!is_json(call_header(x->c, "content-type")))
                reply_error(x, 415, NULL, RPC_INVALID_REQUEST, "Content-Type must be application/json");
        else if (!x->accept)
                reply_error(x, 406, NULL, RPC_INVALID_REQUEST,
                            "Accept must allow application/json and text/event-stream");
        else if (read_message(x, &m) == 0)
                serve_message(x, &m);
}

static void coroutine_fn serve_get(struct exchange *x)
{
        if (!h1_has_token(call_head(x->c), "accept", "text/event-stream") && !(x->accept == ACCEPT_SSE)) {
                reply_error(x, 406, NULL, RPC_INVALID_REQUEST, "Accept must allow text/event-stream");
                return;
        }
        if (check_session(x, NULL) < 0)
                return;
        name_caller(x);
        if (serve_resume(x))
                return;
        if (x->s->draining) {
                (void) call_add_header(x->c, "Retry-After", "5");
                reply_error(x, 503, NULL, RPC_SERVER_ERROR, "the server is restarting");
                return;
        }
        serve_events(x);
}

static void coroutine_fn serve_delete(struct exchange *x)
{
        const struct mcp_config *cfg = &x->s->cfg;
        _cleanup_free_ char *key = NULL;
        int r;

        if (!call_header(x->c, "mcp-session-id").p) {
                reply_error(x, 400, NULL, RPC_INVALID_REQUEST, "Mcp-Session-Id is required");
                return;
        }
        if (check_session(x, NULL) < 0)
                return;
        r = cfg->session_end ? cfg->session_end(x->owner, x->session, cfg->arg) : 0;
        if (r < 0 && r != -ENOENT) {
                reply_error(x, 500, NULL, RPC_INTERNAL_ERROR, "Internal error: the session could not be ended");
                return;
        }
        key = scoped_key(x->owner, x->session, "");
        (void) map_del(x->s->levels, str_of(key));
        events_close(x->s, x->owner, x->session);
        (void) call_reply(x->c, 204, NULL, NULL, 0);
}

void coroutine_fn mcp_serve(struct mcp_server *s, struct call *c, const char *owner, void *user)
{
        struct exchange x = { .s = s, .c = c, .owner = owner, .user = user, .accept = accepts(c) };
        struct str method = call_method(c);

        if (!str_eq(method, STR("POST")) && !str_eq(method, STR("GET")) && !str_eq(method, STR("DELETE"))) {
                (void) call_add_header(c, "Allow", "GET, POST, DELETE");
                reply_error(&x, 405, NULL, RPC_INVALID_REQUEST, "Method not allowed");
                return;
        }
        if (str_eq(method, STR("POST")))
                serve_post(&x);
        else if (check_version(&x) < 0)
                (void) 0; /* answered */
        else if (str_eq(method, STR("GET")))
                serve_get(&x);
        else
                serve_delete(&x);
        free(x.caller);
        free(x.client);
}
