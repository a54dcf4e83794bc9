#include "adapter/presence.h"
#include "adapter/adapter.h"
#include "base/mem.h"

#include <stdio.h>

#define BEAT_MS 60000
#define ANSWER_MS 15000

static void coroutine_fn post(struct adapter *a, const char *what, struct str body, int64_t limit_ms)
{
        _cleanup_(hc_closep) struct hc *x = NULL;
        const char *headers[24];
        char path[2400], drain[512];
        size_t k = 0;

        upstream_headers(&a->up, headers, ARRAY_LEN(headers) - 2);
        while (headers[k])
                k++;
        headers[k++] = "Content-Type";
        headers[k++] = "application/json";
        headers[k] = NULL;
        (void) snprintf(path, sizeof path, "%s/v1/agents/%s/%s", a->config.api.path, a->agent, what);
        const struct http_request req = { .method = "POST",
                                          .path = path,
                                          .headers = headers,
                                          .body = body.p,
                                          .body_len = body.n,
                                          .connect_ms = limit_ms,
                                          .answer_ms = limit_ms };
        /* Nothing depends on the answer: the next beat comes in a minute, and a missing one counts after three. */
        if (hc_open(a->api_http, &req, &x, NULL, NULL) < 0 || hc_answer(x, NULL) < 0)
                return;
        while (hc_read(x, drain, sizeof drain, limit_ms) > 0)
                ;
}

static void coroutine_fn beat(void *arg)
{
        struct adapter *a = arg;
        _cleanup_buf_ struct buf body = BUF_MAX(4096);
        struct jw w;

        jw_init(&w, &body);
        jw_obj(&w);
        jw_kstr(&w, "client", a->up.client);
        if (jw_end_all(&w) == 0)
                post(a, "heartbeat", buf_str(&body), ANSWER_MS);
        a->presence.busy = false;
}

static void on_timer(void *arg)
{
        struct adapter *a = arg;

        if (a->presence.busy || a->ending)
                return;
        a->presence.busy = coro_start(beat, a, 0, "heartbeat") != NULL;
}

void presence_touch(struct adapter *a)
{
        if (a->presence.started || !creds_ready(&a->creds))
                return;
        a->presence.started = true;
        a->presence.timer = timer_start(BEAT_MS, BEAT_MS, on_timer, a);
        on_timer(a);
}

void coroutine_fn presence_leave(struct adapter *a, int64_t limit_ms)
{
        if (!a->presence.started)
                return;
        timer_stop(&a->presence.timer);
        post(a, "leave", STR("{}"), limit_ms);
}
