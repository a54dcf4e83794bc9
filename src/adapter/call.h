/*
 * call: one request of the host that takes time: tools/list or tools/call. It runs in a coroutine of its own and is
 * found by the text of its id, so that the host can cancel it; a cancelled call is never answered.
 */
#pragma once

#include "adapter/adapter.h"
#include "base/json.h"

struct call {
        struct list node;
        struct adapter *a;
        struct coro *coro;
        char *line;                               /* the message; what follows points into it */
        struct json *msg;                         /* the same, parsed */
        struct str id, params, name, args, token; /* texts; .p NULL when absent */
        bool cancelled;
        /* progress towards the host */
        double progress;
        bool server_counts; /* the server sends progress of its own */
        int64_t last_told;
        bool moved;
        /* the running upstream request */
        const char *tool; /* name as a C string */
        bool modern;      /* the host's request is one of 2026-07-28 */
        char exec_id[24]; /* what we added to a foreground sandbox_exec */
        int64_t started_wall, started;
        uint64_t generation; /* of the token a local tool began with */
        int64_t budget_ms;   /* how long an unreachable server is waited for */
};

/* Starts it. msg and the line are taken over. */
void call_begin(struct adapter *a, char *line, size_t len, struct json *msg, void (*fn)(struct call *c));
struct call *call_find(struct adapter *a, struct str id);
void call_cancel(struct call *c);

void coroutine_fn call_tools_list(struct call *c);
void coroutine_fn call_tool(struct call *c);

/* The answer, in the way of the host's era. listing: it is a list that may be kept. */
void call_answer(struct call *c, struct str result, bool listing);
/* A tool result with one text block; structured also puts the text (a JSON object) in structuredContent. */
void call_answer_text(struct call *c, struct str text, bool is_error, bool structured);

/* Progress, when the host asked for it: a step of our own with a text, or the server's as it is. */
void call_progress(struct call *c, const char *text);
void call_progress_server(struct call *c, struct str params);

/* Runs one upstream tools/call with the rules for lost answers and an unreachable server. args: text of an object. The
 * answer's fate is RESULT, ERROR, CANCELLED or BAD; for the last one reason holds the sentence for the model. */
void coroutine_fn call_upstream(struct call *c, const char *tool, struct str params, const struct json *args,
                                struct answer *ret);
/* As the sync tools need it: the result as a tree. */
int coroutine_fn call_upstream_json(struct call *c, const char *tool, struct json *args, struct json **ret,
                                    struct err *e);

/* Answers that somebody has to sign in first. */
void call_no_sign_in(struct call *c, const char *why);

/* local.c */
void coroutine_fn call_local(struct call *c, bool pull);

/* Pure: may a call of this tool be repeated when its answer was lost? */
bool call_repeatable(const char *tool, const struct json *args);
/* Pure: params for upstream: the host's progress token (if any) replaced by token, execId added when exec_id is not
 * empty. */
int call_params(struct buf *out, struct str params, const char *exec_id, int64_t token, bool with_token);
