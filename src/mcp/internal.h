/*
 * internal: what the files of the MCP server share. server.c has the endpoint and the methods, request.c the running
 * tool calls, events.c the GET streams.
 *
 * Ownership: the server owns everything that is listed in it. A struct mcp_request lives until both its handler has
 * returned and its stream is closed; after the handler's return it does not know the server any more. Only functions
 * marked coroutine_fn suspend.
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "loop/loop.h"
#include "mcp/jsonrpc.h"
#include "mcp/mcp.h"

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_SESSION_ID_MAX 39
#define MCP_SWITCH_MS 2000    /* a call that takes longer is answered by a stream */
#define MCP_PROGRESS_MS 10000 /* between notifications/progress; the first comes with the stream */
#define MCP_CALL_COMMENT_MS 10000
#define MCP_GET_COMMENT_MS 15000

enum mcp_level {
        LEVEL_DEBUG,
        LEVEL_INFO,
        LEVEL_NOTICE,
        LEVEL_WARNING,
        LEVEL_ERROR,
        LEVEL_CRITICAL,
        LEVEL_ALERT,
        LEVEL_EMERGENCY
};

/* One account while it has calls or streams. */
struct owner {
        char *name;
        size_t calls;
        size_t n_streams;
        struct list streams;
};

struct mcp_server {
        struct mcp_config cfg;
        char *tools; /* the result of tools/list */
        struct map *tool_by_name;
        struct map *owners; /* name → struct owner */
        struct map *calls;  /* caller and id → the newest struct mcp_request with that key */
        struct map *levels; /* owner and session → 1 + enum mcp_level, where it is not the default */
        struct list streams;
        struct mcp_stats stats;
        bool draining;
};

enum { ACCEPT_JSON = 1, ACCEPT_SSE = 2 };

/* One HTTP request; on the stack of its coroutine. */
struct exchange {
        struct mcp_server *s;
        struct call *c;
        const char *owner;
        void *user;
        char session[MCP_SESSION_ID_MAX + 1]; /* "" without one */
        char *caller;                         /* the session, or "@" and the caller header, or "" */
        unsigned accept;
        bool modern; /* revision 2026-07-28 */
};

struct owner *owner_get(struct mcp_server *s, const char *name);
void owner_put(struct mcp_server *s, struct owner *o); /* forgets it when nothing of it is left */

/* "<owner> <caller> <last>", separated by a byte that is in none of them. */
char *scoped_key(const char *owner, const char *caller, const char *last);

void coroutine_fn reply_error(struct exchange *x, unsigned status, const char *id, int code, const char *fmt, ...)
        __attribute__((format(printf, 5, 6)));

void coroutine_fn reply_result(struct exchange *x, const char *id, const char *result);

/* modern.c: the revision without sessions. modern_is tells a message of it; modern_write_meta opens a result's own
 * members. */
bool modern_is(const struct exchange *x, const struct rpc *m);
void coroutine_fn serve_modern(struct exchange *x, struct rpc *m);
void modern_write_meta(struct jw *w, const struct mcp_config *cfg);
bool modern_quiet(const struct rpc *m);

/* request.c: tools/call, from its parsed message to the end of its answer; takes over the message's content. */
void coroutine_fn serve_tool_call(struct exchange *x, struct rpc *m);
void request_cancel(struct exchange *x, const struct json *params); /* notifications/cancelled */

/* events.c: GET, and subscriptions/listen */
void coroutine_fn serve_events(struct exchange *x);
void coroutine_fn serve_listen(struct exchange *x, const struct rpc *m);
void events_close(struct mcp_server *s, const char *owner, const char *caller); /* NULL, NULL: all */
