/*
 * Putting a box away and bringing it back: stop, archive, restore, delete. The driver moves a disk in one step; the row
 * follows. Whoever is killed in between leaves one of the states that control_reconcile settles.
 */
#include "control/box_impl.h"
#include "control/secrets.h"
#include "control/scene_ports.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdlib.h>

static int64_t kept_until(const struct control *c)
{
        return wall_ms() + c->cfg.keep_ms;
}

int coroutine_fn box_put_away(struct control *c, struct box *b, const char *why, struct err *e)
{
        char id[33];

        if (b->ending)
                return err_set(e, -EBUSY, "the box %s is being stopped by another call", b->id);
        memcpy(id, b->id, sizeof id);
        b->ending = true;
        b->refs++;
        box_claim(c, id, "being archived");
        /* Half of it would be a lost box. */
        coro_shield();
        while (b->moving)
                (void) waitq_wait(&b->changed, -1);
        int r = c->driver->ops->archive(c->driver, id, e);
        if (r == 0) {
                r = boxes_end(c->db, id, "archived", why, kept_until(c), e);
                box_forget(c, id);
        }
        if (r < 0) {
                b->ending = false;
                waitq_wake_all(&b->changed);
                control_reconcile_soon(c);
        }
        coro_unshield();
        box_unclaim(c, id);
        box_drop(b);
        return r;
}

/* The row goes first, so that a server that is killed in between finds a box without a row, which it removes. */
int coroutine_fn box_delete(struct control *c, const struct box_row *row, const char *why, struct err *e)
{
        int r = boxes_end(c->db, row->id, "deleted", why, 0, e);

        if (r < 0)
                return r;
        box_claim(c, row->id, "being deleted");
        coro_shield();
        r = c->driver->ops->destroy(c->driver, row->id, e);
        coro_unshield();
        if (r < 0)
                (void) boxes_end(c->db, row->id, row->state, row->why, row->restorable_until, NULL);
        else
                scene_ports_sweep(c->scene_ports);
        box_unclaim(c, row->id);
        return r;
}

/* ---- stop ---- */

static bool runs_by_row(const struct box_row *row)
{
        return cstr_eq(row->state, "running") || cstr_eq(row->state, "frozen");
}

static int coroutine_fn stop_running(struct control *c, struct box *b, const struct box_row *row,
                                     struct box_stopped *ret, struct err *e)
{
        struct err ignored = { 0 };

        if (b->ending)
                return err_set(e, -EBUSY, "the box %s is being stopped by another call", b->id);
        b->refs++;
        b->stopping = true;
        /* One that cannot be thawed is put away all the same: nothing is lost by it. */
        ret->unsaved = box_awake(c, b, &ignored) == 0 ? box_unsaved(c, row) : json_arr();
        int r = coro_cancelled() ? -ECANCELED : box_put_away(c, b, "stopped by sandbox_stop", e);
        b->stopping = false;
        box_drop(b);
        return r;
}

int coroutine_fn box_stop(struct control *c, const struct identity *who, const char *id, struct box_stopped *ret,
                          struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        int r = boxes_get(c->db, who->account, id, &row, e);

        if (r < 0)
                return r;
        const char *claimed = box_claimed(c, id);
        if (claimed)
                return err_set(e, -EBUSY, "the box %s is %s: try again in a moment", id, claimed);
        struct box *b = map_get(c->boxes, str_of(id));
        if (b && b->stopping)
                return err_set(e, -EBUSY, "the box %s is being stopped by another call", id);
        if (!b && (runs_by_row(&row) || cstr_eq(row.state, "starting")))
                return box_explain(c, who->account, id, e);
        if (!b) {
                ret->unsaved = json_arr();
                ret->deleted = true;
                return box_delete(c, &row, "deleted by sandbox_stop", e);
        }
        r = stop_running(c, b, &row, ret, e);
        if (r == 0)
                ret->restorable_until = kept_until(c);
        return r;
}

/* ---- room ---- */

struct longest {
        struct box *b;
};

static int compare_idle(struct str key, void *value, void *arg)
{
        struct longest *l = arg;
        struct box *b = value;

        (void) key;
        if (b->frozen && !b->moving && !b->ending && b->refs == 1 && (!l->b || b->used_at < l->b->used_at))
                l->b = b;
        return 0;
}

bool coroutine_fn box_make_room(struct control *c)
{
        struct longest l = { NULL };
        struct err e = { 0 };

        (void) map_each(c->boxes, compare_idle, &l);
        if (!l.b)
                return false;
        log_info("box %s is archived to make room", l.b->id);
        if (box_put_away(c, l.b, "archived to make room for another box", &e) == 0)
                return true;
        log_warning("%s", err_text(&e));
        return false;
}

/* ---- restore ---- */

static int may_restore(struct control *c, const struct box_row *row, struct err *e)
{
        const char *claimed = box_claimed(c, row->id);
        const struct box *b = map_get(c->boxes, str_of(row->id));

        if (claimed)
                return err_set(e, -EBUSY, "the box %s is %s: try again in a moment", row->id, claimed);
        if (b && (b->ending || b->stopping))
                return err_set(e, -EBUSY, "the box %s is being stopped: try again in a moment", row->id);
        if (b)
                return err_set(e, -EEXIST, "the box %s is not archived, it is %s: use it as it is", row->id,
                               row->state);
        if (runs_by_row(row) || cstr_eq(row->state, "starting"))
                return box_explain(c, row->account, row->id, e);
        if (!row->restorable_until)
                return err_set(e, -ESTALE, "nothing is left of the box %s (%s): start another", row->id,
                               row->why ? row->why : row->state);
        return 0;
}

/* From the archive to a running box with its services and its row; or back into the archive. */
static int coroutine_fn bring_back(struct control *c, struct box_row *row, const struct json *secrets,
                                   const char *image, bool *ret_work_only, struct err *e)
{
        /* A lost one is not in the archive yet, nor one whose restore was broken off. */
        int r = c->driver->ops->archive(c->driver, row->id, e);

        if (r == 0)
                r = c->driver->ops->restore(c->driver, row->id, image, row->id, ret_work_only, e);
        if (r < 0) {
                control_reconcile_soon(c);
                return r;
        }
        r = boxes_restored(c->db, row, e);
        if (r == 0) {
                /* After the row: it says what the names are, and copies of what a box that does not run was given are
                 * swept. */
                r = wires_apply(c, row->id, e);
                if (r == 0 && secrets)
                        r = secrets_give(c, row->account, row->id, secrets, e);
                if (r < 0)
                        (void) boxes_end(c->db, row->id, "archived", row->why, row->restorable_until, NULL);
        }
        if (r < 0) {
                wires_forget(c, row->id);
                box_secrets_end(c, row->id);
                coro_shield();
                if (c->driver->ops->archive(c->driver, row->id, NULL) < 0)
                        control_reconcile_soon(c);
                coro_unshield();
        }
        return r;
}

static void replace(char **p, const char *with)
{
        if (!with)
                return;
        free(*p);
        *p = xstrdup(with);
}

/* What the call says anew; what it does not say stays. wires: the names it gives, or NULL. */
static void update_row(struct box_row *row, const struct identity *who, const struct box_request *q,
                       const struct wires *wires)
{
        _cleanup_free_ char *services = wires ? wires_services_text(wires) : NULL;
        _cleanup_free_ char *wiring = wires ? wires_wiring_text(wires) : NULL;

        replace(&row->name, q->name);
        replace(&row->goal, q->goal);
        replace(&row->image, q->image);
        replace(&row->services, services);
        replace(&row->wiring, wiring);
        replace(&row->agent, who->agent[0] ? who->agent : NULL);
        replace(&row->agent_client, who->client[0] ? who->client : NULL);
}

int coroutine_fn box_restore(struct control *c, const struct identity *who, const char *id,
                             const struct box_request *asked, bool *ret_work_only, struct err *e)
{
        _cleanup_free_ char *goal = NULL, *name = NULL;
        struct box_request known = *asked, *q = &known;
        _cleanup_(box_row_done) struct box_row row = { 0 };
        _cleanup_wires_ struct wires wires = { .count = 0 };
        bool anew = q->services || q->external_base_url;
        struct image_choice image;
        int r = boxes_get(c->db, who->account, id, &row, e);

        if (r == 0)
                r = may_restore(c, &row, e);
        if (r == 0 && anew)
                r = wires_begin(c, who, q->services, q->external_base_url, &wires, e);
        if (r == 0 && q->secrets)
                r = box_hide_secrets(c, who, q, &goal, &name, e);
        if (r == 0 && q->image)
                r = image_choose(c, q->image, &image, e);
        if (r == 0)
                r = may_restore(c, &row, e); /* again: the images had to be asked for */
        if (r == 0)
                r = disk_has_room(c, e);
        if (r < 0)
                return r;
        box_claim(c, id, "being brought back");
        r = box_take_slot(c, q, e);
        if (r == 0) {
                const char *other = q->image && !cstr_eq(q->image, row.image) ? q->image : NULL;

                update_row(&row, who, q, anew ? &wires : NULL);
                r = bring_back(c, &row, q->secrets, other, ret_work_only, e);
                c->starting--;
                if (r == 0)
                        (void) box_new(c, id, row.account, 0);
                else
                        (void) err_wrap(e, "the box %s could not be brought back, and is kept as it was", id);
        }
        box_unclaim(c, id);
        if (r < 0)
                waitq_wake_all(&c->capacity);
        return r;
}
