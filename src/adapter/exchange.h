/*
 * exchange: one HTTP POST to the MCP endpoint, from its bytes to its fate. Internal to upstream.c.
 *
 * A timer watches it: nothing received for too long, or the whole call too long, ends it. Time is counted in ticks that
 * were really lived through, so a machine that slept has not been silent.
 */
#pragma once

#include "adapter/upstream.h"
#include "loop/loop.h"

struct exchange {
        struct upstream *u;
        const struct up_spec *spec;
        struct answer *ret;
        struct hc *hc;
        struct timer *timer;
        struct sse_parser sse;
        bool sse_on, sent, cancelled, found, silent, late;
        uint64_t bytes, seen;
        int64_t quiet_ms, total_ms, last_tick, tick_ms;
        unsigned status;
        struct buf session; /* Mcp-Session-Id of the answer */
};

#define EXCHANGE_CONNECT_MS 10000

/* opening: without session and version headers (initialize itself). Leaves x for exchange_done. */
void coroutine_fn exchange_run(struct exchange *x, struct upstream *u, const struct up_spec *spec, struct str body,
                               bool opening, struct answer *ret);
void exchange_done(struct exchange *x);
/* Sends a message that has no answer; failures are of no interest. */
void coroutine_fn exchange_notify(struct upstream *u, struct str body);
void coroutine_fn exchange_delete(struct upstream *u, int64_t limit_ms);

/* For resume.c, which takes a broken event stream up again. */
#define EXCHANGE_HEADERS_MAX 40
void exchange_headers(const struct upstream *u, const struct up_spec *spec, bool opening, const char **h);
void coroutine_fn exchange_read_events(struct exchange *x); /* x->sse is set up */
void exchange_failed(struct exchange *x, int r);
bool exchange_is_events(const struct exchange *x);
/* A stream that ended or broke before its result and whose events had ids: goes on where it was left. */
void coroutine_fn exchange_resume(struct exchange *x);
