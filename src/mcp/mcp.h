/*
 * mcp: the server side of the Model Context Protocol over Streamable HTTP; no product knowledge.
 *
 * Speaks both eras on one endpoint: 2025-11-25, 2025-06-18 and 2025-03-26 (reference/mcp.md §1.2–1.4, 1.7, 1.8) with
 * optional sessions, and 2026-07-28 (§1.5), which has none. The product registers a table of tools and one function
 * that runs them. A tool call runs in the coroutine of its HTTP request. In the older revisions it goes on when the
 * client vanishes (a disconnect is not a cancellation) and notifications/cancelled cancels it; in the newer one closing
 * the stream does.
 *
 * The answer is one JSON body while the call is quick, and turns into an SSE stream when the handler reports progress
 * or after 2 s; then a comment goes out every 10 s, and "<tool> still running" (notifications/message) every running_ms
 * of the tool, with notifications/progress when the caller sent a token.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mask.h"
#include "http/call.h"

struct mcp_tool {
        const char *name;
        const char *listing; /* the tools/list entry, one JSON object */
        int64_t running_ms;  /* interval of "still running": 20000, takeover 15000 */
        int id;              /* the product's own number */
        const char *needs;   /* a capability that a client of 2026-07-28 must declare for it, or NULL */
};

/* What a session was opened with. */
struct mcp_session {
        char version[16];
        char client[160]; /* "name/version" as session_new was told */
};

struct mcp_server;
struct mcp_request; /* one tools/call in progress; lives while the handler runs */

struct mcp_config {
        const char *name, *title, *version, *instructions; /* instructions < 2 KB */
        const struct mcp_tool *tools;
        size_t tool_count;

        /* Runs a tool: fills the result by mcp_result_* or mcp_fail. The return value is ignored unless nothing was
         * filled in (then an internal error is answered). */
        int coroutine_fn (*call)(struct mcp_request *r, const struct mcp_tool *t, const struct json *args, void *arg);

        /* Sessions: optional for clients, durable by the product. owner is what mcp_serve was given. All return 0 or
         * -errno; check gives -ENOENT for an unknown, ended or foreign id. */
        int (*session_new)(const char *owner, const char *version, const char *client, char id[static 40], void *arg);
        int (*session_check)(const char *owner, const char *id, struct mcp_session *ret, void *arg);
        int (*session_end)(const char *owner, const char *id, void *arg);
        void *arg;

        /* A request header that tells the clients of one owner apart when they have no session (NULL: none does).
         * Request ids are per session or per value of this header; without either, a cancellation that fits several
         * calls is ignored. */
        const char *caller_header;
        size_t calls_per_owner;   /* running at once, then 429; 0 = 4096 */
        size_t streams_per_owner; /* open GET streams, then 429; 0 = 64 */
        size_t streams;           /* in all, then 503; 0 = 4096 */
};

struct mcp_server *mcp_server_new(const struct mcp_config *cfg);
/* After http_server_stop: no call may be running. */
void mcp_server_free(struct mcp_server *s);
/* Shutting down: a tools/call gets 503 {"error", "reason": "maintenance", "retryAfterSec"} and runs nothing, GET
 * streams end, running calls go on. */
void mcp_server_drain(struct mcp_server *s);

/* Serves one HTTP request to the endpoint, after the product has authenticated it and checked Origin and Host. owner
 * names the account (sessions and request ids of one owner are invisible to another); user is handed to the handler by
 * mcp_user. */
void coroutine_fn mcp_serve(struct mcp_server *s, struct call *c, const char *owner, void *user);

/* tools/list_changed on every open GET stream, each client once. */
void mcp_tools_changed(struct mcp_server *s);

/* ---- for handlers ---- */
void *mcp_user(const struct mcp_request *r);
struct call *mcp_call(const struct mcp_request *r);  /* for headers only; never write to it */
const char *mcp_client(const struct mcp_request *r); /* "name/version" as the client calls itself, or "" */
bool mcp_has_progress(const struct mcp_request *r);  /* the caller sent a progress token */
/* The client cancelled: undo. A wait that returns -ECANCELED without this is the server stopping. */
bool mcp_cancelled(const struct mcp_request *r);
/* From here on the values that m knows go from everything the handler says: results, failures, progress, messages.
 * Takes a reference of its own; NULL: nothing goes. */
void mcp_mask(struct mcp_request *r, struct mask *m);
/* Reports progress (sent when a token came; also switches the answer to a stream). value must grow; total <= 0 =
 * unknown. */
void mcp_progress(struct mcp_request *r, double value, double total, const char *message);
/* notifications/message at level info. */
void mcp_message(struct mcp_request *r, const char *text);
/* Ends the connection and lets the client ask again after retry_ms: what comes then waits for it. False, and nothing
 * done, for a client that cannot (only those in a session of 2025-11-25 can). */
bool mcp_poll(struct mcp_request *r, int64_t retry_ms);

/* The result object: JSON text of one object on one line; becomes content[0] (text) and structuredContent. Copied. */
void mcp_result_json(struct mcp_request *r, struct str object);
void mcp_result_text(struct mcp_request *r, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));                                           /* a further text block */
void mcp_result_image(struct mcp_request *r, const char *mime, const void *p, size_t n); /* a further image block */
void mcp_result_block(struct mcp_request *r, struct str block); /* a further block of any kind: one JSON object */
/* isError with one text. Replaces anything filled in before. */
void mcp_fail(struct mcp_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct mcp_stats {
        uint64_t calls, errors, running, streams, sessions_opened;
};
void mcp_server_stats(const struct mcp_server *s, struct mcp_stats *ret);

/* ---- argument checking from a tool's inputSchema (JSON Schema 2020-12: type, properties, required, enum, minLength,
 * maxLength, pattern (simple), minimum, maximum, items, minItems, maxItems, additionalProperties: false) ---- */
struct schema;
struct schema *schema_compile(const struct json *schema, struct err *e);
void schema_free(struct schema *s);
/* 0, or -EINVAL with a sentence that names the argument, the value seen and the form wanted; a missing required one
 * reads
 * "`<name>` is required: <its description>". */
int schema_check(const struct schema *s, const struct json *value, struct err *e);
