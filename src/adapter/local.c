#include "adapter/call.h"
#include "base/mem.h"
#include "sync/sync.h"

#include <errno.h>

#define RESULT_MAX ((size_t) 4 << 20)

static int coroutine_fn tool_for_sync(void *arg, const char *name, struct json *args, struct json **ret, struct err *e)
{
        return call_upstream_json(arg, name, args, ret, e);
}

static void progress_for_sync(void *arg, const char *text)
{
        call_progress(arg, text);
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
                                .arg = c };
        int r;

        upstream_headers(&a->up, headers, ARRAY_LEN(headers));
        r = pull ? pull_run(&env, args ? args : none, &out) : sync_run(&env, args ? args : none, &out);
        if (c->cancelled || r == -ECANCELED)
                return;
        if (r < 0)
                adapter_reply_error(a, c->id, -32603, "%s failed inside the adapter: error %d", c->tool, -r);
        else
                adapter_reply_text(a, c->id, buf_str(&out), r == 1, r == 0);
}
