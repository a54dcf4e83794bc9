/* Files into a box: the upload, the plan (what differs) and the prune. The server only moves bytes; boxd judges them.
 */
#include "control/guest_client.h"
#include "control/rest.h"
#include "control/secrets.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE ((size_t) 64 << 10)
#define PLAN_MAX ((int64_t) 1 << 30)
#define ANSWER_MS 600000
#define INDICES_MAX ((size_t) 64 << 20)

struct upload {
        struct rest *r;
        struct box *b;
        char *dest;
};

static int coroutine_fn upload_begin(struct upload *u, struct rest *r, struct err *e)
{
        _cleanup_buf_ struct buf dest = BUF_MAX(GUEST_PATH_MAX + 16);

        *u = (struct upload){ .r = r };
        int code = call_query(r->call, "dest", &dest);
        /* An empty one means /work itself. */
        if (code <= 0)
                return err_set(e, -EINVAL,
                               code < 0 ? "`dest` cannot be decoded"
                                        : "`dest` is required: the folder below /work to write to");
        if (memchr(dest.p, '\0', dest.len) || !utf8_valid(buf_str(&dest)))
                return err_set(e, -EINVAL, "`dest` must be UTF-8 without a NUL character");
        code = work_path(buf_cstr(&dest), "dest", &u->dest, e);
        if (code == 0)
                code = box_acquire(r->c, r->who, r->id, &u->b, e);
        return code;
}

static void upload_done(struct upload *u)
{
        if (u->b)
                box_release(u->b);
        free(u->dest);
}

static bool query_flag(struct rest *r, const char *key)
{
        _cleanup_buf_ struct buf v = BUF_MAX(8);

        return call_query(r->call, key, &v) == 1 && (str_eq(buf_str(&v), STR("1")) || str_eq(buf_str(&v), STR("true")));
}

/* Body -> data frames. When boxd ends early (disk full), the write fails and its result says why. */
static int coroutine_fn pump_body(struct rest *r, struct guest_op *g, int64_t max, int64_t *sent, struct err *e)
{
        _cleanup_free_ char *p = xmalloc(PIECE);

        for (*sent = 0;;) {
                ssize_t n = call_read(r->call, p, PIECE);

                if (n < 0)
                        return err_sys(e, (int) n, "the upload broke off after %lld bytes", (long long) *sent);
                if (max && *sent + n > max)
                        return err_set(e, -EMSGSIZE, "larger than %lld bytes", (long long) max);
                int w = guest_send(g, GUEST_DATA, n == 0, p, (size_t) n);
                if (w < 0 || n == 0)
                        return w < 0 && w != -EPIPE && w != -ECONNRESET
                                       ? err_sys(e, w, "the box took no more after %lld bytes", (long long) *sent)
                                       : 0;
                *sent += n;
        }
}

static void remember_repo(struct rest *r, const char *box)
{
        _cleanup_buf_ struct buf asked = BUF_MAX(200);
        _cleanup_json_ struct json *list = NULL;
        _cleanup_mask_ struct mask *mask = NULL;
        struct box_row row = { 0 };

        if (call_query(r->call, "repo", &asked) != 1 || asked.len == 0 || box_mask(r->c, box, &mask, NULL) < 0 ||
            boxes_get(r->c->db, NULL, box, &row, NULL) < 0)
                return;
        /* Addresses of repositories are known to hold tokens. */
        _cleanup_free_ char *text = mask_cstr(mask, buf_cstr(&asked));
        struct str repo = str_of(text);
        if (json_parse(row.repos, strlen(row.repos), &list, NULL) == 0) {
                bool known = json_len(list) >= 20;

                for (size_t i = 0; i < json_len(list); i++)
                        known = known || str_eq(json_strn(json_at(list, i)), repo);
                if (!known) {
                        json_push(list, json_new_strn(repo));
                        _cleanup_free_ char *all = json_text(list);
                        (void) boxes_set_repos(r->c->db, box, all);
                }
        }
        box_row_done(&row);
}

static void coroutine_fn answer_sync(struct upload *u, const struct json *result)
{
        struct json *o = json_obj();

        json_set_bool(o, "ok", true);
        json_set_str(o, "dest", u->dest);
        json_set_int(o, "changed", json_get_int(result, "changed", 0));
        json_set_int(o, "files", json_get_int(result, "files", 0));
        json_set_int(o, "bytes", json_get_int(result, "bytes", 0));
        struct json *refused = json_get(result, "refused");
        json_set(o, "refused", refused ? json_ref(refused) : json_arr());
        (void) call_reply_json(u->r->call, 200, o);
        json_unref(o);
}

static int coroutine_fn run_sync(struct upload *u, struct guest_op *g, struct err *e)
{
        struct rest *r = u->r;
        struct json *head = json_obj();
        int64_t sent = 0;

        json_set_str(head, "op", "put");
        json_set_str(head, "dest", u->dest);
        json_set_str(head, "format", "tar");
        json_set_bool(head, "compare", true);
        json_set_bool(head, "single", query_flag(r, "single"));
        int code = guest_open(r->c, u->b->id, head, g, e);
        if (code < 0)
                return code;
        g->idle_ms = ANSWER_MS;
        code = pump_body(r, g, 0, &sent, e);
        return code < 0 ? code : guest_finish(g, e);
}

void coroutine_fn rest_sync(struct rest *r)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct upload u;
        struct err e = { 0 };
        int code = upload_begin(&u, r, &e);

        if (code == 0)
                code = disk_has_room(r->c, &e);
        if (code == 0) {
                _cleanup_mask_ struct mask *mask = NULL;
                /* Files go into a box also when its secrets cannot be opened; then nothing is written down of where. */
                bool hidden = box_mask(r->c, u.b->id, &mask, NULL) < 0;
                _cleanup_free_ char *dest = hidden ? NULL : mask_cstr(mask, u.dest), *error = NULL;
                struct step s = { .box = u.b->id,
                                  .tool = "sandbox_sync",
                                  .agent = r->who->agent[0] ? r->who->agent : NULL,
                                  .directory = dest,
                                  .started_at = wall_ms() };

                code = steps_begin(r->c->db, &s, &e);
                if (code == 0) {
                        code = run_sync(&u, &g, &e);
                        s.ended_at = wall_ms();
                        if (code < 0)
                                error = hidden ? xstrdup("it failed") : mask_error(mask, err_text(&e));
                        s.error = error;
                        (void) steps_end(r->c->db, &s, NULL);
                }
        }
        if (code == 0) {
                remember_repo(r, u.b->id);
                answer_sync(&u, g.result);
        } else {
                rest_fail(r, code, &e);
        }
        upload_done(&u);
}

static int coroutine_fn collect_indices(struct guest_op *g, struct buf *out, struct err *e)
{
        _cleanup_free_ char *p = xmalloc(PIECE);

        for (;;) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;
                ssize_t n = guest_recv(g, p, PIECE, &stream, &control, e);

                if (n == -ENODATA)
                        return guest_result_error(g->result, e);
                if (n < 0)
                        return (int) n;
                if (n > 0 && stream == GUEST_DATA && buf_add(out, p, (size_t) n) < 0)
                        return err_set(e, -E2BIG, "too many files differ");
        }
}

static int coroutine_fn run_plan(struct upload *u, struct guest_op *g, struct buf *indices, struct err *e)
{
        struct json *head = json_obj();
        int64_t sent = 0;

        json_set_str(head, "op", "diff");
        json_set_str(head, "dest", u->dest);
        int code = guest_open(u->r->c, u->b->id, head, g, e);
        if (code < 0)
                return code;
        g->idle_ms = ANSWER_MS;
        code = pump_body(u->r, g, PLAN_MAX, &sent, e);
        return code < 0 ? code : collect_indices(g, indices, e);
}

/* Answer: u32 length of the JSON, the JSON, then the u32 indices (docs/sync.md). */
static void coroutine_fn answer_plan(struct rest *r, const struct json *result, const struct buf *indices)
{
        _cleanup_buf_ struct buf head = BUF_MAX(GUEST_CONTROL_MAX), out = BUF_MAX(GUEST_CONTROL_MAX + 4);
        unsigned char n[4];

        if (json_print(result, &head) < 0) {
                (void) call_reply_error(r->call, 500, "internal", "the plan's answer is too large");
                return;
        }
        for (unsigned i = 0; i < 4; i++)
                n[i] = (unsigned char) (head.len >> (8 * i));
        (void) buf_add(&out, n, sizeof n);
        (void) buf_addstr(&out, buf_str(&head));
        if (call_start(r->call, 200, "application/octet-stream", (int64_t) (out.len + indices->len)) < 0)
                return;
        (void) call_write(r->call, out.p, out.len);
        (void) call_write(r->call, indices->p, indices->len);
}

void coroutine_fn rest_plan(struct rest *r)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        _cleanup_buf_ struct buf indices = BUF_MAX(INDICES_MAX);
        struct upload u;
        struct err e = { 0 };
        int code = upload_begin(&u, r, &e);

        if (code == 0)
                code = run_plan(&u, &g, &indices, &e);
        if (code == 0)
                answer_plan(r, g.result, &indices);
        else
                rest_fail(r, code, &e);
        upload_done(&u);
}

static int coroutine_fn run_prune(struct upload *u, struct guest_op *g, struct err *e)
{
        struct json *head = json_obj();
        int64_t sent = 0;

        if (cstr_eq(u->dest, ".")) {
                json_unref(head);
                return err_set(e, -EINVAL, "prune is refused for /work itself: give a dest below it");
        }
        json_set_str(head, "op", "prune");
        json_set_str(head, "dest", u->dest);
        int code = guest_open(u->r->c, u->b->id, head, g, e);
        if (code < 0)
                return code;
        g->idle_ms = ANSWER_MS;
        code = pump_body(u->r, g, PLAN_MAX, &sent, e);
        return code < 0 ? code : guest_finish(g, e);
}

void coroutine_fn rest_prune(struct rest *r)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        struct upload u;
        struct err e = { 0 };
        int code = upload_begin(&u, r, &e);

        if (code == 0)
                code = run_prune(&u, &g, &e);
        if (code == 0) {
                struct json *o = json_obj();
                struct json *failed = json_get(g.result, "failed");

                json_set_int(o, "pruned", json_get_int(g.result, "pruned", 0));
                json_set(o, "failed", failed ? json_ref(failed) : json_arr());
                (void) call_reply_json(r->call, 200, o);
                json_unref(o);
        } else {
                rest_fail(r, code, &e);
        }
        upload_done(&u);
}
