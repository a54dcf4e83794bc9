#include "sync/send.h"
#include "base/mem.h"
#include "sync/par.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE_MAX ((size_t) 2 << 20)
#define ANSWER_MAX ((size_t) 8 << 20)

void send_result_done(struct send_result *r)
{
        buf_done(&r->refused);
        buf_done(&r->gone);
        buf_done(&r->changing);
        *r = (struct send_result){ 0 };
}

struct fill_job {
        struct tar_source *src;
        struct buf *out;
        int r;
};

static int fill(void *arg)
{
        struct fill_job *j = arg;

        j->r = tar_source_fill(j->src, j->out);
        return 0;
}

static void coroutine_fn fill_task(void *arg)
{
        (void) offload(fill, arg);
}

/* Two buffers: while one is on its way, the next is being read. 0 when the whole archive is out. */
static int coroutine_fn stream_body(struct hc *x, struct tar_source *src, struct watch *w, struct send_result *res,
                                    struct err *e)
{
        _cleanup_buf_ struct buf a = BUF_MAX(PIECE_MAX), b = BUF_MAX(PIECE_MAX);
        struct fill_job job = { .src = src, .out = &a };
        struct buf *ready;

        (void) offload(fill, &job);
        while (job.r >= 0) {
                struct par p;
                bool last = job.r == 1;
                int r, joined;

                par_init(&p);
                ready = job.out;
                job.out = ready == &a ? &b : &a;
                if (!last)
                        par_start(&p, fill_task, &job);
                r = hc_write(x, ready->p, ready->len);
                joined = par_join(&p);
                if (r < 0 || joined < 0)
                        return r < 0 ? r : joined;
                watch_moved(w, ready->len);
                res->sent_bytes += ready->len;
                if (last)
                        return hc_write_end(x);
        }
        return err_set(e, job.r, "the local files could not be packed");
}

static void add_refused(struct send_result *res, const struct json *list)
{
        res->refused = BUF_MAX((size_t) 1 << 20);
        for (size_t i = 0; i < json_len(list); i++) {
                const struct json *it = json_at(list, i);
                const char *s = json_str(it) ? json_str(it) : json_get_str(it, "path", NULL);

                if (s)
                        (void) buf_add(&res->refused, s, strlen(s) + 1);
        }
}

static int read_answer(const struct rest_answer *a, struct send_result *res, struct err *e)
{
        _cleanup_json_ struct json *j = NULL;
        int r;

        if (a->status != 200)
                return rest_fail(a, e);
        r = json_parse(a->body.p, a->body.len, &j, e);
        if (r < 0)
                return err_wrap(e, "the server's answer");
        const struct json *changed = json_get(j, "changed");
        res->changed = json_type(changed) == JSON_ARRAY ? (int64_t) json_len(changed) : json_int(changed);
        add_refused(res, json_get(j, "refused"));
        return 0;
}

static int send_path(const struct sync_env *env, const struct send_spec *s, struct buf *path)
{
        int r = rest_box_path(env, path, s->id, "sync", s->dest);

        if (r == 0 && s->repo[0]) {
                r = buf_adds(path, "&repo=");
                if (r == 0)
                        r = url_encode(path, str_of(s->repo));
        }
        if (r == 0 && s->single)
                r = buf_adds(path, "&single=1");
        return r;
}

static int coroutine_fn exchange(struct hc *x, struct tar_source *src, struct watch *w, struct send_result *res,
                                 struct rest_answer *a, struct err *e)
{
        int r = stream_body(x, src, w, res, e), fin;
        struct err ignored = { 0 };

        if (r == -ECANCELED && coro_cancelled())
                return r;
        if (r == 0) {
                res->uploading = false;
                w->limit_ms = w->env->answer_ms;
                w->what = "waiting for the box to write the files";
                return rest_finish(x, w, ANSWER_MAX, a, e);
        }
        if (e->code) /* packing failed here */
                return r;
        /* The server may have answered before it had everything (413, 404 …) and closed: its reason counts, if it can
         * be had. */
        fin = w->stalled ? -ETIMEDOUT : rest_finish(x, w, ANSWER_MAX, a, &ignored);
        if (fin == 0 && a->status >= 400)
                return 0;
        a->lost = true;
        if (w->stalled)
                return err_set(e, -ETIMEDOUT, "no byte moved for %lld seconds", (long long) (w->limit_ms + 999) / 1000);
        return err_sys(e, r == -ECANCELED ? -ECONNRESET : r, "the connection broke");
}

static int coroutine_fn send_once(const struct sync_env *env, const struct send_spec *s, const char *path, bool fresh,
                                  struct send_result *res, struct rest_answer *a, struct err *e)
{
        const char *const extra[] = { "Content-Type", s->gzip ? "application/gzip" : "application/x-tar", NULL };
        _cleanup_(tar_source_freep) struct tar_source *src = NULL;
        _cleanup_(hc_closep) struct hc *x = NULL;
        const char *headers[REST_HEADERS_MAX];
        struct watch w;

        send_result_done(res);
        res->uploading = true;
        src = tar_source_new(s, res);
        if (!src)
                return err_set(e, -ENOMEM, "out of memory");
        rest_headers(env, headers, extra);
        const struct http_request req = { .method = "POST",
                                          .path = path,
                                          .headers = headers,
                                          .streamed = true,
                                          .fresh = fresh,
                                          .write_ms = env->stall_ms };
        int r = hc_open(env->http, &req, &x, &a->not_sent, e);
        if (r < 0) {
                a->lost = true;
                return r;
        }
        watch_start(&w, env, x, "uploading", env->stall_ms);
        r = exchange(x, src, &w, res, a, e);
        watch_stop(&w);
        return r;
}

int coroutine_fn send_tree(const struct sync_env *env, const struct send_spec *spec, struct send_result *ret,
                           struct err *e)
{
        _cleanup_buf_ struct buf path = BUF_MAX(65536);
        struct rest_answer a = { 0 };
        int r = send_path(env, spec, &path);

        *ret = (struct send_result){ 0 };
        if (r < 0)
                return err_set(e, r, "`id` or `dest` is too long");
        for (int try = 0;; try++) {
                a = (struct rest_answer){ 0 };
                r = send_once(env, spec, buf_cstr(&path), try > 0, ret, &a, e);
                if (try == 0 && r == 0 && a.status == 401 && env->refused && env->refused(env->arg)) {
                        buf_done(&a.body);
                        continue;
                }
                if (try > 0 || (r < 0 && (r == -ECANCELED || r == -ETIMEDOUT || !a.lost)) ||
                    (r == 0 && a.status != 502 && a.status != 504))
                        break;
                buf_done(&a.body);
                *e = (struct err){ 0 };
        }
        if (r == 0)
                r = read_answer(&a, ret, e);
        buf_done(&a.body);
        return r;
}
