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
#define MCP_RESUMABLE_VERSION "2025-11-25" /* the first whose clients know events without data */
#define SCOPE_SEPARATOR '\x1f'
#define MCP_SESSION_ID_MAX 39
#define MCP_SWITCH_MS 2000    /* a call that takes longer is answered by a stream */
#define MCP_PROGRESS_MS 10000 /* between notifications/progress; the first comes with the stream */
#define MCP_CALL_COMMENT_MS 10000
#define MCP_GET_COMMENT_MS 15000

/* What is kept of a call's stream for a client that lost its connection. */
#define REPLAY_NOTES 8                         /* the last notifications */
#define REPLAY_NOTE_MAX ((size_t) 2 << 10)     /* a longer one is not kept */
#define REPLAY_RESPONSE_MAX ((size_t) 2 << 20) /* of a longer response only that it was too long */
#define REPLAY_KEEP_MS 300000                  /* after the call's end */
#define REPLAY_OWNER_MAX ((size_t) 16 << 20)   /* responses of one account; the oldest goes first */
#define REPLAY_ALL_MAX ((size_t) 64 << 20)
#define REPLAY_COUNT_MAX 20000
#define REPLAY_ID_MAX 48

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
        size_t n_replays, replay_bytes;
};

struct replay;

struct mcp_server {
        struct mcp_config cfg;
        char *tools; /* the result of tools/list */
        struct map *tool_by_name;
        struct map *owners; /* name → struct owner */
        struct map *calls;  /* caller and id → the newest struct mcp_request with that key */
        struct map *levels; /* owner and session → 1 + enum mcp_level, where it is not the default */
        struct list streams;
        struct map *replays;      /* owner, session and stream → struct replay */
        struct list replays_kept; /* those of ended calls, the oldest first */
        size_t n_replays_kept, replay_bytes;
        struct timer *replay_timer;
        struct map *params; /* tool name → struct param_header list, for tools that have any */
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
        char *client;                         /* as it calls itself; NULL when unknown */
        const char *version;                  /* of the older revisions; NULL when unknown */
        unsigned accept;
        bool modern; /* revision 2026-07-28 */
};

struct owner *owner_get(struct mcp_server *s, const char *name);
void owner_put(struct mcp_server *s, struct owner *o); /* forgets it when nothing of it is left */

/* "<owner> <caller> <last>", separated by a byte that is in none of them. */
char *scoped_key(const char *owner, const char *caller, const char *last);

void coroutine_fn reply_error(struct exchange *x, unsigned status, const char *id, int code, const char *fmt, ...)
        __attribute__((format(printf, 5, 6)));

/* "name/version" from a clientInfo, for people. */
char *client_name(const struct json *info);

void coroutine_fn reply_result(struct exchange *x, const char *id, const char *result);

/* modern.c: the revision without sessions. modern_is tells a message of it; modern_write_meta opens a result's own
 * members. */
bool modern_is(const struct exchange *x, const struct rpc *m);
void coroutine_fn serve_modern(struct exchange *x, struct rpc *m);
void modern_write_meta(struct jw *w, const struct mcp_config *cfg);
bool modern_quiet(const struct rpc *m);
int coroutine_fn modern_check_header(struct exchange *x, const struct rpc *m, const char *name, struct str want);
int coroutine_fn params_check(struct exchange *x, const struct rpc *m);

/* request.c: tools/call, from its parsed message to the end of its answer; takes over the message's content. */
void coroutine_fn serve_tool_call(struct exchange *x, struct rpc *m);
/* The client is back: its stream goes on behind event number `after`. */
void request_resume(struct mcp_request *r, struct call *c, uint64_t after);
void request_cancel(struct exchange *x, const struct json *params); /* notifications/cancelled */

/*
 * resume.c: the streams of calls in sessions of 2025-11-25 can be taken up again (basic/transports, "Resumability").
 * A replay belongs to its call until replay_end, then to the server, which forgets it after a while.
 */
bool replay_possible(const struct exchange *x);
/* call_key: the call's key in s->calls, of which owner and session are the beginning. */
struct replay *replay_new(struct mcp_server *s, struct owner *o, const char *call_key, struct mcp_request *call);
void replay_id(const struct replay *p, uint64_t number, char id[static REPLAY_ID_MAX]);
uint64_t replay_note(struct replay *p, struct str text); /* keeps a notification; its number */
void replay_post(const struct replay *p, struct sse *sse, uint64_t after);
/* The call is over; its response is the event after the last. A cancelled call has none (.p NULL) and leaves nothing.
 */
void replay_end(struct replay *p, const char *request_id, struct str response);
uint64_t replay_last(const struct replay *p);
bool coroutine_fn serve_resume(struct exchange *x); /* GET: false when it has no Last-Event-ID of ours */
void replays_free(struct mcp_server *s);

/* params.c: arguments that the newer revision repeats as Mcp-Param-… headers ("x-mcp-header" in a tool's schema). */
struct param_header;
void params_learn(struct mcp_server *s, const struct mcp_tool *tool);
void params_free(struct mcp_server *s);

/* events.c: GET, and subscriptions/listen */
void coroutine_fn serve_events(struct exchange *x);
void coroutine_fn serve_listen(struct exchange *x, const struct rpc *m);
void events_close(struct mcp_server *s, const char *owner, const char *caller); /* NULL, NULL: all */
