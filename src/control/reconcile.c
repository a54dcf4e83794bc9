/* After a restart of the server or of the driver's engine, and after something that was broken off: the store and the
 * driver are compared, and each difference is settled (the table is in docs/life-cycle.md). */
#include "control/box_impl.h"
#include "control/pool.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <stdio.h>
#include <stdlib.h>

enum found { FOUND_NOTHING, FOUND_RUNNING, FOUND_FROZEN, FOUND_DEAD, FOUND_ARCHIVED };

struct seen {
        struct control *c;
        struct map *states; /* id -> a name below */
        char (*again)[33];  /* to be put into the archive again */
        size_t again_n;
};

static const char *const names[] = {
        [FOUND_RUNNING] = "running", [FOUND_FROZEN] = "frozen", [FOUND_DEAD] = "dead", [FOUND_ARCHIVED] = "archived"
};

static int note_driver_box(const char *box, const char *state, void *arg)
{
        struct seen *s = arg;
        size_t known = FOUND_DEAD;

        for (size_t i = FOUND_RUNNING; i < ARRAY_LEN(names); i++)
                if (cstr_eq(state, names[i]))
                        known = i;
        (void) map_put(s->states, str_of(box), (void *) (uintptr_t) names[known]);
        return 0;
}

static enum found found_of(const char *state)
{
        for (size_t i = FOUND_RUNNING; i < ARRAY_LEN(names); i++)
                if (state == names[i])
                        return (enum found) i;
        return FOUND_NOTHING;
}

static void adopt(struct control *c, const struct box_row *row, bool frozen)
{
        struct box *b = map_get(c->boxes, str_of(row->id));

        if (!b) {
                int64_t idle = wall_ms() - row->used_at;

                b = box_new(c, row->id, row->account, row->oom_kills);
                b->used_at = loop_now() - (idle > 0 ? idle : 0);
                b->used_wall = row->used_at;
        } else if (b->moving) {
                return; /* its state is being changed, and told, right now */
        }
        b->frozen = frozen;
        if (!cstr_eq(row->state, frozen ? "frozen" : "running"))
                (void) boxes_set_state(c->db, row->id, frozen ? "frozen" : "running", frozen ? FROZEN_WHY : NULL, NULL);
}

static int64_t until_of(const struct control *c, const struct box_row *row)
{
        return row->restorable_until ? row->restorable_until : wall_ms() + c->cfg.keep_ms;
}

/* One that the store has as running. */
static void settle_live(struct seen *s, const struct box_row *row, enum found found)
{
        struct control *c = s->c;

        if (found == FOUND_RUNNING || found == FOUND_FROZEN) {
                adopt(c, row, found == FOUND_FROZEN);
                return;
        }
        if (found == FOUND_ARCHIVED) {
                /* Its archiving was begun, and the last step of it was not recorded. */
                (void) boxes_end(c->db, row->id, "archived", "stopped", until_of(c, row), NULL);
        } else {
                log_warning("box %s is gone: its processes ended while the server was away", row->id);
                (void) boxes_end(c->db, row->id, "lost",
                                 found == FOUND_DEAD ? "its processes ended; its files are kept"
                                                     : "it no longer exists on this machine",
                                 found == FOUND_DEAD ? until_of(c, row) : 0, NULL);
        }
        box_forget(c, row->id);
}

/* One that the store has as put away: a restore that nobody was told of is undone. */
static void settle_kept(struct seen *s, const struct box_row *row, enum found found)
{
        bool lost = cstr_eq(row->state, "lost");

        if (found == FOUND_ARCHIVED || (lost && found == FOUND_DEAD)) {
                if (!row->restorable_until)
                        (void) boxes_end(s->c->db, row->id, row->state, row->why, until_of(s->c, row), NULL);
        } else if (found == FOUND_NOTHING) {
                if (row->restorable_until || !lost)
                        (void) boxes_end(s->c->db, row->id, "lost", "its files no longer exist on this machine", 0,
                                         NULL);
        } else {
                s->again = xrealloc(s->again, (s->again_n + 1) * sizeof *s->again);
                (void) snprintf(s->again[s->again_n++], sizeof *s->again, "%s", row->id);
        }
}

static int settle_row(const struct box_row *row, void *arg)
{
        struct seen *s = arg;
        const char *state = map_del(s->states, str_of(row->id));
        enum found found = found_of(state);

        if (box_claimed(s->c, row->id) || map_get(s->c->changed_meanwhile, str_of(row->id)))
                return 0; /* a call is at it in this process, or was, and left it as it should be */
        if (cstr_eq(row->state, "starting")) {
                /* Its start call never answered, so nobody knows it. */
                if (state)
                        (void) map_put(s->states, str_of(row->id), (void *) (uintptr_t) state);
                (void) boxes_delete(s->c->db, row->id, NULL);
        } else if (cstr_eq(row->state, "running") || cstr_eq(row->state, "frozen")) {
                settle_live(s, row, found);
        } else {
                settle_kept(s, row, found);
        }
        return 0;
}

struct orphan_list {
        struct control *c;
        char (*ids)[33];
        size_t n;
};

static int note_orphan(struct str key, void *value, void *arg)
{
        struct orphan_list *l = arg;

        (void) value;
        if (map_get(l->c->claims, key) || map_get(l->c->changed_meanwhile, key))
                return 0; /* being created right now: not ours to judge */
        l->ids = xrealloc(l->ids, (l->n + 1) * sizeof *l->ids);
        (void) snprintf(l->ids[l->n++], sizeof *l->ids, "%.*s", (int) key.n, key.p);
        return 0;
}

static void coroutine_fn remove_orphans(struct control *c, struct map *states)
{
        struct orphan_list orphans = { .c = c };

        (void) map_each(states, note_orphan, &orphans);
        for (size_t i = 0; i < orphans.n; i++) {
                struct box_row row = { 0 };

                if (boxes_get(c->db, NULL, orphans.ids[i], &row, NULL) == 0) {
                        box_row_done(&row); /* it got a row meanwhile */
                        continue;
                }
                log_info("removing box %s, which no call was ever told of", orphans.ids[i]);
                (void) c->driver->ops->destroy(c->driver, orphans.ids[i], NULL);
        }
        free(orphans.ids);
}

static void coroutine_fn put_back(struct control *c, const struct seen *s)
{
        for (size_t i = 0; i < s->again_n; i++) {
                const char *id = s->again[i];
                struct err e = { 0 };

                if (box_claimed(c, id) || map_get(c->boxes, str_of(id)))
                        continue;
                log_info("box %s goes back to the archive: nobody was told that it runs", id);
                box_claim(c, id, "being put back into the archive");
                if (c->driver->ops->archive(c->driver, id, &e) < 0)
                        log_error("box %s: %s", id, err_text(&e));
                box_unclaim(c, id);
        }
}

static void coroutine_fn compare(struct control *c)
{
        struct seen s = { .c = c, .states = map_new() };
        struct err e = { 0 };
        int r = c->driver->ops->list(c->driver, note_driver_box, &s, &e);

        if (r < 0) {
                log_error("the boxes on this machine cannot be listed: %s", err_text(&e));
                map_free(s.states);
                c->reconcile_soon = true;
                return;
        }
        (void) boxes_each(c->db, NULL, true, -1, settle_row, &s);
        pool_settle(c->pool, s.states);
        /* What is left has no row, or a row whose start was never answered. */
        remove_orphans(c, s.states);
        put_back(c, &s);
        free(s.again);
        map_free(s.states);
        c->reconciled = true;
        pool_begin(c->pool);
        waitq_wake_all(&c->capacity);
        waitq_wake_all(&c->settled);
        wires_apply_all(c);
}

void coroutine_fn control_reconcile(struct control *c)
{
        if (c->reconciling) {
                c->reconcile_again = true;
                return;
        }
        c->reconciling = true;
        do {
                c->reconcile_again = c->reconcile_soon = false;
                c->changed_meanwhile = map_new();
                compare(c);
                map_free(steal_ptr(c->changed_meanwhile));
        } while (c->reconcile_again && coro_check() == 0);
        c->reconciling = false;
}

void box_changed(struct control *c, const char *id)
{
        if (c->changed_meanwhile)
                (void) map_put(c->changed_meanwhile, str_of(id), c);
}

void control_reconcile_soon(struct control *c)
{
        c->reconcile_soon = true;
        waitq_wake_all(&c->life_wake);
}

void control_box_exited(const char *box, const char *how, void *arg)
{
        struct control *c = arg;
        struct box *b = map_get(c->boxes, str_of(box));

        if (pool_box_ended(c->pool, box))
                return;
        if (!b && box_claimed(c, box)) /* it is started right now, and nobody watches it yet */
                c->reconcile_soon = true;
        if (!b || b->ending)
                return;
        log_warning("box %s ended by itself: %s", box, how);
        box_changed(c, box);
        (void) boxes_end(c->db, box, "lost", how, wall_ms() + c->cfg.keep_ms, NULL);
        box_forget(c, box);
}
