/* rest_app: what the app asks for besides: steps, unsaved work, a stop, and the events. */
#include "control/box_impl.h"
#include "control/events.h"
#include "control/rest.h"
#include "control/secrets.h"
#include "control/view.h"

#include "base/mem.h"

#include <errno.h>

#define PAGE_DEFAULT 50
#define PAGE_MOST 200
#define ANSWER_MAX ((size_t) 4 << 20)

struct page {
        struct jw w;
        uint64_t most, n;
};

static int add_step(const struct step *s, void *arg)
{
        struct page *p = arg;

        if (p->n++ < p->most)
                view_step(&p->w, s, VIEW_COMMAND_WHOLE);
        return 0;
}

/* A number of the query; *ret stays when it is absent. */
static int query_number_of(const struct rest *r, const char *key, uint64_t most, uint64_t *ret, struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(32);
        int found = call_query(r->call, key, &b);

        if (found < 0 || (found == 1 && (parse_u64(buf_str(&b), most, ret) < 0 || *ret == 0)))
                return err_set(e, -EINVAL, "`%s` is a number from 1 to %llu", key, (unsigned long long) most);
        return 0;
}

void coroutine_fn rest_steps(struct rest *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(ANSWER_MAX);
        _cleanup_(box_row_done) struct box_row row = { 0 };
        struct page p = { .most = PAGE_DEFAULT };
        uint64_t before = 0;
        struct err e = { 0 };
        int code = boxes_get(r->c->db, r->who->account, r->id, &row, &e);

        if (code == 0)
                code = query_number_of(r, "before", INT64_MAX, &before, &e);
        if (code == 0)
                code = query_number_of(r, "limit", PAGE_MOST, &p.most, &e);
        if (code < 0) {
                rest_fail(r, code, &e);
                return;
        }
        jw_init(&p.w, &b);
        jw_obj(&p.w);
        jw_karr(&p.w, "steps");
        (void) steps_before(r->c->db, row.id, (int64_t) before, false, (int) p.most + 1, add_step, &p);
        jw_end(&p.w);
        jw_kbool(&p.w, "more", p.n > p.most);
        if (jw_end_all(&p.w) < 0)
                (void) call_reply_error(r->call, 500, "internal", "the steps did not fit into an answer");
        else
                (void) call_reply(r->call, 200, "application/json", b.p, b.len);
}

/* The names of files are what a box says, so they are masked; without its mask (unsaved NULL) none is told. */
static void coroutine_fn answer_unsaved(struct rest *r, const char *status, const struct json *unsaved,
                                        struct mask *mask)
{
        _cleanup_buf_ struct buf b = BUF_MAX(ANSWER_MAX), masked = BUF_MAX(ANSWER_MAX);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        if (status) {
                jw_kbool(&w, "ok", true);
                jw_kstr(&w, "id", r->id);
                jw_kstr(&w, "status", status);
        }
        if (unsaved) {
                jw_key(&w, "unsavedWork");
                jw_json(&w, unsaved);
        }
        int code = jw_end_all(&w);
        if (code == 0 && mask)
                code = mask_json(mask, buf_str(&b), &masked);
        struct str text = mask ? buf_str(&masked) : buf_str(&b);
        if (code < 0)
                (void) call_reply_error(r->call, 500, "internal", "the list did not fit into an answer");
        else
                (void) call_reply(r->call, 200, "application/json", text.p, text.n);
}

void coroutine_fn rest_unsaved(struct rest *r)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_json_ struct json *unsaved = NULL;
        _cleanup_mask_ struct mask *mask = NULL;
        _cleanup_box_ struct box *b = NULL;
        struct err e = { 0 };
        int code = boxes_get(r->c->db, r->who->account, r->id, &row, &e);

        if (code == 0 && (cstr_eq(row.state, "running") || cstr_eq(row.state, "frozen")))
                code = box_acquire(r->c, r->who, r->id, &b, &e);
        if (code == 0)
                code = box_mask(r->c, r->id, &mask, &e);
        if (code < 0) {
                rest_fail(r, code, &e);
                return;
        }
        unsaved = b ? box_unsaved(r->c, &row) : json_arr();
        answer_unsaved(r, NULL, unsaved, mask);
}

void coroutine_fn rest_stop(struct rest *r)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_mask_ struct mask *mask = NULL;
        struct box_stopped s = { 0 };
        struct err e = { 0 };
        bool may_tell = false;
        int code = boxes_get(r->c->db, r->who->account, r->id, &row, &e);

        /* Before the stop, which forgets it. */
        if (code == 0)
                may_tell = box_mask(r->c, r->id, &mask, NULL) == 0;
        if (code == 0)
                code = box_stop(r->c, r->who, r->id, &s, &e);
        _cleanup_json_ struct json *unsaved = s.unsaved;
        if (code < 0)
                rest_fail(r, code, &e);
        else
                answer_unsaved(r, s.deleted ? "deleted" : "archived", may_tell ? unsaved : NULL, mask);
}

void coroutine_fn rest_restore(struct rest *r)
{
        struct box_request as_it_was = { 0 };
        bool work_only = false;
        struct err e = { 0 };
        int code = box_restore(r->c, r->who, r->id, &as_it_was, &work_only, &e);

        if (code < 0) {
                rest_fail(r, code, &e);
                return;
        }
        struct json *o = json_obj();
        json_set_bool(o, "ok", true);
        json_set_str(o, "id", r->id);
        json_set_str(o, "status", "running");
        json_set_bool(o, "workOnly", work_only);
        (void) call_reply_json(r->call, 200, o);
        json_unref(o);
}

void coroutine_fn rest_events(struct rest *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(32);
        struct str since = call_header(r->call, "Last-Event-ID");

        if (!since.n && call_query(r->call, "since", &b) == 1)
                since = buf_str(&b);
        events_serve(r->c->events, r->call, r->who->account, since);
}
