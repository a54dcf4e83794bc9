#include "adapter/call.h"
#include "adapter/era.h"
#include "adapter/rawjson.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RESULT_MAX ((size_t) 512 << 20)
#define PROGRESS_STEP 0.001 /* ours: small, so that the server's own numbers stay ahead of it */

struct starter {
        struct call *c;
        void (*fn)(struct call *c);
};

static void call_free(struct call *c)
{
        list_remove(&c->node);
        if (list_empty(&c->a->calls))
                waitq_wake_all(&c->a->idle);
        json_unref(c->msg);
        free(c->line);
        free(c);
}

static void coroutine_fn run(void *arg)
{
        struct starter *s = arg;
        struct call *c = s->c;

        s->fn(c);
        free(s);
        call_free(c);
}

void call_begin(struct adapter *a, char *line, size_t len, struct json *msg, void (*fn)(struct call *c))
{
        struct call *c = xcalloc(1, sizeof *c);
        struct starter *s = xcalloc(1, sizeof *s);
        struct str meta, text = str_n(line, len);

        c->a = a;
        c->line = line;
        c->msg = msg;
        c->started = c->last_told = loop_now();
        c->started_wall = wall_ms();
        c->budget_ms = a->config.unavailable_budget_ms;
        (void) raw_get(text, "id", &c->id);
        if (raw_get(text, "params", &c->params)) {
                (void) raw_get(c->params, "name", &c->name);
                (void) raw_get(c->params, "arguments", &c->args);
                if (raw_get(c->params, "_meta", &meta) && raw_get(meta, "progressToken", &c->token) &&
                    (c->token.n == 0 || c->token.p[0] == 'n'))
                        c->token = str_n(NULL, 0);
        }
        c->tool = json_get_str(json_get(msg, "params"), "name", NULL);
        c->modern = era_is_modern(msg);
        list_append(&a->calls, &c->node);
        *s = (struct starter){ .c = c, .fn = fn };
        c->coro = coro_start(run, s, CORO_STACK_LARGE, "call");
        if (!c->coro) {
                adapter_reply_error(a, c->id, -32603, "too many calls at a time");
                free(s);
                call_free(c);
        }
}

struct call *call_find(struct adapter *a, struct str id)
{
        list_for_each (it, &a->calls) {
                struct call *c = list_entry(it, struct call, node);

                if (str_eq(c->id, id))
                        return c;
        }
        return NULL;
}

void call_cancel(struct call *c)
{
        if (c->cancelled)
                return;
        c->cancelled = true;
        coro_cancel(c->coro);
}

void call_answer(struct call *c, struct str result, bool listing)
{
        _cleanup_buf_ struct buf b = BUF_MAX(RESULT_MAX);

        if (!c->modern)
                adapter_reply_raw(c->a, c->id, result);
        else if (era_result(&b, result, listing) == 0)
                adapter_reply_raw(c->a, c->id, buf_str(&b));
        else
                adapter_reply_error(c->a, c->id, -32603, "the result is too long to be passed on");
}

void call_answer_text(struct call *c, struct str text, bool is_error, bool structured)
{
        _cleanup_buf_ struct buf b = BUF_MAX(RESULT_MAX);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "content");
        jw_obj(&w);
        jw_kstr(&w, "type", "text");
        jw_kstrn(&w, "text", text);
        jw_end(&w);
        jw_end(&w);
        if (structured) {
                jw_key(&w, "structuredContent");
                jw_raw(&w, text);
        }
        if (is_error)
                jw_kbool(&w, "isError", true);
        if (jw_end_all(&w) == 0)
                call_answer(c, buf_str(&b), false);
        else
                adapter_reply_error(c->a, c->id, -32603, "the result is too long to be passed on");
}

static void post_progress(struct call *c, double value, struct str rest, const char *text)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 1 << 20);
        struct str k, v;

        if (c->cancelled || out_busy(&c->a->out))
                return;
        (void) buf_adds(&b,
                        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":");
        (void) buf_addstr(&b, c->token);
        (void) buf_addf(&b, ",\"progress\":%.15g", value);
        for (struct raw_it it = raw_begin(rest); raw_next(&it, &k, &v);) {
                if (raw_key_is(k, "progressToken") || raw_key_is(k, "progress"))
                        continue;
                (void) buf_adds(&b, ",\"");
                (void) buf_addstr(&b, k);
                (void) buf_adds(&b, "\":");
                (void) raw_add_line(&b, v);
        }
        if (text) {
                struct jw w;

                (void) buf_adds(&b, ",\"message\":");
                jw_init(&w, &b);
                jw_str(&w, text);
        }
        if (buf_adds(&b, "}}") == 0)
                out_post(&c->a->out, buf_str(&b));
        c->progress = value;
        c->last_told = loop_now();
}

void call_progress(struct call *c, const char *text)
{
        if (c->token.p)
                post_progress(c, c->progress + PROGRESS_STEP, str_n(NULL, 0), text);
}

void call_progress_server(struct call *c, struct str params)
{
        _cleanup_json_ struct json *j = NULL;
        double value;

        if (!c->token.p || json_parse(params.p, params.n, &j, NULL) < 0)
                return;
        value = json_double(json_get(j, "progress"));
        if (!isfinite(value) || value <= c->progress) /* never backwards, whatever the server counts */
                value = c->progress + PROGRESS_STEP;
        c->server_counts = true;
        post_progress(c, value, params, NULL);
}

void coroutine_fn call_tools_list(struct call *c)
{
        struct adapter *a = c->a;
        struct err e = { 0 };

        int r = tools_get(a, &e);

        if (c->cancelled || coro_cancelled())
                return;
        if (!creds_ready(&a->creds)) {
                signin_watch(a);
                call_answer(c, str_of(signin_tool_list), true);
                return;
        }
        if (r < 0)
                adapter_reply_error(a, c->id, -32603,
                                    "The tool list could not be fetched from %s: %s. This adapter keeps trying and "
                                    "says so when the list is there.",
                                    a->config.mcp_text, err_text(&e));
        else
                call_answer(c, buf_str(&a->tools.list), true);
        out_room(&a->out);
}
