/*
 * proxy: a reverse proxy for one request on the strict codec. Heads are rewritten by a policy, bodies stream both ways
 * with the kernel's back-pressure and without a buffer of their own; an Upgrade becomes a pair of streams.
 *
 * A connection to a service is kept for the client connection that it was opened for, and for no other: whatever one
 * client's bytes do to a service's parser, no other client's request is read by it. What is malformed, on either side,
 * is refused and never passed on. Trailers are dropped.
 */
#pragma once

#include "http/call.h"
#include "http/proxy_head.h"

struct proxy_target {
        const struct proxy_policy *policy;
        const char *key; /* names the service among those a client connection may ask for; at most 95 bytes */
        int coroutine_fn (*dial)(void *arg, struct stream **ret, struct err *e);
        /* The service switched protocols: both streams are the callee's. Must not suspend. NULL: never asked for. */
        void (*upgraded)(void *arg, struct stream *client, struct stream *service);
        void *arg;
        int64_t *moved_ms; /* set to loop_now() when bytes move; may be NULL */
        int64_t answer_ms; /* longest wait for the head of an answer; 0: none */
};

/*
 * Runs in the handler's coroutine. 0: the client has its answer, or is gone, or the answer broke off. < 0: nothing was
 * answered, and why is in e: what dial said, -EPROTO (the service speaks no valid HTTP), -ECONNRESET (it closed the
 * connection without an answer), -ETIMEDOUT.
 */
int coroutine_fn proxy_serve(struct call *c, const struct proxy_target *t, struct err *e);
