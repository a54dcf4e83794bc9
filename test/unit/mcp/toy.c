#include "toy.h"

#include "base/ids.h"
#include "base/map.h"
#include "loop/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { ECHO, SLOW, SILENT, FAIL, IMAGE, NOTHING, WAIT, TALK, POLL, WHO, NEEDY, REGION };

#define LISTING(n, props)                                                                                    \
        "{\"name\":\"" n "\",\"title\":\"" n "\",\"description\":\"A tool of the toy server: " n ".\","      \
        "\"inputSchema\":{\"type\":\"object\",\"properties\":{" props "},\"additionalProperties\":false},"   \
        "\"outputSchema\":{\"type\":\"object\"},\"annotations\":{\"title\":\"" n "\",\"readOnlyHint\":true," \
        "\"destructiveHint\":false,\"idempotentHint\":true,\"openWorldHint\":false}}"
#define INT(n) "\"" n "\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":100000000}"

static const struct mcp_tool tools[] = {
        { "echo", LISTING("echo", "\"text\":{\"type\":\"string\"}"), 20000, ECHO },
        { "slow", LISTING("slow", INT("ms") "," INT("steps")), 20000, SLOW },
        { "silent", LISTING("silent", INT("ms")), 400, SILENT },
        { "fail", LISTING("fail", ""), 20000, FAIL },
        { "image", LISTING("image", INT("bytes") "," INT("ms")), 20000, IMAGE },
        { "nothing", LISTING("nothing", ""), 20000, NOTHING },
        { "wait", LISTING("wait", ""), 20000, WAIT },
        { "talk", LISTING("talk", ""), 20000, TALK },
        { "poll", LISTING("poll", INT("ms") "," INT("bytes")), 20000, POLL },
        { "who", LISTING("who", ""), 20000, WHO },
        { "needy", LISTING("needy", ""), 20000, NEEDY, .needs = "sampling" },
        { "region",
          LISTING("region", "\"text\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
                            "\"deep\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\","
                            "\"x-mcp-header\":\"Depth\"}}}"),
          20000, REGION },
};

/* Sleeps; -ECANCELED is counted when it came from the client. */
static int coroutine_fn nap(struct toy *t, struct mcp_request *r, int64_t ms)
{
        int e = ms ? coro_sleep(ms) : 0;

        if (e == -ECANCELED && mcp_cancelled(r))
                t->cancelled++;
        if (e < 0)
                mcp_fail(r, "the server is stopping");
        return e;
}

static void result_int(struct mcp_request *r, const char *key, int64_t v)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1000);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kint(&w, key, v);
        (void) jw_end_all(&w);
        mcp_result_json(r, buf_str(&b));
}

static void echo(struct mcp_request *r, const struct json *args)
{
        _cleanup_buf_ struct buf b = BUF_MAX(10 << 20);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_key(&w, "text");
        jw_strn(&w, json_strn(json_get(args, "text")));
        (void) jw_end_all(&w);
        mcp_result_json(r, buf_str(&b));
}

static int coroutine_fn slow(struct toy *t, struct mcp_request *r, const struct json *args)
{
        int64_t ms = json_get_int(args, "ms", 3000), steps = json_get_int(args, "steps", 6);

        for (int64_t i = 1; i <= steps; i++) {
                if (nap(t, r, ms / steps) < 0)
                        return -ECANCELED;
                mcp_progress(r, (double) i, (double) steps, "a step");
        }
        result_int(r, "steps", steps);
        return 0;
}

static int coroutine_fn image(struct toy *t, struct mcp_request *r, const struct json *args)
{
        size_t n = (size_t) json_get_int(args, "bytes", 70);
        _cleanup_free_ char *p = xcalloc(1, n + 1);

        if (nap(t, r, json_get_int(args, "ms", 0)) < 0)
                return -ECANCELED;
        result_int(r, "bytes", (int64_t) n);
        mcp_result_text(r, "a %s", "picture");
        mcp_result_image(r, "image/png", p, n);
        return 0;
}

static int coroutine_fn silent(struct toy *t, struct mcp_request *r, const struct json *args)
{
        if (nap(t, r, json_get_int(args, "ms", 3000)) < 0)
                return -ECANCELED;
        result_int(r, "ok", 1);
        return 0;
}

static int coroutine_fn run(struct mcp_request *r, const struct mcp_tool *tool, const struct json *args, void *arg)
{
        struct toy *t = arg;
        int e = 0;

        switch (tool->id) {
        case ECHO:
                echo(r, args);
                break;
        case SLOW:
                e = slow(t, r, args);
                break;
        case SILENT:
                e = silent(t, r, args);
                break;
        case FAIL:
                result_int(r, "ok", 1);
                mcp_fail(r, "it failed: %d", 7);
                break;
        case IMAGE:
                e = image(t, r, args);
                break;
        case WAIT:
                e = nap(t, r, 3600000);
                break;
        case POLL:
                t->polled = mcp_poll(r, 50);
                e = json_has(args, "bytes") ? image(t, r, args) : silent(t, r, args);
                break;
        case WHO:
                mcp_result_text(r, "%s", mcp_client(r));
                break;
        case NEEDY:
        case REGION:
                echo(r, args);
                break;
        case TALK:
                mcp_message(r, "one");
                mcp_message(r, "two");
                result_int(r, "ok", 1);
                break;
        default:
                return -EIO;
        }
        t->completed += e == 0;
        return e;
}

/* ---- sessions ---- */

static char *session_key(const char *owner, const char *id)
{
        return xasprintf("%s %s", owner, id);
}

static int session_new(const char *owner, const char *version, const char *client, char id[static 40], void *arg)
{
        struct toy *t = arg;
        _cleanup_free_ char *key = NULL;

        random_id(id, 30);
        key = session_key(owner, id);
        struct mcp_session *x = xcalloc(1, sizeof(*x));
        (void) snprintf(x->version, sizeof x->version, "%s", version);
        (void) snprintf(x->client, sizeof x->client, "%s", client);
        (void) map_put(t->sessions, str_of(key), x);
        t->sessions_opened++;
        return 0;
}

static int session_check(const char *owner, const char *id, struct mcp_session *ret, void *arg)
{
        struct toy *t = arg;
        _cleanup_free_ char *key = session_key(owner, id);
        const struct mcp_session *x = map_get(t->sessions, str_of(key));

        if (!x)
                return -ENOENT;
        *ret = *x;
        return 0;
}

static int session_end(const char *owner, const char *id, void *arg)
{
        struct toy *t = arg;
        _cleanup_free_ char *key = session_key(owner, id);

        free(map_del(t->sessions, str_of(key)));
        return 0;
}

/* ---- HTTP ---- */

static bool is_ours(struct str s, unsigned port, const char *scheme)
{
        _cleanup_free_ char *a = xasprintf("%s127.0.0.1:%u", scheme, port),
                            *b = xasprintf("%slocalhost:%u", scheme, port);

        return str_eq(s, str_of(a)) || str_eq(s, str_of(b));
}

static void coroutine_fn handle(struct call *c, void *arg)
{
        struct toy *t = arg;
        unsigned port = http_server_port(t->http);
        struct str origin = call_header(c, "origin"), owner = call_header(c, "x-owner");
        _cleanup_free_ char *name = owner.p ? xstrndup(owner.p, owner.n) : xstrdup("toy");

        if (!str_eq(call_path(c), STR("/mcp")))
                (void) call_reply_error(c, 404, "not_found", "there is only /mcp");
        else if (t->check_origin && origin.p && !is_ours(origin, port, "http://"))
                (void) call_reply_error(c, 403, "origin", "foreign origin");
        else if (t->check_origin && !is_ours(call_host(c), port, ""))
                (void) call_reply_error(c, 421, "host", "foreign host");
        else
                mcp_serve(t->mcp, c, name, t);
}

void toy_start(struct toy *t, const struct mcp_config *limits, unsigned port)
{
        struct mcp_config cfg = limits ? *limits : (struct mcp_config){ 0 };
        struct err e = { 0 };

        *t = (struct toy){ .sessions = map_new() };
        cfg.name = "toy";
        cfg.title = "Toy";
        cfg.version = "1.0";
        cfg.instructions = "Call echo.";
        cfg.tools = tools;
        cfg.tool_count = ARRAY_LEN(tools);
        cfg.call = run;
        cfg.session_new = session_new;
        cfg.session_check = session_check;
        cfg.session_end = session_end;
        cfg.caller_header = "x-agent";
        cfg.arg = t;
        t->mcp = mcp_server_new(&cfg);
        t->http = http_server_new(NULL, handle, t);
        if (http_server_listen(t->http, "127.0.0.1", port, &e) < 0) {
                (void) fprintf(stderr, "toy: %s\n", err_text(&e));
                exit(1);
        }
}

static int drop(struct str key, void *value, void *arg)
{
        free(value);
        return 0;
}

void coroutine_fn toy_stop(struct toy *t)
{
        mcp_server_drain(t->mcp);
        http_server_stop(t->http, 0);
        mcp_server_free(t->mcp);
        http_server_free(t->http);
        (void) map_each(t->sessions, drop, NULL);
        map_free(t->sessions);
}
