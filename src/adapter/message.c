#include "adapter/adapter.h"
#include "adapter/call.h"
#include "adapter/era.h"
#include "adapter/rawjson.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LATEST ERA_LEGACY
#define DISCOVER_TTL_MS 3600000

static const char instructions[] = "ParallelSandbox gives you Linux boxes to work in, many at a time. sandbox_start "
                                   "claims one, sandbox_sync sends a local folder "
                                   "to /work in it (only what differs), sandbox_exec runs commands, sandbox_pull "
                                   "brings files back, sandbox_review lets a person "
                                   "try the result, sandbox_stop keeps the disk and frees the box. Every id is an "
                                   "argument; sandbox_list shows what there is.";

void adapter_reply_raw(struct adapter *a, struct str id, struct str result)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 512 << 20);

        (void) buf_adds(&b, "{\"jsonrpc\":\"2.0\",\"id\":");
        (void) buf_addstr(&b, id);
        (void) buf_adds(&b, ",\"result\":");
        if (raw_add_line(&b, result) == 0 && buf_addc(&b, '}') == 0)
                out_post(&a->out, buf_str(&b));
        else
                adapter_reply_error(a, id, -32603, "the result is too long to be passed on");
}

void adapter_reply_error(struct adapter *a, struct str id, int code, const char *fmt, ...)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);
        char text[1024];
        struct jw w;
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_key(&w, "id");
        jw_raw(&w, id.n && id.n < 4096 ? id : STR("null"));
        jw_kobj(&w, "error");
        jw_kint(&w, "code", code);
        jw_kstr(&w, "message", text);
        if (jw_end_all(&w) == 0)
                out_post(&a->out, buf_str(&b));
}

void adapter_tools_changed(struct adapter *a)
{
        if (a->legacy)
                out_post(&a->out, STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"));
        listeners_tools_changed(a);
}

static const char *agree(const char *asked)
{
        static const char *const known[] = { LATEST, "2025-06-18", "2025-03-26", "2024-11-05" };

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (cstr_eq(asked, known[i]))
                        return known[i];
        return LATEST;
}

/* "name/version" as a header can carry it: other bytes become "_". */
static void set_client(struct adapter *a, const struct json *info)
{
        const char *name = json_get_str(info, "name", NULL), *version = json_get_str(info, "version", NULL);

        a->up.client[0] = '\0';
        if (!name || !*name)
                return;
        (void) snprintf(a->up.client, sizeof a->up.client, "%.80s%s%.40s", name, version && *version ? "/" : "",
                        version ? version : "");
        for (char *p = a->up.client; *p; p++)
                if (*p <= 0x20 || *p >= 0x7f)
                        *p = '_';
}

static void write_capabilities(struct jw *w)
{
        jw_kobj(w, "capabilities");
        jw_kobj(w, "tools");
        jw_kbool(w, "listChanged", true);
        jw_end(w);
        jw_end(w);
}

static void do_initialize(struct adapter *a, struct str id, const struct json *msg)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);
        const struct json *params = json_get(msg, "params");
        struct jw w;

        a->legacy = true;
        set_client(a, json_get(params, "clientInfo"));
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "protocolVersion", agree(json_get_str(params, "protocolVersion", NULL)));
        write_capabilities(&w);
        jw_kobj(&w, "serverInfo");
        jw_kstr(&w, "name", "parallelsandbox");
        jw_kstr(&w, "title", "ParallelSandbox");
        jw_kstr(&w, "version", PSBX_VERSION);
        jw_end(&w);
        jw_kstr(&w, "instructions", instructions);
        if (jw_end_all(&w) == 0)
                adapter_reply_raw(a, id, buf_str(&b));
}

static void start_call(struct adapter *a, struct str line, struct json *msg, void (*fn)(struct call *c))
{
        struct str id;

        (void) raw_get(line, "id", &id);
        if (call_find(a, id)) {
                adapter_reply_error(a, id, -32600, "a request with this id is still running");
                return;
        }
        call_begin(a, xstrndup(line.p, line.n), line.n, json_ref(msg), fn);
}

/* 2026-07-28: no session, and no initialize; each request says which version it is. */
static void do_discover(struct adapter *a, struct str id)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192), whole = BUF_MAX(16384);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "supportedVersions");
        jw_str(&w, ERA_MODERN);
        jw_end(&w);
        write_capabilities(&w);
        jw_kstr(&w, "instructions", instructions);
        jw_kint(&w, "ttlMs", DISCOVER_TTL_MS);
        if (jw_end_all(&w) == 0 && era_result(&whole, buf_str(&b), true) == 0)
                adapter_reply_raw(a, id, buf_str(&whole));
}

static void refuse_version(struct adapter *a, struct str id, const char *asked)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16384);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_key(&w, "id");
        jw_raw(&w, id);
        jw_kobj(&w, "error");
        jw_kint(&w, "code", -32022);
        jw_kstr(&w, "message", "Unsupported protocol version");
        jw_kobj(&w, "data");
        jw_karr(&w, "supported");
        jw_str(&w, ERA_MODERN);
        jw_end(&w);
        jw_kstr(&w, "requested", asked);
        if (jw_end_all(&w) == 0)
                out_post(&a->out, buf_str(&b));
}

/* True when an answer was given: the request lacks what each request of this era must have. */
static bool refuse_modern(struct adapter *a, struct str id, const struct json *msg)
{
        const struct json *meta = json_get(json_get(msg, "params"), "_meta");
        const struct json *version = json_get(meta, ERA_META "protocolVersion");

        if (json_type(version) != JSON_STRING ||
            json_type(json_get(meta, ERA_META "clientCapabilities")) != JSON_OBJECT) {
                adapter_reply_error(a, id, -32602,
                                    "_meta needs " ERA_META "protocolVersion (a string) and " ERA_META
                                    "clientCapabilities (an object)");
                return true;
        }
        if (!cstr_eq(json_str(version), ERA_MODERN)) {
                refuse_version(a, id, json_str(version));
                return true;
        }
        return false;
}

static void do_modern(struct adapter *a, const char *method, struct str id, struct str line, struct json *msg)
{
        const struct json *info = json_get(json_get(json_get(msg, "params"), "_meta"), ERA_META "clientInfo");

        if (refuse_modern(a, id, msg))
                return;
        if (info)
                set_client(a, info);
        if (strcmp(method, "server/discover") == 0)
                do_discover(a, id);
        else if (strcmp(method, "tools/list") == 0)
                start_call(a, line, msg, call_tools_list);
        else if (strcmp(method, "tools/call") == 0)
                start_call(a, line, msg, call_tool);
        else if (strcmp(method, "subscriptions/listen") == 0)
                listeners_add(a, id, json_get(msg, "params"));
        else
                adapter_reply_error(a, id, -32601, "Method not found: %.100s", method);
}

static void do_request(struct adapter *a, const char *method, struct str id, struct str line, struct json *msg)
{
        if (era_is_modern(msg) || strcmp(method, "server/discover") == 0)
                do_modern(a, method, id, line, msg);
        else if (strcmp(method, "initialize") == 0)
                do_initialize(a, id, msg);
        else if (strcmp(method, "ping") == 0)
                adapter_reply_raw(a, id, STR("{}"));
        else if (strcmp(method, "tools/list") == 0)
                start_call(a, line, msg, call_tools_list);
        else if (strcmp(method, "tools/call") == 0)
                start_call(a, line, msg, call_tool);
        else
                adapter_reply_error(a, id, -32601, "Method not found: %.100s", method);
}

static void do_notification(struct adapter *a, const char *method, struct str line)
{
        struct str params, id;
        struct call *c;

        if (strcmp(method, "notifications/cancelled") != 0)
                return;
        if (!raw_get(line, "params", &params) || !raw_get(params, "requestId", &id))
                return;
        c = call_find(a, id);
        if (c)
                call_cancel(c);
        else
                listeners_cancel(a, id);
}

static bool id_ok(const struct json *id)
{
        return json_type(id) == JSON_STRING || json_type(id) == JSON_INT;
}

static void do_object(struct adapter *a, struct str line, struct json *msg)
{
        const char *method = json_get_str(msg, "method", NULL);
        bool has_id = json_has(msg, "id");
        struct str id = { 0 };

        if (has_id && id_ok(json_get(msg, "id")))
                (void) raw_get(line, "id", &id);
        if (!cstr_eq(json_get_str(msg, "jsonrpc", NULL), "2.0")) {
                adapter_reply_error(a, id, -32600, "jsonrpc must be \"2.0\"");
        } else if (!method) {
                if (json_has(msg, "result") || json_has(msg, "error"))
                        return; /* an answer to a question this adapter never asks */
                adapter_reply_error(a, id, -32600, "method must be a string");
        } else if (!has_id) {
                do_notification(a, method, line);
        } else if (!id.p) {
                adapter_reply_error(a, id, -32600, "id must be a string or an integer");
        } else if (json_has(msg, "params") && json_type(json_get(msg, "params")) != JSON_OBJECT) {
                adapter_reply_error(a, id, -32602, "params must be an object");
        } else {
                do_request(a, method, id, line, msg);
        }
}

int adapter_line(struct str line, void *arg)
{
        struct adapter *a = arg;
        _cleanup_json_ struct json *msg = NULL;
        struct err e = { 0 };

        if (!line.p) {
                adapter_reply_error(a, line, -32700, "the line is longer than %zu MB", LINE_BYTES_MAX >> 20);
                return 0;
        }
        if (json_parse(line.p, line.n, &msg, &e) < 0) {
                adapter_reply_error(a, str_n(NULL, 0), -32700, "Parse error: %s", err_text(&e));
                return 0;
        }
        if (json_type(msg) == JSON_ARRAY)
                adapter_reply_error(a, str_n(NULL, 0), -32600,
                                    "batches are not part of this protocol version: send one message per line");
        else if (json_type(msg) != JSON_OBJECT)
                adapter_reply_error(a, str_n(NULL, 0), -32600, "a message is a JSON object");
        else
                do_object(a, line, msg);
        return 0;
}
