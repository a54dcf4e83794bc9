#include "adapter/call.h"
#include "base/mem.h"
#include "sync/sync.h"

#include <errno.h>

#define UPLOAD_LEFT_MS (5 * 60 * 1000) /* an upload takes a while: its token must outlive it */
#define RESULT_MAX ((size_t) 4 << 20)

static int coroutine_fn tool_for_sync(void *arg, const char *name, struct json *args, struct json **ret, struct err *e)
{
        return call_upstream_json(arg, name, args, ret, e);
}

static void progress_for_sync(void *arg, const char *text)
{
        call_progress(arg, text);
}

/* The next sandbox_exec there says so once: a build of old files is easily taken for one of the new ones. */
static void note_failure(struct call *c, const struct json *args, bool ok, struct str text)
{
        const char *box = json_get_str(args, "id", NULL);

        if (box && (ok || str_starts(text, STR("NOT SYNCED"))))
                reminders_set(&c->a->reminders, box, json_get_str(args, "dest", ""), !ok);
}

/* 401: refreshes. The headers point into what is refreshed, so the next request has them. */
static bool coroutine_fn refused_in_sync(void *arg)
{
        struct call *c = arg;

        return c->a->creds.state == CREDS_IN && creds_refused(&c->a->creds, c->generation, NULL) == 0;
}

void coroutine_fn call_local(struct call *c, bool pull)
{
        struct adapter *a = c->a;
        _cleanup_buf_ struct buf out = BUF_MAX(RESULT_MAX);
        _cleanup_json_ struct json *none = json_obj();
        const struct json *args = json_get(json_get(c->msg, "params"), "arguments");
        const char *headers[24];
        struct sync_env env = { .http = a->api_http,
                                .base = a->config.api,
                                .headers = headers,
                                .cwd = a->cwd,
                                .stall_ms = a->config.stall_ms,
                                .answer_ms = a->config.answer_ms,
                                .call_tool = tool_for_sync,
                                .progress = progress_for_sync,
                                .refused = refused_in_sync,
                                .arg = c };
        struct err e = { 0 };
        int r = creds_use(&a->creds, pull ? 0 : UPLOAD_LEFT_MS, &e);

        if (r == -ECANCELED)
                return;
        if (r < 0) {
                call_no_sign_in(c, err_text(&e));
                return;
        }
        c->generation = a->creds.generation;
        upstream_headers(&a->up, headers, ARRAY_LEN(headers));
        r = pull ? pull_run(&env, args ? args : none, &out) : sync_run(&env, args ? args : none, &out);
        if (c->cancelled || r == -ECANCELED)
                return;
        if (!pull)
                note_failure(c, args, r == 0, buf_str(&out));
        if (r < 0)
                adapter_reply_error(a, c->id, -32603, "%s failed inside the adapter: error %d", c->tool, -r);
        else
                call_answer_text(c, buf_str(&out), r == 1, r == 0);
}
