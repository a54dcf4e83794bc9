#include "control/exec_left.h"
#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>

#define WAIT_DEFAULT_SEC 25
#define LIST_BUDGET (TOOL_TEXT_MAX - 4096)

struct procs {
        struct tool_call *t;
        struct box *b;
        const char *id; /* bgId */
};

static void fail(struct procs *p, int r, const struct err *e)
{
        if (r == -ECANCELED)
                return;
        if (r == -ENOENT)
                mcp_fail(p->t->r,
                         "sandbox_procs: no job \"%s\" in box %s: {action: \"list\", all: true} shows those that are "
                         "remembered",
                         p->id, p->b->id);
        else
                mcp_fail(p->t->r, "sandbox_procs: %s", err_text(e));
}

static struct json *head_for(const char *action, const char *id)
{
        struct json *h = json_obj();

        json_set_str(h, "op", "procs");
        json_set_str(h, "action", action);
        json_set_str(h, "id", id);
        return h;
}

/* A time as the box's daemon wrote it; anything else it might say there is left out. */
static void write_time(struct jw *w, const char *key, const struct json *job)
{
        struct str said = json_strn(json_get(job, key));
        char at[RFC3339_LEN];
        int64_t ms;

        if (said.p && rfc3339_parse(said, &ms) == 0)
                jw_kstr(w, key, rfc3339(ms, at));
}

/* The box's daemon keeps the beginning of a command: it may end in the middle of a secret. */
static void write_command(struct jw *w, struct procs *p, struct str cmd)
{
        _cleanup_buf_ struct buf masked = BUF_MAX(16 << 10);

        if (p->t->mask && mask_text(p->t->mask, cmd, MASK_CUT_AFTER, &masked) == 0)
                cmd = buf_str(&masked);
        jw_kstrn(w, "command", utf8_prefix(cmd, 300));
}

static void write_job(struct jw *w, struct procs *p, const struct json *j)
{
        const char *id = json_get_str(j, "id", "");
        _cleanup_free_ char *agent = steps_agent_of(p->t->c->db, p->b->id, id);
        bool running = json_get_bool(j, "running", false);

        jw_obj(w);
        jw_kstr(w, "bgId", id);
        jw_kbool(w, "background", json_get_bool(j, "background", false));
        jw_kbool(w, "running", running);
        jw_kbool(w, "mine", agent && p->t->who->agent[0] && cstr_eq(agent, p->t->who->agent));
        write_command(w, p, str_of(json_get_str(j, "cmd", "")));
        jw_kstr(w, "note", json_get_str(j, "note", NULL));
        jw_kstr(w, "cwd", json_get_str(j, "cwd", NULL));
        write_time(w, "startedAt", j);
        if (running) {
                jw_kint(w, "pid", json_get_int(j, "pid", 0));
                jw_kint(w, "processes", json_get_int(j, "processes", 0));
                jw_kint(w, "cpuMs", json_get_int(j, "cpuMs", 0));
                jw_kint(w, "memoryBytes", json_get_int(j, "rssBytes", 0));
        } else {
                write_time(w, "endedAt", j);
                if (json_type(json_get(j, "exitCode")) == JSON_INT)
                        jw_kint(w, "exitCode", json_get_int(j, "exitCode", 0));
                jw_kstr(w, "signal", json_get_str(j, "signal", NULL));
                jw_kbool(w, "timedOut", json_get_bool(j, "timedOut", false));
                jw_kstr(w, "endReason", json_get_str(j, "endReason", NULL));
        }
        jw_end(w);
}

static void coroutine_fn do_list(struct procs *p)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX * 2);
        _cleanup_json_ struct json *answer = NULL;
        struct json *head = head_for("list", NULL);
        struct err e = { 0 };
        struct jw w;
        size_t left_out = 0;

        json_set_bool(head, "all", json_get_bool(p->t->args, "all", false));
        int r = guest_ask(p->t->c, p->b->id, head, &answer, &e);
        if (r < 0) {
                fail(p, r, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "procs");
        const struct json *jobs = json_get(answer, "jobs");
        for (size_t i = 0; i < json_len(jobs); i++) {
                if (b.len > LIST_BUDGET)
                        left_out++;
                else
                        write_job(&w, p, json_at(jobs, i));
        }
        jw_end(&w);
        if (left_out)
                jw_kint(&w, "leftOut", (int64_t) left_out);
        tool_answer(p->t, &w, &b);
}

static void write_waited(struct procs *p, const struct json *job, struct exec_result *res)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX * 2);
        bool running = json_get_bool(job, "running", false);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "bgId", p->id);
        jw_kbool(&w, "running", running);
        if (json_has(p->t->args, "until"))
                jw_kbool(&w, "ready", json_get_bool(job, "ready", false));
        if (running)
                jw_kstr(&w, "next", "it still runs: call sandbox_procs with action wait again, or stop");
        else
                jw_kstr(&w, "endReason", json_get_str(job, "endReason", NULL));
        if (running)
                res->has_exit = false;
        exec_write(&w, p->t->c, p->t->who, p->b->id, res, OUTPUT_INLINE);
        tool_answer(p->t, &w, &b);
}

static bool until_head(struct procs *p, struct json *head)
{
        int64_t port = json_get_int(p->t->args, "readyPort", 0);
        const char *log = json_get_str(p->t->args, "readyLog", NULL);

        if (!json_has(p->t->args, "until"))
                return true;
        if ((port > 0) == (log != NULL)) {
                mcp_fail(p->t->r, "sandbox_procs: until \"ready\" needs exactly one of `readyPort` (a port the job "
                                  "listens on) and `readyLog`"
                                  " (a text in its output)");
                return false;
        }
        struct json *until = json_obj();
        if (port > 0)
                json_set_int(until, "port", port);
        json_set_str(until, "log", log);
        json_set(head, "until", until);
        return true;
}

/* The caller's own patience bounds a wait, so that no result is lost to a client that gave up. */
static int64_t wait_limit_ms(const struct tool_call *t)
{
        int64_t asked = json_get_int(t->args, "timeoutSec", WAIT_DEFAULT_SEC) * 1000;
        int64_t patience = tool_patience_ms(t);

        return patience >= 0 && patience < asked ? patience : asked;
}

/* All of it, once: not for each look at a job that runs on, and not where only some lines were asked for. */
static void coroutine_fn get_whole(struct procs *p, struct exec_result *res, bool running)
{
        const char *why = json_has(p->t->args, "tail") ? "only its last lines were asked for"
                          : running                    ? "the job still runs"
                                                       : NULL;

        res->out.why_omitted = res->err.why_omitted = why;
        if (why)
                return;
        exec_fetch_whole(p->t->c, p->b->id, p->id, "stdout", &res->out);
        exec_fetch_whole(p->t->c, p->b->id, p->id, "stderr", &res->err);
}

/* A command whose call was answered while it ran: the server has its whole output, the box only the ends. False when it
 * is none of those. */
static bool coroutine_fn wait_left(struct procs *p, int64_t limit)
{
        _cleanup_exec_ struct exec_result so_far;
        _cleanup_json_ struct json *job = json_obj();
        struct exec_result *res = &so_far;

        exec_result_init(&so_far, p->t->c->objects);
        if (json_has(p->t->args, "until") || json_has(p->t->args, "tail"))
                return false;
        int r = exec_left_wait(p->t->c, p->b->id, p->id, limit, &so_far, &res);
        if (r == -ENOENT)
                return false;
        if (r == -ECANCELED)
                return true;
        json_set_bool(job, "running", r == -EINPROGRESS);
        json_set_str(job, "endReason", res->timed_out ? "timeout" : res->signal[0] ? "signal" : "exited");
        write_waited(p, job, res);
        return true;
}

static void coroutine_fn do_wait(struct procs *p)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        _cleanup_exec_ struct exec_result res;
        _cleanup_json_ struct json *job = NULL;
        struct json *head = head_for("wait", p->id);
        int64_t limit = wait_limit_ms(p->t);
        struct err e = { 0 };

        exec_result_init(&res, p->t->c->objects);
        exec_result_mask(&res, p->t->mask, true);
        if (!until_head(p, head) || wait_left(p, limit)) {
                json_unref(head);
                return;
        }
        json_set_int(head, "timeoutMs", limit);
        if (json_has(p->t->args, "tail"))
                json_set_int(head, "tail", json_get_int(p->t->args, "tail", 0));
        int r = guest_open(p->t->c, p->b->id, head, &g, &e);
        if (r == 0) {
                g.idle_ms = limit + 30000;
                r = exec_collect(p->t->c, &g, json_has(p->t->args, "tail") ? MASK_CUT_BEFORE : 0, &res, &job, &e);
        }
        if (r < 0) {
                fail(p, r, &e);
                return;
        }
        get_whole(p, &res, json_get_bool(job, "running", false));
        if (!json_get_bool(job, "running", false))
                exec_fill_ending(p->t->c, p->b, json_get_str(job, "cmd", NULL), -1, job, &res);
        write_waited(p, job, &res);
}

static void coroutine_fn do_stop(struct procs *p)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        _cleanup_json_ struct json *answer = NULL;
        struct err e = { 0 };
        struct jw w;
        int r = guest_ask(p->t->c, p->b->id, head_for("stop", p->id), &answer, &e);

        if (r < 0) {
                fail(p, r, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "bgId", p->id);
        jw_kbool(&w, "stopped", true);
        jw_kbool(&w, "running", false);
        if (json_type(json_get(answer, "exitCode")) == JSON_INT)
                jw_kint(&w, "exitCode", json_get_int(answer, "exitCode", 0));
        jw_kstr(&w, "signal", json_get_str(answer, "signal", NULL));
        jw_kstr(&w, "endReason", json_get_str(answer, "endReason", NULL));
        tool_answer(p->t, &w, &b);
}

static void coroutine_fn do_input(struct procs *p)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct str text = json_strn(json_get(p->t->args, "stdin"));
        bool eof = json_get_bool(p->t->args, "eof", false);
        struct err e = { 0 };

        if (text.n == 0 && !eof) {
                mcp_fail(p->t->r, "sandbox_procs: action \"input\" needs `stdin` (the text to write) or `eof: true`");
                return;
        }
        struct json *head = head_for("input", p->id);
        json_set_bool(head, "close", eof);
        int r = guest_open(p->t->c, p->b->id, head, &g, &e);
        if (r == 0) {
                g.idle_ms = 30000;
                /* A box that refuses does not wait for the text: its answer says why, not the broken pipe. */
                (void) guest_send(&g, GUEST_STDIN, true, text.p, text.n);
                r = guest_finish(&g, &e);
        }
        if (r < 0) {
                fail(p, r, &e);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        struct jw w;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "bgId", p->id);
        jw_kbool(&w, "running", true);
        tool_answer(p->t, &w, &b);
}

void coroutine_fn tool_sandbox_procs(struct tool_call *t)
{
        const char *action = json_get_str(t->args, "action", "");
        _cleanup_box_ struct box *b = NULL;
        struct procs p = { .t = t, .id = json_get_str(t->args, "bgId", NULL) };
        struct err e = { 0 };

        if (!cstr_eq(action, "list") && !p.id) {
                mcp_fail(t->r, "sandbox_procs: `bgId` is required: the job that action \"%s\" is for", action);
                return;
        }
        if (box_acquire(t->c, t->who, json_get_str(t->args, "id", ""), &b, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        p.b = b;
        if (cstr_eq(action, "list"))
                do_list(&p);
        else if (cstr_eq(action, "wait"))
                do_wait(&p);
        else if (cstr_eq(action, "stop"))
                do_stop(&p);
        else
                do_input(&p);
}
