/*
 * demo_server: a tiny server on the http/ folder for wire scripts, benchmarks and experiments. Loopback only.
 * demo_server [--head-ms N] [--idle-ms N] [--body-ms N] [--per-address N] prints its port and serves until SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "http/server.h"
#include "loop/loop.h"
#include "loop/wait.h"

static void coroutine_fn hello(struct call *c)
{
        (void) call_reply(c, 200, "text/plain", "hello\n", 6);
}

/* Sends the body back as it comes. */
static void coroutine_fn echo(struct call *c)
{
        _cleanup_free_ char *p = xmalloc(16384);
        ssize_t n;

        if (call_start(c, 200, "application/octet-stream", call_body_length(c)) < 0)
                return;
        while ((n = call_read(c, p, 16384)) > 0)
                if (call_write(c, p, (size_t) n) < 0)
                        return;
        if (n < 0)
                call_abort(c);
}

static void coroutine_fn count(struct call *c)
{
        _cleanup_free_ char *p = xmalloc(16384);
        unsigned long long total = 0;
        char text[32];
        ssize_t n;

        while ((n = call_read(c, p, 16384)) > 0)
                total += (unsigned long long) n;
        if (n < 0) /* the server answers for it */
                return;
        int len = snprintf(text, sizeof text, "%llu\n", total);
        (void) call_reply(c, 200, "text/plain", text, (size_t) len);
}

static void coroutine_fn small(struct call *c)
{
        _cleanup_buf_ struct buf b = BUF_MAX(10);
        struct err e;

        if (call_read_all(c, &b, &e) < 0)
                (void) call_reply_error(c, 413, "too_large", "%s", err_text(&e));
        else
                (void) call_reply(c, 200, "text/plain", b.p, b.len);
}

static void coroutine_fn chunks(struct call *c)
{
        if (call_start(c, 200, "text/plain", -1) < 0)
                return;
        for (int i = 0; i < 3; i++)
                if (call_write(c, "abc", 3) < 0 || coro_sleep(1) < 0)
                        return;
}

static void coroutine_fn events(struct call *c)
{
        if (sse_start(c) == 0)
                (void) sse_detach(c, 250, NULL, NULL);
}

static void coroutine_fn serve(struct call *c, void *arg)
{
        struct str path = call_path(c);

        (void) arg;
        if (str_eq(path, STR("/hello")))
                hello(c);
        else if (str_eq(path, STR("/echo")))
                echo(c);
        else if (str_eq(path, STR("/count")))
                count(c);
        else if (str_eq(path, STR("/small")))
                small(c);
        else if (str_eq(path, STR("/chunks")))
                chunks(c);
        else if (str_eq(path, STR("/events")))
                events(c);
        else if (str_eq(path, STR("/unread")))
                (void) call_reply(c, 404, "text/plain", "not here\n", 9);
        else if (str_eq(path, STR("/nothing")))
                (void) call_reply(c, 204, NULL, NULL, 0);
        else if (str_eq(path, STR("/wait"))) {
                call_cancel_on_hangup(c, true);
                (void) coro_sleep(3600 * 1000);
        } else if (!str_eq(path, STR("/silent")))
                (void) call_reply_error(c, 404, "not_found", "there is nothing here");
}

static struct http_server *server;

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

static int64_t *limit_of(struct http_limits *l, const char *name)
{
        if (cstr_eq(name, "--head-ms"))
                return &l->head_ms;
        if (cstr_eq(name, "--idle-ms"))
                return &l->idle_ms;
        return cstr_eq(name, "--body-ms") ? &l->body_ms : NULL;
}

int main(int argc, char **argv)
{
        struct http_limits l = { 0 };
        unsigned port = 0;
        struct err e;

        log_setup("demo_server", LOG_LEVEL_INFO);
        for (int i = 1; i + 1 < argc; i += 2) {
                int64_t *ms = limit_of(&l, argv[i]);
                uint64_t v;

                if (parse_u64(str_of(argv[i + 1]), 1000000, &v) < 0)
                        return 2;
                if (ms)
                        *ms = (int64_t) v;
                else if (cstr_eq(argv[i], "--per-address"))
                        l.per_address = (size_t) v;
                else if (cstr_eq(argv[i], "--port"))
                        port = (unsigned) v;
                else
                        return 2;
        }
        if (loop_init(&e) < 0) {
                log_error("%s", err_text(&e));
                return 1;
        }
        server = http_server_new(&l, serve, NULL);
        if (http_server_listen(server, "127.0.0.1", port, &e) < 0 || loop_on_signal(SIGTERM, on_signal, NULL) < 0) {
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
