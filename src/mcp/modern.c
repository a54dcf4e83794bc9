/*
 * modern: revision 2026-07-28 on the same endpoint (reference: basic/transports/streamable-http, basic/versioning,
 * server/discover, basic/utilities/subscriptions). Stateless: every request says its version and capabilities itself,
 * headers repeat what intermediaries need, and closing the stream is the cancellation.
 */
#include "mcp/internal.h"

#include "base/b64.h"

#include <errno.h>
#include <stdlib.h>

#define META_PREFIX "io.modelcontextprotocol/"
#define TOOLS_TTL_MS 300000

enum {
        MODERN_HEADER_MISMATCH = -32020,
        MODERN_MISSING_CAPABILITY = -32021,
        MODERN_UNSUPPORTED_VERSION = -32022,
};

static struct str meta_str(const struct rpc *m, const char *key)
{
        return json_strn(json_get(json_get(m->params, "_meta"), key));
}

bool modern_is(const struct exchange *x, const struct rpc *m)
{
        struct str v = call_header(x->c, "mcp-protocol-version");

        if (json_get(json_get(m->params, "_meta"), META_PREFIX "protocolVersion"))
                return true;
        return v.p && str_eq(v, STR(MCP_MODERN_VERSION));
}

/* A header's value as meant: `=?base64?…?=` carries what header bytes cannot (streamable-http, "Standard headers"). */
static int header_value(const struct exchange *x, const char *name, struct buf *out)
{
        static const struct str head = { "=?base64?", 9 }, tail = { "?=", 2 };
        struct str v = call_header(x->c, name);

        if (!v.p)
                return -ENOENT;
        if (str_starts(v, head) && str_ends(v, tail) && v.n >= head.n + tail.n)
                return b64_decode(out, str_n(v.p + head.n, v.n - head.n - tail.n));
        return buf_addstr(out, v);
}

int coroutine_fn modern_check_header(struct exchange *x, const struct rpc *m, const char *name, struct str want)
{
        _cleanup_buf_ struct buf value = BUF_MAX(16 << 10);
        int r = header_value(x, name, &value);

        if (r == 0 && want.p && str_eq(buf_str(&value), want))
                return 0;
        reply_error(x, 400, m->id, MODERN_HEADER_MISMATCH,
                    r == -ENOENT ? "the header %s is required" : "the header %s does not say what the body says", name);
        return -EINVAL;
}

/* An error response up to its "data", which is left open. */
static void begin_error(struct jw *w, struct buf *b, const struct rpc *m, int code, const char *message)
{
        jw_init(w, b);
        jw_obj(w);
        jw_kstr(w, "jsonrpc", "2.0");
        jw_key(w, "id");
        jw_raw(w, str_of(m->id ? m->id : "null"));
        jw_kobj(w, "error");
        jw_kint(w, "code", code);
        jw_kstr(w, "message", message);
        jw_kobj(w, "data");
}

static void coroutine_fn reply_unsupported(struct exchange *x, const struct rpc *m, struct str asked)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        struct jw w;

        begin_error(&w, &b, m, MODERN_UNSUPPORTED_VERSION, "Unsupported protocol version");
        jw_karr(&w, "supported");
        jw_str(&w, MCP_MODERN_VERSION);
        jw_end(&w);
        jw_kstrn(&w, "requested", str_n(asked.p, min_size(asked.n, 100)));
        (void) jw_end_all(&w);
        (void) call_reply(x->c, 400, "application/json", b.p, b.len);
}

static int coroutine_fn check_version(struct exchange *x, const struct rpc *m)
{
        struct str asked = meta_str(m, META_PREFIX "protocolVersion");
        const struct json *capabilities = json_get(json_get(m->params, "_meta"), META_PREFIX "clientCapabilities");

        if (!asked.p || json_type(capabilities) != JSON_OBJECT) {
                reply_error(x, 400, m->id, RPC_INVALID_PARAMS,
                            "params._meta must have " META_PREFIX "protocolVersion (a string) and " META_PREFIX
                            "clientCapabilities (an object)");
                return -EINVAL;
        }
        if (modern_check_header(x, m, "mcp-protocol-version", asked) < 0)
                return -EINVAL;
        if (!str_eq(asked, STR(MCP_MODERN_VERSION))) {
                reply_unsupported(x, m, asked);
                return -EPROTONOSUPPORT;
        }
        return 0;
}

static int coroutine_fn check_headers(struct exchange *x, const struct rpc *m)
{
        static const struct {
                const char *method, *param;
        } named[] = { { "tools/call", "name" }, { "prompts/get", "name" }, { "resources/read", "uri" } };
        int r = modern_check_header(x, m, "mcp-method", str_of(m->method));

        for (size_t i = 0; r == 0 && i < ARRAY_LEN(named); i++) {
                struct str want = json_strn(json_get(m->params, named[i].param));

                /* Without the parameter the method itself says what is missing. */
                if (cstr_eq(m->method, named[i].method) && (want.p || call_header(x->c, "mcp-name").p))
                        r = modern_check_header(x, m, "mcp-name", want);
        }
        return r == 0 && cstr_eq(m->method, "tools/call") ? params_check(x, m) : r;
}

/* ---- results ---- */

void modern_write_meta(struct jw *w, const struct mcp_config *cfg)
{
        jw_kstr(w, "resultType", "complete");
        jw_kobj(w, "_meta");
        jw_kobj(w, META_PREFIX "serverInfo");
        jw_kstr(w, "name", cfg->name);
        jw_kstr(w, "version", cfg->version);
        jw_end(w);
        jw_end(w);
}

static void begin_result(struct jw *w, struct buf *b, const struct exchange *x)
{
        jw_init(w, b);
        jw_obj(w);
        modern_write_meta(w, &x->s->cfg);
}

static void coroutine_fn serve_discover(struct exchange *x, const struct rpc *m)
{
        const struct mcp_config *cfg = &x->s->cfg;
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        begin_result(&w, &b, x);
        jw_karr(&w, "supportedVersions");
        jw_str(&w, MCP_MODERN_VERSION);
        jw_end(&w);
        jw_kobj(&w, "capabilities");
        jw_kobj(&w, "logging");
        jw_end(&w);
        jw_kobj(&w, "tools");
        jw_kbool(&w, "listChanged", true);
        jw_end(&w);
        jw_end(&w);
        if (cfg->instructions)
                jw_kstr(&w, "instructions", cfg->instructions);
        jw_kint(&w, "ttlMs", TOOLS_TTL_MS);
        jw_kstr(&w, "cacheScope", "public");
        (void) jw_end_all(&w);
        reply_result(x, m->id, buf_cstr(&b));
}

static void coroutine_fn serve_list(struct exchange *x, const struct rpc *m)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 16 << 20);
        struct jw w;

        if (json_get(m->params, "cursor")) {
                reply_error(x, 200, m->id, RPC_INVALID_PARAMS, "Invalid cursor");
                return;
        }
        begin_result(&w, &b, x);
        jw_karr(&w, "tools");
        for (size_t i = 0; i < x->s->cfg.tool_count; i++)
                jw_raw(&w, str_of(x->s->cfg.tools[i].listing));
        jw_end(&w);
        /* The list is the same for every caller. */
        jw_kint(&w, "ttlMs", TOOLS_TTL_MS);
        jw_kstr(&w, "cacheScope", "public");
        (void) jw_end_all(&w);
        reply_result(x, m->id, buf_cstr(&b));
}

/* Without a level of its own a request gets no log lines at all. */
bool modern_quiet(const struct rpc *m)
{
        struct str level = meta_str(m, META_PREFIX "logLevel");

        return !level.p || !(str_eq(level, STR("debug")) || str_eq(level, STR("info")));
}

/* "data": {"requiredCapabilities": {"<name>": {}}}, an object shaped like ClientCapabilities */
static void coroutine_fn reply_missing(struct exchange *x, const struct rpc *m, const char *capability)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        struct jw w;

        begin_error(&w, &b, m, MODERN_MISSING_CAPABILITY,
                    "the tool needs a capability that the client did not declare");
        jw_kobj(&w, "requiredCapabilities");
        jw_kobj(&w, capability);
        (void) jw_end_all(&w);
        (void) call_reply(x->c, 400, "application/json", b.p, b.len);
}

static void coroutine_fn serve_call(struct exchange *x, struct rpc *m)
{
        const struct json *meta = json_get(m->params, "_meta");
        const struct json *info = json_get(meta, META_PREFIX "clientInfo");
        struct str name = json_strn(json_get(m->params, "name"));
        const struct mcp_tool *tool = name.p ? map_get(x->s->tool_by_name, name) : NULL;

        if (tool && tool->needs && !json_has(json_get(meta, META_PREFIX "clientCapabilities"), tool->needs)) {
                reply_missing(x, m, tool->needs);
                return;
        }
        if (info)
                x->client = client_name(info);
        serve_tool_call(x, m);
}

static void coroutine_fn serve_modern_request(struct exchange *x, struct rpc *m)
{
        if (cstr_eq(m->method, "tools/call"))
                serve_call(x, m);
        else if (cstr_eq(m->method, "server/discover"))
                serve_discover(x, m);
        else if (cstr_eq(m->method, "tools/list"))
                serve_list(x, m);
        else if (cstr_eq(m->method, "subscriptions/listen"))
                serve_listen(x, m);
        else
                reply_error(x, 404, m->id, RPC_METHOD_NOT_FOUND, "Method not found: %.200s", m->method);
}

void coroutine_fn serve_modern(struct exchange *x, struct rpc *m)
{
        static uint64_t count;

        x->modern = true;
        x->session[0] = '\0'; /* there are none in this revision; the header is ignored */
        x->caller = xasprintf("!%llu", (unsigned long long) ++count);
        if (check_version(x, m) < 0 || (m->kind != RPC_RESPONSE && check_headers(x, m) < 0))
                return;
        if (m->kind == RPC_REQUEST)
                serve_modern_request(x, m);
        else
                (void) call_reply(x->c, 202, NULL, NULL, 0);
}
