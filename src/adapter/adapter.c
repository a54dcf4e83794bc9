#include "adapter/adapter.h"
#include "adapter/call.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_CHUNK 65536
#define EOF_LIMIT_MS 900 /* the promise is one second */
#define EOF_DRAIN_MS 300 /* for what was asked just before stdin ended: printf '…' | parallelsandbox-mcp */
#define SIGNAL_LIMIT_MS 2000
#define FLUSH_MS 200

static void at_limit(void *arg)
{
        struct adapter *a = arg;

        _exit(a->exit_code);
}

struct ending {
        struct adapter *a;
        int64_t limit_ms, drain_ms;
};

static void cancel_all(struct adapter *a)
{
        list_for_each_safe (it, &a->calls)
                call_cancel(list_entry(it, struct call, node));
}

struct goodbye {
        struct adapter *a;
        int64_t limit_ms;
        bool closed;
        struct waitq q;
};

static void coroutine_fn close_task(void *arg)
{
        struct goodbye *g = arg;

        upstream_close(&g->a->up, g->limit_ms);
        g->closed = true;
        waitq_wake_all(&g->q);
}

/* Presence and session end side by side: a server that does not answer costs the time once. */
static void coroutine_fn say_goodbye(struct adapter *a, int64_t limit_ms)
{
        struct goodbye g = { .a = a, .limit_ms = limit_ms };

        waitq_init(&g.q);
        g.closed = !coro_start(close_task, &g, CORO_STACK_LARGE, "close");
        presence_leave(a, limit_ms);
        while (!g.closed)
                (void) waitq_wait(&g.q, -1);
}

/* Open calls first get a moment to end, then they are cancelled; then the server hears goodbye. */
static void coroutine_fn end_task(void *arg)
{
        struct ending *e = arg;
        struct adapter *a = e->a;
        int64_t until = clock_ms() + e->drain_ms;

        while (!list_empty(&a->calls) && clock_ms() < until)
                (void) waitq_wait(&a->idle, until - clock_ms());
        cancel_all(a);
        listeners_end(a);
        say_goodbye(a, e->limit_ms - e->drain_ms);
        out_flush(&a->out, FLUSH_MS);
        /* Not exit(): a file being hashed on another thread must not hold us up, and there is nothing left to write. */
        _exit(a->exit_code);
}

void adapter_end(struct adapter *a, int code, int64_t limit_ms)
{
        struct ending *e;

        if (a->ending)
                _exit(code);
        a->ending = true;
        a->exit_code = code;
        (void) timer_start(limit_ms, 0, at_limit, a);
        e = xcalloc(1, sizeof *e);
        *e = (struct ending){ .a = a, .limit_ms = limit_ms, .drain_ms = code == 0 ? EOF_DRAIN_MS : 0 };
        if (!coro_start(end_task, e, CORO_STACK_LARGE, "end"))
                _exit(code);
}

static void on_signal(int signum, void *arg)
{
        adapter_end(arg, 128 + signum, SIGNAL_LIMIT_MS);
}

static void on_dead(void *arg)
{
        struct adapter *a = arg;

        if (!a->ending) /* the host is gone */
                adapter_end(a, 0, EOF_LIMIT_MS);
}

static void coroutine_fn read_task(void *arg)
{
        struct adapter *a = arg;
        _cleanup_free_ char *chunk = xmalloc(READ_CHUNK);
        struct stream *in = NULL;
        struct err e = { 0 };

        if (stream_from_fd(STDIN_FILENO, &in, &e) < 0) {
                log_error("stdin cannot be read: %s", err_text(&e));
                adapter_end(a, 1, EOF_LIMIT_MS);
                return;
        }
        for (;;) {
                ssize_t n = stream_read(in, chunk, READ_CHUNK, -1);

                if (n <= 0)
                        break;
                (void) lines_feed(&a->in, chunk, (size_t) n, adapter_line, a);
        }
        (void) lines_end(&a->in, adapter_line, a);
        if (!a->ending)
                adapter_end(a, 0, EOF_LIMIT_MS);
}

static void on_creds(void *arg)
{
        tools_forget(arg);
}

/* Whatever a library may print goes to stderr: descriptor 1 is given away, and only out has the real one. */
static int take_stdout(void)
{
        int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

        if (fd >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
                (void) close(STDOUT_FILENO);
        return fd >= 0 ? fd : STDOUT_FILENO;
}

static int setup(struct adapter *a, struct err *e)
{
        char *agent;
        int r = config_read(&a->config, e);

        if (r < 0)
                return r;
        log_setup("parallelsandbox-mcp", a->config.log_level);
        agent = random_token(9);
        (void) snprintf(a->agent, sizeof a->agent, "%s", agent);
        free(agent);
        if (!getcwd(a->cwd, sizeof a->cwd))
                a->cwd[0] = '\0';
        list_init(&a->calls);
        waitq_init(&a->idle);
        lines_init(&a->in, LINE_BYTES_MAX);
        tools_init(&a->tools);
        starts_init(&a->starts);
        reminders_init(&a->reminders);
        listeners_init(&a->listeners);
        signin_init(&a->signin);
        a->mcp_http = http_client_new(&a->config.mcp);
        a->api_http = a->config.same_origin ? a->mcp_http : http_client_new(&a->config.api);
        r = creds_init(&a->creds, &a->config, e);
        a->creds.changed = on_creds;
        a->creds.arg = a;
        upstream_init(&a->up, &a->config, &a->creds, a->mcp_http, a->agent);
        return r < 0 ? r : out_init(&a->out, take_stdout(), on_dead, a, e);
}

int adapter_main(void)
{
        static struct adapter a;
        struct err e = { 0 };

        (void) signal(SIGPIPE, SIG_IGN);
        log_setup("parallelsandbox-mcp", LOG_LEVEL_INFO);
        if (loop_init(&e) < 0 || setup(&a, &e) < 0) {
                log_error("%s", err_text(&e));
                return 2;
        }
        (void) loop_on_signal(SIGTERM, on_signal, &a);
        (void) loop_on_signal(SIGINT, on_signal, &a);
        (void) loop_on_signal(SIGHUP, on_signal, &a);
        if (!coro_start(read_task, &a, CORO_STACK_LARGE, "stdin"))
                return 2;
        loop_run();
        return a.exit_code;
}
