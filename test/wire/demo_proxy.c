/*
 * demo_proxy: the proxy of the http/ folder in front of one port of this machine, for test_proxy.py and for
 * measurements. Loopback only.  demo_proxy SERVICE_PORT [LISTEN_PORT]  prints its port and serves until SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "http/proxy.h"
#include "http/server.h"
#include "loop/loop.h"

static struct http_server *server;
static unsigned service_port;

static int coroutine_fn dial(void *arg, struct stream **ret, struct err *e)
{
        (void) arg;
        return stream_connect_tcp("127.0.0.1", service_port, 5000, ret, e);
}

static void upgraded(void *arg, struct stream *client, struct stream *service)
{
        (void) arg;
        (void) tunnel_start(client, service, -1, NULL, NULL);
}

static int inward(void *arg, struct str origin, struct buf *out)
{
        (void) arg;
        if (str_has(origin, STR("secret")))
                return -EACCES;
        return str_eq(origin, STR("http://outside.test")) ? (buf_adds(out, "http://localhost:5173"), 1) : 0;
}

static int outward(void *arg, struct str origin, struct buf *out)
{
        (void) arg;
        return str_eq(origin, STR("http://localhost:5173")) ? (buf_adds(out, "http://outside.test"), 1) : 0;
}

static const char *const private_cookies[] = { "psbx_", NULL };
static const char *const more[] = { "Referrer-Policy", "same-origin", NULL };
static const struct proxy_policy policy = {
        .host = "localhost:5173",
        .forwarded_host = "localhost:5173",
        .forwarded_proto = "http",
        .inward = inward,
        .outward = outward,
        .private_cookies = private_cookies,
        .more = more,
};

static void coroutine_fn serve(struct call *c, void *arg)
{
        static const struct proxy_target target = {
                .policy = &policy, .key = "the one", .dial = dial, .upgraded = upgraded
        };
        struct err e = { 0 };

        (void) arg;
        int r = proxy_serve(c, &target, &e);
        if (r < 0)
                (void) call_reply_error(c, 502, "bad_gateway", "%d %s", r, err_text(&e));
}

static void coroutine_fn stop(void *arg)
{
        (void) arg;
        http_server_stop(server, 1000);
        loop_stop();
}

static void on_signal(int signum, void *arg)
{
        (void) signum;
        (void) arg;
        (void) coro_start(stop, NULL, 0, "stop");
}

int main(int argc, char **argv)
{
        struct http_limits l = { .body_ms = 5000 };
        struct err e;

        log_setup("demo_proxy", LOG_LEVEL_INFO);
        service_port = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 0;
        if (!service_port || loop_init(&e) < 0)
                return 2;
        server = http_server_new(&l, serve, NULL);
        if (http_server_listen(server, "127.0.0.1", argc > 2 ? (unsigned) strtoul(argv[2], NULL, 10) : 0, &e) < 0 ||
            loop_on_signal(SIGTERM, on_signal, NULL) < 0) {
                log_error("%s", err_text(&e));
                return 1;
        }
        printf("%u\n", http_server_port(server));
        fflush(stdout);
        loop_run();
        http_server_free(server);
        loop_done();
        return 0;
}
