#include "sync/rest.h"

#include <errno.h>
#include <stdio.h>

#define TICK_MS 1000
#define TELL_MS 10000
#define CONNECT_MS 10000

static void tell(struct watch *w)
{
        char text[256];

        if (w->total)
                (void) snprintf(text, sizeof text, "%s: %.1f of %.1f MB", w->what, (double) w->moved / 1e6,
                                (double) w->total / 1e6);
        else
                (void) snprintf(text, sizeof text, "%s: %.1f MB", w->what, (double) w->moved / 1e6);
        w->env->progress(w->env->arg, text);
}

/* Quiet time is counted in ticks that were really lived through: a machine that slept has not been silent. */
static void tick(void *arg)
{
        struct watch *w = arg;
        int64_t now = loop_now(), gone = now - w->last_tick;

        w->last_tick = now;
        if (now - w->last_told >= TELL_MS) {
                w->last_told = now;
                tell(w);
        }
        if (w->moved != w->seen) {
                w->seen = w->moved;
                w->quiet_ms = 0;
                return;
        }
        w->quiet_ms += gone < 2 * TICK_MS ? gone : 2 * TICK_MS;
        if (w->quiet_ms >= w->limit_ms && !w->stalled) {
                w->stalled = true;
                hc_abort(w->x);
        }
}

void watch_start(struct watch *w, const struct sync_env *env, struct hc *x, const char *what, int64_t limit_ms)
{
        int64_t tick_ms = limit_ms / 4 < TICK_MS ? (limit_ms / 4 > 0 ? limit_ms / 4 : 1) : TICK_MS;

        *w = (struct watch){ .env = env, .x = x, .what = what, .limit_ms = limit_ms };
        w->last_tick = w->last_told = loop_now();
        w->timer = timer_start(tick_ms, tick_ms, tick, w);
}

void watch_stop(struct watch *w)
{
        if (w->timer)
                timer_stop(&w->timer);
}

int rest_box_path(const struct sync_env *env, struct buf *out, const char *id, const char *op, const char *dest)
{
        int r = buf_adds(out, env->base.path);

        if (r == 0)
                r = buf_adds(out, "/v1/boxes/");
        if (r == 0)
                r = url_encode(out, str_of(id));
        if (r == 0)
                r = buf_addf(out, "/%s?dest=", op);
        if (r == 0)
                r = url_encode(out, str_of(dest));
        return r;
}

void rest_headers(const struct sync_env *env, const char *out[REST_HEADERS_MAX], const char *const *extra)
{
        size_t n = 0;

        for (const char *const *h = env->headers; *h && n < REST_HEADERS_MAX - 10; h++)
                out[n++] = *h;
        for (; extra && *extra && n < REST_HEADERS_MAX - 1; extra++)
                out[n++] = *extra;
        out[n] = NULL;
}

static int explain(struct watch *w, int r, struct err *e)
{
        if (w->stalled)
                return err_set(e, -ETIMEDOUT, "no byte moved for %lld seconds", (long long) (w->limit_ms + 999) / 1000);
        if (r == -ECANCELED && coro_cancelled())
                return r;
        if (r == -ECANCELED)
                r = -ECONNRESET;
        if (e->msg[0] == '\0')
                return err_sys(e, r, "the connection was lost");
        return r;
}

int coroutine_fn rest_finish(struct hc *x, struct watch *w, size_t answer_max, struct rest_answer *ret, struct err *e)
{
        ret->body = BUF_MAX(answer_max);
        int r = hc_answer(x, e);
        if (r < 0) {
                ret->lost = true;
                return explain(w, r, e);
        }
        watch_moved(w, 1);
        ret->status = hc_status(x);
        for (;;) {
                char *p = buf_room(&ret->body, min_size(65536, ret->body.max - ret->body.len));
                if (!p || ret->body.len == ret->body.max)
                        return err_set(e, -EMSGSIZE, "the server's answer is too long");
                ssize_t got = hc_read(x, p, min_size(65536, ret->body.max - ret->body.len), -1);
                if (got == 0)
                        return 0;
                if (got < 0) {
                        ret->lost = true;
                        return explain(w, (int) got, e);
                }
                buf_grew(&ret->body, (size_t) got);
                watch_moved(w, (size_t) got);
        }
}

static int coroutine_fn post_once(const struct sync_env *env, const char *path, const char *type,
                                  const struct buf *body, const char *what, size_t answer_max, struct rest_answer *ret,
                                  struct err *e)
{
        const char *const extra[] = { "Content-Type", type, NULL };
        const char *headers[REST_HEADERS_MAX];
        _cleanup_(hc_closep) struct hc *x = NULL;
        struct watch w;

        *ret = (struct rest_answer){ 0 };
        rest_headers(env, headers, extra);
        const struct http_request req = { .method = "POST",
                                          .path = path,
                                          .headers = headers,
                                          .body = body->p ? body->p : "",
                                          .body_len = body->len,
                                          .connect_ms = CONNECT_MS,
                                          .write_ms = env->stall_ms,
                                          .answer_ms = env->answer_ms };
        int r = hc_open(env->http, &req, &x, &ret->not_sent, e);
        if (r < 0) {
                ret->lost = !ret->not_sent;
                return r;
        }
        watch_start(&w, env, x, what, env->answer_ms);
        r = rest_finish(x, &w, answer_max, ret, e);
        watch_stop(&w);
        return r;
}

int coroutine_fn rest_post(const struct sync_env *env, const char *path, const char *type, const struct buf *body,
                           const char *what, size_t answer_max, struct rest_answer *ret, struct err *e)
{
        int r = post_once(env, path, type, body, what, answer_max, ret, e);

        if (r < 0 || ret->status != 401 || !env->refused || !env->refused(env->arg))
                return r;
        buf_done(&ret->body);
        return post_once(env, path, type, body, what, answer_max, ret, e);
}

int rest_fail(const struct rest_answer *a, struct err *e)
{
        _cleanup_json_ struct json *j = NULL;
        const char *text = NULL;

        if (a->body.len && json_parse(a->body.p, a->body.len, &j, NULL) == 0)
                text = json_get_str(j, "error", NULL);
        if (text)
                return err_set(e, -EIO, "%.400s (HTTP %u)", text, a->status);
        if (a->status == 401 || a->status == 403)
                return err_set(e, -EACCES, "the server refused the API key (HTTP %u)", a->status);
        return err_set(e, -EIO, "the server answered HTTP %u", a->status);
}
