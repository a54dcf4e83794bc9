#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"

void coroutine_fn tool_sandbox_stop(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        struct box_stopped s = { 0 };
        char at[RFC3339_LEN];
        const char *id = json_get_str(t->args, "id", "");
        struct err e = { 0 };
        struct jw w;

        if (box_stop(t->c, t->who, id, &s, &e) < 0) {
                json_unref(s.unsaved);
                tool_error(t, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr(&w, "id", id);
        jw_kstr(&w, "status", s.deleted ? "deleted" : "archived");
        if (!s.deleted)
                jw_kstr(&w, "restorableUntil", rfc3339(s.restorable_until, at));
        jw_key(&w, "unsavedWork");
        jw_json(&w, s.unsaved);
        json_unref(s.unsaved);
        tool_answer(t, &w, &b);
}
