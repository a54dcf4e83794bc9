/*
 * tool: what each tools/<tool>.c sees: one call with checked arguments. A tool fills in its result by mcp_result_* or
 * mcp_fail and returns; it may suspend.
 */
#pragma once

#include "control/control.h"
#include "mcp/mcp.h"

#include "tools_table.h"

struct tool_call {
        struct control *c;
        const struct identity *who;
        struct mcp_request *r;
        const struct json *args; /* already checked against the tool's inputSchema */
        const char *name;
        struct mask
                *mask; /* of the box in `id`: what it says goes through it; NULL when it holds no secret. Borrowed */
};

void coroutine_fn tool_sandbox_start(struct tool_call *t);
void coroutine_fn tool_sandbox_list(struct tool_call *t);
void coroutine_fn tool_sandbox_status(struct tool_call *t);
void coroutine_fn tool_sandbox_exec(struct tool_call *t);
void coroutine_fn tool_sandbox_procs(struct tool_call *t);
void coroutine_fn tool_sandbox_get(struct tool_call *t);
void coroutine_fn tool_sandbox_secrets(struct tool_call *t);
void coroutine_fn tool_sandbox_shot(struct tool_call *t);
void coroutine_fn tool_sandbox_stop(struct tool_call *t);
void coroutine_fn tool_sandbox_wire(struct tool_call *t);

/* The dispatcher (tools.c): checks arguments, records presence, runs the tool. Register as mcp_config.call with a
 * struct tools as arg. */
struct tools;
int tools_new(struct control *c, struct tools **ret, struct err *e);
void tools_free(struct tools *t);
int coroutine_fn tools_call(struct mcp_request *r, const struct mcp_tool *tool, const struct json *args, void *arg);

/* Helpers shared by tools. */
/* The members of one box that sandbox_start, sandbox_list and sandbox_status have in common. */
void tool_write_box(struct jw *w, struct control *c, const struct box_row *row, const struct identity *who);
/* Finishes the writer and hands the object over, or fails the call when it did not fit. */
void tool_answer(struct tool_call *t, struct jw *w, struct buf *b);
/*
 * How long this caller is likely to wait for the answer, -1 without a limit (docs/mcp.md, "Callers that give up"). A
 * waiting tool answers before that with what there is and how to go on.
 */
int64_t tool_patience_ms(const struct tool_call *t);
/* fail with e's text. */
void tool_error(struct tool_call *t, const struct err *e);
/* True when r is an error: e's text is told, but for a cancelled call (-ECANCELED), which gets no answer. */
bool tool_failed(struct tool_call *t, int r, const struct err *e);
#define TOOL_TEXT_MAX ((size_t) 32 << 10) /* what a text result must stay under */
