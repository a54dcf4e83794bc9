#include "sync/plan.h"
#include "base/b64.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define PLAN_MAX ((size_t) 512 << 20)
#define HEADER_MAX ((size_t) 32 << 20)

void plan_done(struct plan *p)
{
        free(p->need);
        buf_done(&p->extras);
        *p = (struct plan){ 0 };
}

int plan_encode(const struct tree *t, struct buf *out, uint32_t **map, size_t *n)
{
        *map = xmalloc((t->n + 1) * sizeof **map);
        *n = 0;
        for (size_t i = 0; i < t->n; i++) {
                const struct entry *it = &t->v[i];
                struct guest_entry g = {
                        .kind = it->kind, .size = it->key.size, .path = it->path, .path_len = it->path_len
                };
                unsigned char *p;

                if (it->state != ENTRY_OK)
                        continue;
                p = (unsigned char *) buf_room(out, GUEST_ENTRY_FIXED + it->path_len);
                if (!p)
                        return -ENOBUFS;
                memcpy(g.digest, it->digest, sizeof g.digest);
                buf_grew(out, guest_entry_encode(&g, p));
                (*map)[(*n)++] = (uint32_t) i;
        }
        return 0;
}

static uint32_t le32(const char *p)
{
        const unsigned char *u = (const unsigned char *) p;

        return (uint32_t) u[0] | (uint32_t) u[1] << 8 | (uint32_t) u[2] << 16 | (uint32_t) u[3] << 24;
}

/* A path from the box is printed, compared and sent back for pruning: only proper ones get in. */
static int add_extra(struct plan *p, const struct json *it)
{
        size_t before = p->extras.len;

        if (b64_decode(&p->extras, json_strn(it)) < 0 || !guest_path_ok(p->extras.p + before, p->extras.len - before)) {
                p->extras.len = before;
                return -EPROTO;
        }
        return buf_addc(&p->extras, '\0');
}

static int read_header(struct str text, struct plan *p, struct err *e)
{
        _cleanup_json_ struct json *j = NULL;
        int r = json_parse(text.p, text.n, &j, e);

        if (r < 0)
                return err_wrap(e, "the plan's answer");
        p->exists = json_get_bool(j, "exists", false);
        p->is_file = json_get_bool(j, "isFile", false);
        p->extra_count = json_get_int(j, "extraCount", 0);
        p->extras_partial = json_get_bool(j, "extrasPartial", false);
        p->extras = BUF_MAX(HEADER_MAX);
        const struct json *extras = json_get(j, "extras");
        for (size_t i = 0; i < json_len(extras); i++)
                if (add_extra(p, json_at(extras, i)) < 0)
                        return err_set(e, -EPROTO, "the plan's answer names an impossible path");
        return 0;
}

int plan_decode(struct str a, const uint32_t *map, size_t n, struct plan *ret, struct err *e)
{
        struct plan p = { 0 };
        uint32_t len = a.n >= 4 ? le32(a.p) : UINT32_MAX;
        int64_t last = -1;

        *ret = (struct plan){ 0 };
        if (a.n < 4 || len > a.n - 4 || (a.n - 4 - len) % 4 != 0)
                return err_set(e, -EPROTO, "the plan's answer has an impossible length");
        size_t count = (a.n - 4 - len) / 4;
        int r = read_header(str_n(a.p + 4, len), &p, e);
        if (r == 0 && count > n)
                r = err_set(e, -EPROTO, "the plan's answer asks for more than there is");
        p.need = xmalloc((count + 1) * sizeof *p.need);
        for (size_t i = 0; r == 0 && i < count; i++) {
                uint32_t k = le32(a.p + 4 + len + 4 * i);

                if (k >= n || (int64_t) k <= last)
                        r = err_set(e, -EPROTO, "the plan's answer has an impossible index");
                else
                        p.need[p.need_n++] = map[k];
                last = k;
        }
        if (r < 0) {
                plan_done(&p);
                return r;
        }
        *ret = p;
        return 0;
}

#define WHAT "comparing with the box"
#define TYPE "application/octet-stream"

void coroutine_fn plan_early_open(const struct sync_env *env, const char *id, const char *dest, struct plan_early *ret)
{
        static const char *const extra[] = { "Content-Type", TYPE, NULL };
        _cleanup_buf_ struct buf path = BUF_MAX(65536);
        const char *headers[REST_HEADERS_MAX];
        struct err e = { 0 };

        if (rest_box_path(env, &path, id, "plan", dest) < 0)
                return;
        rest_headers(env, headers, extra);
        const struct http_request req = { .method = "POST",
                                          .path = buf_cstr(&path),
                                          .headers = headers,
                                          .streamed = true,
                                          .fresh = true,
                                          .connect_ms = 5000,
                                          .answer_ms = env->answer_ms };
        (void) hc_open(env->http, &req, &ret->x, NULL, &e);
}

void plan_early_close(struct plan_early *p)
{
        hc_close(steal_ptr(p->x));
}

/* True when a whole answer came; what went wrong otherwise is left to the ordinary way to find. */
static bool coroutine_fn finish_early(const struct sync_env *env, struct plan_early *early, const struct buf *body,
                                      size_t answer_max, struct rest_answer *a)
{
        struct err e = { 0 };
        struct watch w;

        if (!early || !early->x)
                return false;
        watch_start(&w, env, early->x, WHAT, env->answer_ms);
        int r = hc_write(early->x, body->p, body->len);
        if (r == 0)
                r = hc_write_end(early->x);
        if (r == 0)
                r = rest_finish(early->x, &w, answer_max, a, &e);
        watch_stop(&w);
        plan_early_close(early);
        if (r == 0 && a->status == 200)
                return true;
        buf_done(&a->body);
        *a = (struct rest_answer){ 0 };
        return false;
}

/* Asking twice changes nothing, so a lost connection is simply tried again. */
static int coroutine_fn ask(const struct sync_env *env, const char *path, const struct buf *body, size_t answer_max,
                            struct rest_answer *a, struct err *e)
{
        for (int try = 0;; try++) {
                int r = rest_post(env, path, TYPE, body, WHAT, answer_max, a, e);

                if (try > 0 || r == -ECANCELED || (r == 0 && a->status != 502 && a->status != 504) ||
                    (r < 0 && !a->lost && !a->not_sent))
                        return r;
                buf_done(&a->body);
                *e = (struct err){ 0 };
        }
}

/* A server from before this exchange: its router knows no such address. One that has the exchange, but not the box,
 * answers 404 with a code of its own. */
static bool cannot_compare(const struct rest_answer *a)
{
        _cleanup_json_ struct json *j = NULL;

        if (a->status == 405 || a->status == 501)
                return true;
        if (a->status != 404)
                return false;
        return json_parse(a->body.p ? a->body.p : "", a->body.len, &j, NULL) < 0 ||
               !cstr_eq(json_get_str(j, "code", NULL), "not_found");
}

static void need_all(const uint32_t *map, size_t n, struct plan *ret)
{
        ret->unknown = true;
        ret->need = xmemdup(map, (n + 1) * sizeof *map);
        ret->need_n = n;
}

int coroutine_fn plan_ask(const struct sync_env *env, const char *id, const char *dest, const struct tree *t,
                          struct plan_early *early, struct plan *ret, struct err *e)
{
        _cleanup_buf_ struct buf path = BUF_MAX(65536), body = BUF_MAX(PLAN_MAX);
        _cleanup_free_ uint32_t *map = NULL;
        struct rest_answer a = { 0 };
        size_t n = 0;
        int r;

        *ret = (struct plan){ 0 };
        r = rest_box_path(env, &path, id, "plan", dest);
        if (r == 0)
                r = plan_encode(t, &body, &map, &n);
        if (r < 0)
                return err_set(e, r, "the list of files is too long");
        size_t answer_max = HEADER_MAX + 4 * n + 4;
        if (!finish_early(env, early, &body, answer_max, &a))
                r = ask(env, buf_cstr(&path), &body, answer_max, &a, e);
        if (r == 0 && cannot_compare(&a))
                need_all(map, n, ret);
        else if (r == 0 && a.status != 200)
                r = rest_fail(&a, e);
        else if (r == 0)
                r = plan_decode(buf_str(&a.body), map, n, ret, e);
        buf_done(&a.body);
        return r;
}
