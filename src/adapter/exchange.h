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

/* opening: without session and version headers (initialize itself). Leaves x for exchange_done. */
void coroutine_fn exchange_run(struct exchange *x, struct upstream *u, const struct up_spec *spec, struct str body,
                               bool opening, struct answer *ret);
void exchange_done(struct exchange *x);
/* Sends a message that has no answer; failures are of no interest. */
void coroutine_fn exchange_notify(struct upstream *u, struct str body);
