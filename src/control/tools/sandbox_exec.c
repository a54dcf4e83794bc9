#include "control/exec_left.h"
#include "control/tool.h"

#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

static void answer(struct tool_call *t, const struct box *b, const struct exec_request *q, struct exec_result *res,
                   bool running)
{
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX * 2);
        struct jw w;

        jw_init(&w, &out);
        jw_obj(&w);
        if (q->background)
                jw_kstr(&w, "bgId", q->id);
        else {
                jw_kstr(&w, "execId", q->id);
                jw_kbool(&w, "running", running);
                if (running) {
                        jw_kstr(&w, "bgId", q->id);
                        jw_kstr(&w, "next",
                                "it still runs, and nothing of it is lost: call sandbox_procs with action wait and "
                                "this "
                                "bgId for the whole result, or stop");
                }
                exec_write(&w, t->c, t->who, b->id, res, OUTPUT_INLINE);
        }
        tool_answer(t, &w, &out);
}

void coroutine_fn tool_sandbox_exec(struct tool_call *t)
{
        _cleanup_free_ char *cwd = NULL;
        _cleanup_box_ struct box *b = NULL;
        _cleanup_exec_ struct exec_result res;
        struct exec_request q = {
                .cmd = json_get_str(t->args, "cmd", ""),
                .note = json_get_str(t->args, "note", ""),
                .stdin_text = json_get_str(t->args, "stdin", NULL),
                .env = json_get(t->args, "env"),
                .timeout_ms = json_get_int(t->args, "timeoutSec", 120) * 1000,
                .background = json_get_bool(t->args, "background", false),
        };
        const char *given = json_get_str(t->args, "execId", NULL);
        struct err e = { 0 };

        exec_result_init(&res, t->c->objects);
        if (json_strn(json_get(t->args, "cmd")).n != strlen(q.cmd)) {
                mcp_fail(t->r, "sandbox_exec: `cmd` must not hold a NUL character; nothing was run");
                return;
        }
        int r = work_path(json_get_str(t->args, "cwd", "."), "cwd", &cwd, &e);
        if (r == 0)
                r = box_acquire(t->c, t->who, json_get_str(t->args, "id", ""), &b, &e);
        if (r < 0) {
                tool_error(t, &e);
                return;
        }
        q.cwd = cwd;
        if (given)
                (void) snprintf(q.id, sizeof q.id, "%s", given);
        else
                random_id(q.id, 12);
        r = exec_run_within(t->c, t->who, b, &q, tool_patience_ms(t), &res, &e);
        if (r == -ECANCELED)
                return; /* a cancelled call gets no answer */
        if (r == -EEXIST)
                mcp_fail(t->r,
                         "sandbox_exec: `execId` \"%s\" is taken in this box: sandbox_procs {action: \"wait\", bgId: "
                         "\"%s\"} has that"
                         " command's result; nothing was run",
                         q.id, q.id);
        else if (r < 0 && r != -EINPROGRESS)
                mcp_fail(t->r,
                         "sandbox_exec: %s. The command may have run: sandbox_procs {action: \"wait\", bgId: \"%s\"} "
                         "tells",
                         err_text(&e), q.id);
        else
                answer(t, b, &q, &res, r == -EINPROGRESS);
}
