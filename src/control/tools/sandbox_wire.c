#include "control/tool.h"
#include "control/wires.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

static int refuse_forms(const struct json *args, struct err *e)
{
        bool service = json_has(args, "service"), paths = json_has(args, "scenePaths"), asked = false;
        static const char *const about[] = { "mode", "port", "targetPort", "fromBox", "web" };

        for (size_t i = 0; i < ARRAY_LEN(about); i++) {
                if (json_has(args, about[i]) && !service)
                        return err_set(e, -EINVAL, "`service` is required: `%s` is about a service of the box",
                                       about[i]);
                asked |= json_has(args, about[i]);
        }
        if (json_has(args, "version") || json_has(args, "env"))
                return err_set(e, -EINVAL,
                               "`%s` is not available yet: this server runs no published images; start the service in "
                               "the box and use mode box",
                               json_has(args, "version") ? "version" : "env");
        if (service && paths)
                return err_set(e, -EINVAL, "`scenePaths` is about the box as a whole: give it without `service`");
        if (!paths && !asked)
                return err_set(e, -EINVAL,
                               "nothing to change: give `service` with `mode`, with `port` (and `targetPort` or "
                               "`fromBox`) or with `web`, or `scenePaths` alone");
        return 0;
}

/* The table is written down as it is said. */
static int refuse_secrets(struct tool_call *t, struct err *e)
{
        _cleanup_free_ char *text = t->mask ? json_text(t->args) : NULL;

        return text && mask_hits(t->mask, str_of(text))
                       ? err_set(e, -EINVAL, "no argument may hold the value of a secret of the box")
                       : 0;
}

static int change_service(struct tool_call *t, const char *box, struct wires *all, struct err *e)
{
        struct wire_change q = { .service = json_get_str(t->args, "service", ""),
                                 .port = json_get_int(t->args, "port", 0),
                                 .target_port = json_get_int(t->args, "targetPort", 0),
                                 .mode = json_get_str(t->args, "mode", NULL),
                                 .from_box = json_get_str(t->args, "fromBox", NULL),
                                 .has_web = json_has(t->args, "web"),
                                 .web = json_get_bool(t->args, "web", false) };
        int r = wires_change(all, &q, e);

        return r == 0 && q.from_box ? wires_check_link(t->c, t->who, box, q.from_box, e) : r;
}

/* From the row to the row without suspending: two calls at a time change the one what the other left. */
static int change(struct tool_call *t, const char *box, struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_wires_ struct wires all = { .count = 0 };
        int r = boxes_get(t->c->db, t->who->account, box, &row, e);

        if (r < 0)
                return r;
        wires_read(&row, &all);
        if (json_has(t->args, "scenePaths"))
                r = wires_set_scene_paths(&all, json_get(t->args, "scenePaths"), e);
        else
                r = change_service(t, box, &all, e);
        if (r < 0)
                return err_wrap(e, "nothing was changed");
        _cleanup_free_ char *services = wires_services_text(&all), *wiring = wires_wiring_text(&all);
        return boxes_set_wiring(t->c->db, box, services, wiring, e);
}

void coroutine_fn tool_sandbox_wire(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_box_ struct box *box = NULL;
        const char *id = json_get_str(t->args, "id", "");
        struct err e = { 0 };
        struct jw w;
        int r = refuse_forms(t->args, &e);

        if (r == 0)
                r = refuse_secrets(t, &e);
        if (r == 0)
                r = box_acquire(t->c, t->who, id, &box, &e);
        if (r == 0)
                r = change(t, id, &e);
        if (r == 0) {
                r = wires_apply(t->c, id, &e);
                if (r < 0)
                        (void) err_wrap(&e, "the table is changed, but the box was not told: call again");
        }
        if (r == 0)
                r = boxes_get(t->c->db, t->who->account, id, &row, &e);
        if (r < 0) {
                tool_error(t, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "id", id);
        wires_write(&w, t->c, &row);
        tool_answer(t, &w, &b);
}
