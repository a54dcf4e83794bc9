#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#define LIST_MAX 100
#define TEXT_BUDGET (TOOL_TEXT_MAX - 2048)

struct listing {
        struct tool_call *t;
        struct jw w;
        struct buf *b;
        int left_out;
};

static int write_note(const struct step *s, void *arg)
{
        struct jw *w = arg;
        char at[RFC3339_LEN];

        if (!s->note)
                return 0;
        jw_obj(w);
        jw_kstr(w, "at", rfc3339(s->started_at, at));
        jw_kstr(w, "note", s->note);
        jw_end(w);
        return 0;
}

static int write_box(const struct box_row *row, void *arg)
{
        struct listing *l = arg;
        char at[RFC3339_LEN];

        /* The result has to stay readable for a model; what did not fit is counted, never silently dropped. */
        if (l->b->len > TEXT_BUDGET - 2048) {
                l->left_out++;
                return 0;
        }
        jw_obj(&l->w);
        tool_write_box(&l->w, l->t->c, row, l->t->who);
        jw_key(&l->w, "repos");
        jw_raw(&l->w, str_of(row->repos));
        jw_karr(&l->w, "recentNotes");
        (void) steps_last(l->t->c->db, row->id, 3, write_note, &l->w);
        jw_end(&l->w);
        if (row->why)
                jw_kstr(&l->w, "statusReason", row->why);
        if (row->ended_at)
                jw_kstr(&l->w, "endedAt", rfc3339(row->ended_at, at));
        jw_end(&l->w);
        return 0;
}

void coroutine_fn tool_sandbox_list(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX * 2);
        struct listing l = { .t = t, .b = &b };

        jw_init(&l.w, &b);
        jw_obj(&l.w);
        jw_karr(&l.w, "boxes");
        (void) boxes_each(t->c->db, t->who->account, json_get_bool(t->args, "all", false), LIST_MAX, write_box, &l);
        jw_end(&l.w);
        if (l.left_out)
                jw_kint(&l.w, "leftOut", l.left_out);
        tool_answer(t, &l.w, &b);
}
