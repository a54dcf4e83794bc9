/* parallelsandbox-conformance [PORT]: the product's MCP server with the fixtures as its tools. Without sign-in, on
 * loopback; prints its address. */
#include "fixtures.h"

#include "base/ids.h"
#include "base/map.h"
#include "http/server.h"
#include "loop/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct conformance {
        struct mcp_server *mcp;
        struct http_server *http;
        struct map *sessions; /* id → struct mcp_session */
};

static struct conformance server;

static int session_new(const char *owner, const char *version, const char *client, char id[static 40], void *arg)
{
        struct mcp_session *x = xcalloc(1, sizeof *x);

        random_id(id, 39);
        (void) snprintf(x->version, sizeof x->version, "%s", version);
        (void) snprintf(x->client, sizeof x->client, "%s", client);
        (void) map_put(server.sessions, str_of(id), x);
        return 0;
}

static int session_check(const char *owner, const char *id, struct mcp_session *ret, void *arg)
{
        const struct mcp_session *x = map_get(server.sessions, str_of(id));

        if (!x)
                return -ENOENT;
        *ret = *x;
        return 0;
}

static int session_end(const char *owner, const char *id, void *arg)
{
        free(map_del(server.sessions, str_of(id)));
        return 0;
}

static bool is_ours(struct str s, const char *scheme)
{
        static const char *const names[] = { "127.0.0.1", "localhost" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                _cleanup_free_ char *want = xasprintf("%s%s:%u", scheme, names[i], http_server_port(server.http));

                if (str_eq(s, str_of(want)))
                        return true;
        }
        return false;
}

static void coroutine_fn handle(struct call *c, void *arg)
{
        struct str origin = call_header(c, "origin");

        if (!str_eq(call_path(c), STR("/mcp")))
                (void) call_reply_error(c, 404, "not_found", "there is only /mcp");
        else if (origin.p && !is_ours(origin, "http://"))
                (void) call_reply_error(c, 403, "origin", "foreign origin");
        else if (!is_ours(call_host(c), ""))
                (void) call_reply_error(c, 421, "host", "foreign host");
        else
                mcp_serve(server.mcp, c, "conformance", &server.mcp);
}

static int drop(struct str key, void *value, void *arg)
{
        free(value);
        return 0;
}

static void coroutine_fn stop(void *arg)
{
        mcp_server_drain(server.mcp);
        http_server_stop(server.http, 0);
        mcp_server_free(server.mcp);
        http_server_free(server.http);
        (void) map_each(server.sessions, drop, NULL);
        map_free(server.sessions);
        loop_stop();
}

static void on_signal(int signum, void *arg)
{
        (void) coro_start(stop, NULL, 0, "stop");
}

int main(int argc, char **argv)
{
        struct mcp_config cfg = {
                .name = "parallelsandbox-conformance",
                .version = "1.0",
                .tools = fixtures,
                .tool_count = fixture_count,
                .call = fixtures_call,
                .session_new = session_new,
                .session_check = session_check,
                .session_end = session_end,
        };
        uint64_t port = 0;
        struct err e = { 0 };

        if (argc > 1 && parse_u64(str_of(argv[1]), 65535, &port) < 0)
                return 2;
        if (loop_init(&e) < 0) {
                (void) fprintf(stderr, "parallelsandbox-conformance: %s\n", err_text(&e));
                return 1;
        }
        server.sessions = map_new();
        server.mcp = mcp_server_new(&cfg);
        server.http = http_server_new(NULL, handle, NULL);
        if (http_server_listen(server.http, "127.0.0.1", (unsigned) port, &e) < 0) {
                (void) fprintf(stderr, "parallelsandbox-conformance: %s\n", err_text(&e));
                return 1;
        }
        (void) printf("http://127.0.0.1:%u/mcp\n", http_server_port(server.http));
        (void) fflush(stdout);
        (void) loop_on_signal(SIGTERM, on_signal, NULL);
        (void) loop_on_signal(SIGINT, on_signal, NULL);
        loop_run();
        loop_done();
        return 0;
}
