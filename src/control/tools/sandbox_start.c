#include "control/scene.h"
#include "control/tool.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

void tool_write_box(struct jw *w, struct control *c, const struct box_row *row, const struct identity *who)
{
        char at[RFC3339_LEN];

        jw_kstr(w, "id", row->id);
        jw_kstr(w, "name", row->name);
        jw_kstr(w, "goal", row->goal);
        jw_kstr(w, "status", row->state);
        jw_kstr(w, "createdAt", rfc3339(row->created_at, at));
        jw_kstr(w, "lastUsedAt", rfc3339(row->used_at, at));
        agent_write(w, c, row, who);
        jw_kstr(w, "size", row->size);
        jw_kstr(w, "image", row->image);
        wires_write(w, c, row);
        scene_write_box(w, c, row);
}

static void waiting_for_room(size_t place, void *arg)
{
        struct tool_call *t = arg;
        _cleanup_free_ char *text = xasprintf("waiting for room: place %zu in the queue", place);

        mcp_progress(t->r, (double) clock_ms(), 0, text);
}

/* A restored box keeps what the call does not say. */
static int coroutine_fn restore(struct tool_call *t, struct box_request *r, char id[33], bool *work_only, struct err *e)
{
        const char *wanted = json_get_str(t->args, "restore", "");

        if (json_has(t->args, "size"))
                return err_set(
                        e, -EINVAL,
                        "`size` cannot be given with `restore`: the box keeps the one it had; nothing was started");
        r->image = json_get_str(t->args, "image", NULL);
        int code = box_restore(t->c, t->who, wanted, r, work_only, e);
        if (code < 0)
                return err_wrap(e, "`restore`");
        (void) snprintf(id, 33, "%s", wanted);
        return 0;
}

void coroutine_fn tool_sandbox_start(struct tool_call *t)
{
        int64_t wait_ms = json_get_int(t->args, "waitForCapacitySec", 0) * 1000;
        struct box_request r = {
                .name = json_get_str(t->args, "name", NULL),
                .goal = json_get_str(t->args, "goal", ""),
                .image = json_get_str(t->args, "image", NULL),
                .size = json_get_str(t->args, "size", "medium"),
                .services = json_get(t->args, "services"),
                .secrets = json_get(t->args, "secrets"),
                .external_base_url = json_get_str(t->args, "externalBaseUrl", NULL),
                .wait_capacity_ms = wait_ms < t->who->wait_ms ? wait_ms : t->who->wait_ms,
                .waiting = waiting_for_room,
                .arg = t,
        };
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        struct box_row row = { 0 };
        struct err e = { 0 };
        struct jw w;
        bool work_only = false;
        char id[33];

        int code =
                json_has(t->args, "restore") ? restore(t, &r, id, &work_only, &e) : box_start(t->c, t->who, &r, id, &e);
        if (code < 0 || boxes_get(t->c->db, t->who->account, id, &row, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        tool_write_box(&w, t->c, &row, t->who);
        jw_kstr(&w, "appUrl", t->c->origin);
        life_write(&w, t->c, &row);
        if (work_only)
                jw_kstr(&w, "note",
                        "The box's image has changed since it was archived: /work is what it was, everything else is "
                        "fresh. Install again what the work needs.");
        tool_answer(t, &w, &b);
        box_row_done(&row);
}
