#include "control/tool.h"

#include "base/mem.h"

void coroutine_fn tool_sandbox_stop(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        _cleanup_json_ struct json *unsaved = NULL;
        const char *id = json_get_str(t->args, "id", "");
        struct err e = { 0 };
        struct jw w;

        if (box_stop(t->c, t->who, id, &unsaved, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr(&w, "id", id);
        jw_kstr(&w, "status", "deleted");
        jw_key(&w, "unsavedWork");
        jw_json(&w, unsaved);
        tool_answer(t, &w, &b);
}
