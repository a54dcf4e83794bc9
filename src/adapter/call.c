#include "adapter/call.h"
#include "adapter/rawjson.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

void call_start(struct adapter *a, char *line, size_t len, struct json *msg, void (*fn)(struct call *c))
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

        if (!a->config.key) {
                adapter_reply_raw(a, c->id, STR("{\"tools\":[]}"));
                return;
        }
        int r = tools_get(a, &e);
        if (c->cancelled || coro_cancelled())
                return;
        if (r < 0)
                adapter_reply_error(a, c->id, -32603,
                                    "The tool list could not be fetched from %s: %s. This adapter keeps trying and "
                                    "says so when the list is there.",
                                    a->config.mcp_text, err_text(&e));
        else
                adapter_reply_raw(a, c->id, buf_str(&a->tools.list));
        out_room(&a->out);
}
