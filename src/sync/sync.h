/*
 * sync: the two tools that run on the caller's machine, sandbox_sync and sandbox_pull.
 *
 * They see the server through struct sync_env, which the adapter fills in: an HTTP client for the REST base, the
 * headers that say who calls, and a way to call an MCP tool. Both functions suspend, may run many at a time, and unwind
 * with -ECANCELED when their coroutine is cancelled (nothing is written to out then).
 */
#pragma once

#include "base/json.h"
#include "http/client.h"

struct sync_env {
        struct http_client *http;   /* to the REST base */
        struct url base;            /* its URL; path is a prefix without a trailing slash */
        const char *const *headers; /* name, value, …, NULL: sent with every REST call */
        const char *cwd;            /* what relative paths start from */
        int64_t stall_ms;           /* no byte moved for so long: an error */
        int64_t answer_ms;          /* how long the box may take to write what was sent */
        /* Calls an MCP tool with args (taken over); *ret is its result object. */
        int coroutine_fn (*call_tool)(void *arg, const char *name, struct json *args, struct json **ret, struct err *e);
        /* The server answered 401. True: headers say something else now, so once more. */
        bool coroutine_fn (*refused)(void *arg);
        /* A sentence for the caller who waits; called every 10 s at most. Never suspends. */
        void (*progress)(void *arg, const char *text);
        void *arg;
};

/* 0 with the result's JSON text in out, 1 with a plain text about what failed, -ECANCELED. */
int coroutine_fn sync_run(const struct sync_env *env, const struct json *args, struct buf *out);
int coroutine_fn pull_run(const struct sync_env *env, const struct json *args, struct buf *out);
