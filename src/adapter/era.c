#include "adapter/era.h"
#include "adapter/rawjson.h"
#include "base/b64.h"
#include "base/mem.h"

#include <errno.h>

#define SERVER_INFO "{\"name\":\"parallelsandbox\",\"title\":\"ParallelSandbox\",\"version\":\"" PSBX_VERSION "\"}"
#define CLIENT_INFO "{\"name\":\"parallelsandbox-mcp\",\"version\":\"" PSBX_VERSION "\"}"
#define LIST_TTL "60000"

bool era_is_modern(const struct json *msg)
{
        return json_has(json_get(json_get(msg, "params"), "_meta"), ERA_META "protocolVersion");
}

static bool is_hop(struct str key)
{
        static const char *const hop[] = { ERA_META "protocolVersion", ERA_META "clientCapabilities",
                                           ERA_META "clientInfo", ERA_META "logLevel" };

        for (size_t i = 0; i < ARRAY_LEN(hop); i++)
                if (raw_key_is(key, hop[i]))
                        return true;
        return false;
}

static int add(struct buf *out, bool *first, struct str key, struct str value)
{
        int r = buf_adds(out, *first ? "\"" : ",\"");

        *first = false;
        if (r == 0)
                r = buf_addstr(out, key);
        if (r == 0)
                r = buf_adds(out, "\":");
        return r == 0 ? raw_add_line(out, value) : r;
}

static int add_hop(struct buf *out, bool *first, struct str meta)
{
        struct str caps, info;
        int r;

        if (!raw_get(meta, ERA_META "clientCapabilities", &caps))
                caps = STR("{}");
        if (!raw_get(meta, ERA_META "clientInfo", &info))
                info = STR(CLIENT_INFO);
        r = add(out, first, STR(ERA_META "protocolVersion"), STR("\"" ERA_MODERN "\""));
        if (r == 0)
                r = add(out, first, STR(ERA_META "clientCapabilities"), caps);
        return r == 0 ? add(out, first, STR(ERA_META "clientInfo"), info) : r;
}

static int add_meta(struct buf *out, struct str meta, bool modern)
{
        bool first = true;
        struct str k, v;
        int r = buf_addc(out, '{');

        for (struct raw_it it = raw_begin(meta); r == 0 && raw_next(&it, &k, &v);)
                if (!is_hop(k))
                        r = add(out, &first, k, v);
        if (r == 0 && modern)
                r = add_hop(out, &first, meta);
        return r == 0 ? buf_addc(out, '}') : r;
}

int era_params(struct buf *out, struct str params, bool modern)
{
        struct str k, v, meta = { 0 };
        bool first = true;
        int r;

        if (!modern && !str_has(params, STR(ERA_META)))
                return buf_addstr(out, params);
        r = buf_addc(out, '{');
        for (struct raw_it it = raw_begin(params); r == 0 && raw_next(&it, &k, &v);) {
                if (raw_key_is(k, "_meta"))
                        meta = v;
                else
                        r = add(out, &first, k, v);
        }
        if (r == 0 && (meta.p || modern)) {
                r = buf_adds(out, first ? "\"_meta\":" : ",\"_meta\":");
                if (r == 0)
                        r = add_meta(out, meta, modern);
        }
        return r == 0 ? buf_addc(out, '}') : r;
}

static int add_server(struct buf *out, struct str meta)
{
        struct str k, v, info;
        bool first = true;
        int r = buf_addc(out, '{');

        for (struct raw_it it = raw_begin(meta); r == 0 && raw_next(&it, &k, &v);)
                r = add(out, &first, k, v);
        if (r == 0 && !raw_get(meta, ERA_META "serverInfo", &info))
                r = add(out, &first, STR(ERA_META "serverInfo"), STR(SERVER_INFO));
        return r == 0 ? buf_addc(out, '}') : r;
}

int era_result(struct buf *out, struct str result, bool listing)
{
        struct str k, v, meta = { 0 }, have;
        bool first = true;
        int r = buf_addc(out, '{');

        if (r == 0 && !raw_get(result, "resultType", &have))
                r = add(out, &first, STR("resultType"), STR("\"complete\""));
        for (struct raw_it it = raw_begin(result); r == 0 && raw_next(&it, &k, &v);) {
                if (raw_key_is(k, "_meta"))
                        meta = v;
                else
                        r = add(out, &first, k, v);
        }
        if (r == 0 && listing && !raw_get(result, "ttlMs", &have))
                r = add(out, &first, STR("ttlMs"), STR(LIST_TTL));
        if (r == 0 && listing && !raw_get(result, "cacheScope", &have))
                r = add(out, &first, STR("cacheScope"), STR("\"private\""));
        if (r == 0)
                r = buf_adds(out, first ? "\"_meta\":" : ",\"_meta\":");
        if (r == 0)
                r = add_server(out, meta);
        return r == 0 ? buf_addc(out, '}') : r;
}

static bool plain(struct str s)
{
        if (!s.n || s.p[0] == ' ' || s.p[s.n - 1] == ' ' || str_starts(s, STR("=?base64?")))
                return false;
        for (size_t i = 0; i < s.n; i++)
                if (s.p[i] < 0x20 || s.p[i] >= 0x7f)
                        return false;
        return true;
}

int era_header_value(struct buf *out, struct str value)
{
        int r;

        if (plain(value))
                return buf_addstr(out, value);
        r = buf_adds(out, "=?base64?");
        if (r == 0)
                r = b64_encode(out, value.p, value.n);
        return r == 0 ? buf_adds(out, "?=") : r;
}
