#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#define LIST_MAX 100
#define TEXT_BUDGET (TOOL_TEXT_MAX - 256)

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
        _cleanup_buf_ struct buf text = BUF_MAX(TOOL_TEXT_MAX);
        struct listing *l = arg;
        char at[RFC3339_LEN];
        struct jw w;

        jw_init(&w, &text);
        jw_obj(&w);
        tool_write_box(&w, l->t->c, row, l->t->who);
        jw_key(&w, "repos");
        jw_raw(&w, str_of(row->repos));
        jw_karr(&w, "recentNotes");
        (void) steps_last(l->t->c->db, row->id, 3, write_note, &w);
        jw_end(&w);
        life_write(&w, l->t->c, row);
        if (row->why)
                jw_kstr(&w, "statusReason", row->why);
        if (row->ended_at)
                jw_kstr(&w, "endedAt", rfc3339(row->ended_at, at));
        /* The result has to stay readable for a model; what did not fit is counted, never silently dropped. */
        if (jw_end_all(&w) < 0 || l->left_out || l->b->len + text.len > TEXT_BUDGET)
                l->left_out++;
        else
                jw_raw(&l->w, buf_str(&text));
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
