#include "remote.h"

#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 120000
#define BODY_MAX ((size_t) 4 << 20)

int remote_open(const char *url, const char *key, struct remote *ret, struct err *e)
{
        struct url u;
        int r = url_parse(url, &u, e);

        if (r < 0)
                return r;
        *ret = (struct remote){ http_client_new(&u), key };
        return 0;
}

void remote_close(struct remote *r)
{
        http_client_free(r->http);
        r->http = NULL;
}

static int coroutine_fn exchange(struct remote *r, struct http_request *q, struct buf *body, struct err *e)
{
        _cleanup_(hc_closep) struct hc *x = NULL;
        int ret = hc_open(r->http, q, &x, NULL, e);

        if (ret == 0)
                ret = hc_answer(x, e);
        if (ret == 0)
                ret = hc_read_all(x, body, ANSWER_MS, e);
        return ret < 0 ? ret : (int) hc_status(x);
}

int coroutine_fn remote_get(struct remote *r, const char *path, struct json **ret, struct err *e)
{
        _cleanup_free_ char *bearer = xasprintf("Bearer %s", r->key ? r->key : "");
        const char *headers[] = { "Authorization", bearer, NULL };
        struct http_request q = {
                .method = "GET", .path = path, .headers = r->key ? headers : headers + 2, .answer_ms = ANSWER_MS
        };
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);
        int status = exchange(r, &q, &body, e);

        if (status > 0 && ret && json_parse(body.p, body.len, ret, NULL) < 0)
                *ret = NULL;
        return status;
}

struct last_event {
        struct buf *body;
};

static int keep_answer(const char *event, const char *id, struct str data, void *arg)
{
        struct last_event *l = arg;

        (void) event;
        (void) id;
        buf_clear(l->body);
        return buf_addstr(l->body, data);
}

/* A result comes as one JSON body, or as the last event of a stream. */
static int parse_answer(const struct buf *body, struct json **ret, struct err *e)
{
        _cleanup_buf_ struct buf last = BUF_MAX(BODY_MAX);
        struct last_event l = { &last };
        struct sse_parser p;

        if (body->len && body->p[0] == '{')
                return json_parse(body->p, body->len, ret, e);
        sse_parser_init(&p, BODY_MAX);
        int r = sse_parser_feed(&p, body->p, body->len, keep_answer, &l);
        sse_parser_done(&p);
        return r < 0 ? err_set(e, r, "the server's answer is malformed") : json_parse(last.p, last.len, ret, e);
}

int coroutine_fn remote_tool(struct remote *r, const char *tool, struct json *args, struct json **ret, struct err *e)
{
        _cleanup_free_ char *bearer = xasprintf("Bearer %s", r->key ? r->key : "");
        const char *headers[] = { "Authorization",
                                  bearer,
                                  "Content-Type",
                                  "application/json",
                                  "Accept",
                                  "application/json, text/event-stream",
                                  NULL };
        _cleanup_json_ struct json *message = json_obj(), *answer = NULL;
        struct json *params = json_obj();
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);

        json_set_str(params, "name", tool);
        json_set(params, "arguments", args);
        json_set_str(message, "jsonrpc", "2.0");
        json_set_int(message, "id", 1);
        json_set_str(message, "method", "tools/call");
        json_set(message, "params", params);
        _cleanup_free_ char *text = json_text(message);
        struct http_request q = { .method = "POST",
                                  .path = "/mcp",
                                  .headers = headers,
                                  .body = text,
                                  .body_len = strlen(text),
                                  .answer_ms = ANSWER_MS };
        int status = exchange(r, &q, &body, e);

        if (status < 0)
                return status;
        if (status != 200)
                return err_set(e, -EIO, "%s: the server answered %d: %.300s", tool, status, buf_cstr(&body));
        int k = parse_answer(&body, &answer, e);
        if (k < 0)
                return k;
        const struct json *result = json_get(answer, "result");
        if (!result)
                return err_set(e, -EIO, "%s: %s", tool,
                               json_get_str(json_get(answer, "error"), "message", "no result"));
        if (json_get_bool(result, "isError", false))
                return err_set(e, -EIO, "%s", json_get_str(json_at(json_get(result, "content"), 0), "text", tool));
        *ret = json_ref(json_get(result, "structuredContent"));
        return 0;
}

struct job {
        int coroutine_fn (*fn)(void *arg, struct err *e);
        void *arg;
        struct err *e;
        int r;
};

static void coroutine_fn job_main(void *arg)
{
        struct job *j = arg;

        j->r = j->fn(j->arg, j->e);
        loop_stop();
}

int remote_run(int coroutine_fn (*fn)(void *arg, struct err *e), void *arg, struct err *e)
{
        struct job j = { fn, arg, e, -ECANCELED };
        int r = loop_init(e);

        if (r < 0)
                return r;
        (void) coro_start(job_main, &j, CORO_STACK_LARGE, "command");
        loop_run();
        loop_done();
        return j.r;
}
