/*
 * resume: an event stream that ended or broke before its result. When its events had ids, the server keeps what
 * follows, and GET with Last-Event-ID brings it (2025-11-25, basic/transports, "Resumability and Redelivery"): after
 * the pause the server asked for, and as often as the stream breaks. A server that does not know the stream any more
 * says so at once; one that cannot be reached gets a few seconds, since what it kept does not outlive it.
 */
#include "adapter/exchange.h"
#include "adapter/era.h"
#include "base/mem.h"
#include "loop/wait.h"

#include <errno.h>

#define GRACE_MS 5000
#define PAUSE_MS 250
#define PAUSE_MAX_MS 60000
#define MESSAGE_MAX ((size_t) 256 << 20)

/* A new parser that knows where the old one was. */
static void restart_parser(struct exchange *x)
{
        struct sse_parser old = x->sse;

        sse_parser_init(&x->sse, MESSAGE_MAX);
        memcpy(x->sse.id, old.id, sizeof old.id);
        x->sse.retry = old.retry;
        sse_parser_done(&old);
}

/* The pause, in pieces that notice the end of the call. False: it is over. */
static bool coroutine_fn pause_for(struct exchange *x, int64_t ms)
{
        int64_t until = loop_now() + ms;

        do {
                int64_t left = until - loop_now();

                if (coro_sleep(left < 1 ? 1 : left > 500 ? 500 : left) < 0 || x->silent || x->late)
                        return false;
        } while (loop_now() < until);
        return true;
}

/* 1: the stream goes on (and perhaps ended again), 0: not reachable, -1: the server has nothing for us. */
static int coroutine_fn ask_again(struct exchange *x)
{
        const char *headers[EXCHANGE_HEADERS_MAX + 4];
        size_t k = 0, to = 0;
        int r;

        exchange_headers(x->u, NULL, false, headers);
        for (; headers[k]; k += 2) { /* a GET has no content, and takes a stream only */
                if (strcmp(headers[k], "Content-Type") == 0 || strcmp(headers[k], "Accept") == 0)
                        continue;
                headers[to] = headers[k];
                headers[to + 1] = headers[k + 1];
                to += 2;
        }
        headers[to++] = "Accept";
        headers[to++] = "text/event-stream";
        headers[to++] = "Last-Event-ID";
        headers[to++] = x->sse.id;
        headers[to] = NULL;
        const struct http_request req = {
                .method = "GET", .path = x->u->config->mcp.path, .headers = headers, .connect_ms = EXCHANGE_CONNECT_MS
        };
        r = hc_open(x->u->http, &req, &x->hc, NULL, NULL);
        if (r == 0)
                r = hc_answer(x->hc, NULL);
        if (r == 0 && hc_status(x->hc) == 503)
                r = -EAGAIN;
        else if (r == 0 && (hc_status(x->hc) != 200 || !exchange_is_events(x)))
                r = 1;
        if (r == 0) {
                restart_parser(x);
                exchange_read_events(x);
        }
        hc_closep(&x->hc);
        return r < 0 ? 0 : r == 1 ? -1 : 1;
}

void coroutine_fn exchange_resume(struct exchange *x)
{
        struct err first = x->ret->reason;
        int64_t unreachable = -1;

        while (x->ret->fate == FATE_LOST && !x->silent && !x->late) {
                int64_t pause = x->sse.retry < 0 ? PAUSE_MS : x->sse.retry;
                int r;

                if (!pause_for(x, unreachable >= 0 ? PAUSE_MS : pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS))
                        break;
                x->ret->reason = (struct err){ 0 };
                r = ask_again(x);
                if (r > 0)
                        unreachable = -1;
                else if (r < 0)
                        break;
                else if (unreachable < 0)
                        unreachable = loop_now();
                else if (loop_now() - unreachable >= GRACE_MS)
                        break;
        }
        if (x->ret->fate != FATE_LOST)
                return;
        if (x->silent || x->late || coro_cancelled())
                exchange_failed(x, -ECANCELED);
        else
                x->ret->reason = first;
}
