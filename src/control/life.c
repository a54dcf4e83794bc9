/*
 * The life of a box between two uses (docs/life-cycle.md): what is unused is frozen, later archived, at last deleted,
 * and any use brings it back to where it runs.
 */
#include "control/box_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TICK_MOST_MS 30000
#define TICK_LEAST_MS 200
/* A box is at work when it uses more than a hundredth of one processor. */
#define WORK_USEC_PER_MS 10
#define USED_EVERY_MS 60000

/* ---- claims ---- */

void box_claim(struct control *c, const char *id, const char *why)
{
        (void) map_put(c->claims, str_of(id), (void *) (uintptr_t) why);
        box_changed(c, id);
}

void box_unclaim(struct control *c, const char *id)
{
        (void) map_del(c->claims, str_of(id));
        box_changed(c, id);
        waitq_wake_all(&c->settled);
        if (c->reconcile_soon)
                waitq_wake_all(&c->life_wake);
}

const char *box_claimed(struct control *c, const char *id)
{
        return map_get(c->claims, str_of(id));
}

/* ---- use ---- */

int box_explain(struct control *c, const char *account, const char *id, struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        int r = boxes_get(c->db, account, id, &row, e);
        char at[RFC3339_LEN];

        if (r < 0)
                return r;
        const struct box *b = map_get(c->boxes, str_of(id));
        const char *claimed = box_claimed(c, id);
        if (claimed)
                return err_set(e, -ESTALE, "the box %s is %s: try again in a moment", id, claimed);
        if (b && b->ending)
                return err_set(e, -ESTALE, "the box %s is being stopped", id);
        if (cstr_eq(row.state, "running") || cstr_eq(row.state, "frozen") || cstr_eq(row.state, "starting")) {
                if (c->reconciled)
                        control_reconcile_soon(c);
                r = err_set(e, -ESTALE,
                            "the box %s is being checked after a restart of the server: try again in a moment", id);
        } else if (row.restorable_until) {
                r = err_set(e, -ESTALE,
                            "the box %s does not run (%s%s%s): sandbox_start {restore: \"%s\"} brings it back with "
                            "/work, until %s",
                            id, row.state, row.why ? ": " : "", row.why ? row.why : "", id,
                            rfc3339(row.restorable_until, at));
        } else {
                r = err_set(e, -ESTALE, "the box %s does not run (%s%s%s): start another with sandbox_start", id,
                            row.state, row.why ? ": " : "", row.why ? row.why : "");
        }
        return r;
}

static int coroutine_fn thaw(struct control *c, struct box *b, struct err *e)
{
        /* Others wait for it: it ends, whatever becomes of this caller. */
        coro_shield();
        b->moving = true;
        int r = c->driver->ops->thaw(c->driver, b->id, e);
        b->moving = false;
        box_changed(c, b->id);
        if (r == 0 && !b->ending) {
                b->frozen = false;
                if (boxes_set_state(c->db, b->id, "running", NULL, NULL) < 0)
                        log_warning("box %s runs, which could not be recorded", b->id);
        }
        waitq_wake_all(&b->changed);
        coro_unshield();
        if (r < 0)
                (void) err_wrap(e, "the box %s is frozen and cannot be thawed", b->id);
        return r < 0 ? -ESTALE : 0;
}

int coroutine_fn box_awake(struct control *c, struct box *b, struct err *e)
{
        int r = 0;

        while (r == 0 && !b->ending && (b->moving || b->frozen))
                r = b->moving ? waitq_wait(&b->changed, -1) : thaw(c, b, e);
        if (r < 0)
                return r;
        return b->ending ? box_explain(c, NULL, b->id, e) : 0;
}

int coroutine_fn box_acquire(struct control *c, const struct identity *who, const char *id, struct box **ret,
                             struct err *e)
{
        struct box *b = map_get(c->boxes, str_of(id));

        if (!b || !cstr_eq(b->account, who->account) || b->ending)
                return box_explain(c, who->account, id, e);
        b->refs++;
        int r = box_awake(c, b, e);
        if (r < 0) {
                box_drop(b);
                return r;
        }
        box_touch(b);
        (void) boxes_touch(c->db, b->id, who->agent[0] ? who->agent : NULL, who->client[0] ? who->client : NULL);
        *ret = b;
        return 0;
}

/* Brings an archived box back for somebody who did not ask for it by name (a scene). */
static int coroutine_fn revive(struct control *c, const char *account, const char *id, struct err *e)
{
        _cleanup_(box_row_done) struct box_row row = { 0 };
        struct box_request q = { .wait_capacity_ms = 0 };
        struct identity who = { 0 };
        bool work_only = false;
        int r = boxes_get(c->db, account, id, &row, e);

        if (r < 0)
                return r;
        if (!row.restorable_until)
                return box_explain(c, account, id, e);
        (void) snprintf(who.account, sizeof who.account, "%s", row.account);
        return box_restore(c, &who, id, &q, &work_only, e);
}

int coroutine_fn box_wake(struct control *c, const char *account, const char *id, struct box **ret, struct err *e)
{
        for (;;) {
                struct box *b = map_get(c->boxes, str_of(id));
                int r = 0;

                if (b && account && !cstr_eq(b->account, account))
                        return box_explain(c, account, id, e); /* unknown */
                if (b && !b->ending) {
                        b->refs++;
                        r = box_awake(c, b, e);
                        if (r == 0) {
                                box_touch(b);
                                (void) boxes_used(c->db, id, wall_ms());
                                *ret = b;
                                return 0;
                        }
                        bool ending = b->ending;
                        box_drop(b);
                        if (!ending)
                                return r;
                }
                if (box_claimed(c, id))
                        r = waitq_wait(&c->settled, -1);
                else
                        r = revive(c, account, id, e);
                if (r == -EBUSY && box_claimed(c, id))
                        continue; /* another one is bringing it back */
                if (r < 0)
                        return r;
        }
}

struct box *box_hold(struct control *c, const char *id)
{
        struct box *b = map_get(c->boxes, str_of(id));

        if (!b || b->ending || b->moving || b->frozen)
                return NULL;
        b->refs++;
        return b;
}

/* ---- idle ---- */

int coroutine_fn box_freeze(struct control *c, struct box *b, struct err *e)
{
        if (b->ending || b->moving || b->frozen || b->refs > 1)
                return err_set(e, -EBUSY, "the box %s is in use", b->id);
        b->refs++;
        b->moving = true;
        int r = c->driver->ops->freeze(c->driver, b->id, e);
        b->moving = false;
        box_changed(c, b->id);
        if (r == 0 && !b->ending) { /* else it ended by itself, or is being put away */
                b->frozen = true;
                (void) boxes_set_state(c->db, b->id, "frozen", FROZEN_WHY, NULL);
                waitq_wake_all(&c->capacity); /* it may make room now */
        }
        waitq_wake_all(&b->changed);
        box_drop(b);
        return r;
}

/* False while something in it works: then that was use. */
static bool coroutine_fn is_quiet(struct control *c, struct box *b)
{
        struct driver_stats st;
        int64_t now = loop_now();

        if (c->driver->ops->stats(c->driver, b->id, &st, NULL) < 0)
                return false;
        int64_t spent = st.cpu_usec - b->cpu_seen, since = b->cpu_at;
        b->cpu_seen = st.cpu_usec;
        b->cpu_at = now;
        if (since == 0 || now <= since)
                return false; /* the first look: the next one compares */
        if (spent <= (now - since) * WORK_USEC_PER_MS)
                return true;
        b->used_at = now;
        b->used_wall = wall_ms();
        return false;
}

static void coroutine_fn look_at(struct control *c, struct box *b)
{
        int64_t idle = loop_now() - b->used_at, freeze = c->cfg.freeze_ms, archive = c->cfg.archive_ms;
        struct err e = { 0 };

        if (b->ending || b->moving)
                return;
        if (b->refs > 1) {
                box_touch(b);
                if (loop_now() - b->noted_at >= USED_EVERY_MS) {
                        b->noted_at = loop_now();
                        (void) boxes_used(c->db, b->id, wall_ms());
                }
                return;
        }
        bool over = archive > 0 && idle >= archive;
        if (!b->frozen && (over || (freeze > 0 && idle >= freeze))) {
                b->refs++;
                bool quiet = is_quiet(c, b);
                box_drop(b);
                if (!quiet || b->refs > 1)
                        return;
                int r = over ? 0 : box_freeze(c, b, &e);
                if (r == -EOPNOTSUPP)
                        c->cfg.freeze_ms = 0; /* never on this machine */
                if (r < 0 && r != -EBUSY)
                        log_warning("box %s cannot be frozen: %s", b->id, err_text(&e));
        }
        if (over && b->refs == 1 && box_put_away(c, b, "it was not used for a while", &e) < 0)
                log_warning("box %s cannot be archived: %s", b->id, err_text(&e));
}

struct ids {
        char (*id)[33];
        size_t n;
};

static int note_id(struct str key, void *value, void *arg)
{
        struct ids *l = arg;

        (void) value;
        l->id = xrealloc(l->id, (l->n + 1) * sizeof *l->id);
        (void) snprintf(l->id[l->n++], sizeof *l->id, "%.*s", (int) key.n, key.p);
        return 0;
}

static void coroutine_fn look_at_all(struct control *c)
{
        struct ids l = { 0 };

        (void) map_each(c->boxes, note_id, &l);
        for (size_t i = 0; i < l.n && coro_check() == 0; i++) {
                struct box *b = map_get(c->boxes, str_of(l.id[i]));

                if (!b)
                        continue;
                look_at(c, b);
        }
        free(l.id);
}

static int note_expired(const char *id, void *arg)
{
        return note_id(str_of(id), NULL, arg);
}

static void coroutine_fn delete_expired(struct control *c)
{
        struct ids l = { 0 };

        (void) boxes_each_expired(c->db, wall_ms(), note_expired, &l);
        for (size_t i = 0; i < l.n && coro_check() == 0; i++) {
                _cleanup_(box_row_done) struct box_row row = { 0 };
                struct err e = { 0 };

                if (box_claimed(c, l.id[i]) || boxes_get(c->db, NULL, l.id[i], &row, NULL) < 0 ||
                    !row.restorable_until || row.restorable_until > wall_ms())
                        continue;
                log_info("box %s was kept for as long as promised and is deleted", row.id);
                if (box_delete(c, &row, "its time in the archive is over", &e) < 0)
                        log_warning("box %s cannot be deleted: %s", row.id, err_text(&e));
        }
        free(l.id);
}

static int64_t tick_ms(const struct control *c)
{
        int64_t least = TICK_MOST_MS;

        if (c->cfg.freeze_ms > 0 && c->cfg.freeze_ms / 4 < least)
                least = c->cfg.freeze_ms / 4;
        if (c->cfg.archive_ms > 0 && c->cfg.archive_ms / 4 < least)
                least = c->cfg.archive_ms / 4;
        if (c->cfg.keep_ms / 4 < least)
                least = c->cfg.keep_ms / 4;
        return least < TICK_LEAST_MS ? TICK_LEAST_MS : least;
}

static void coroutine_fn life_main(void *arg)
{
        struct control *c = arg;

        while (waitq_wait(&c->life_wake, tick_ms(c)) != -ECANCELED && !c->stopping) {
                if (c->reconcile_soon)
                        control_reconcile(c);
                if (!c->reconciled)
                        continue;
                look_at_all(c);
                delete_expired(c);
        }
        c->life = NULL;
        waitq_wake_all(&c->settled);
}

void life_start(struct control *c)
{
        c->life = coro_start(life_main, c, CORO_STACK_DEFAULT, "life of boxes");
}

void coroutine_fn life_stop(struct control *c)
{
        if (c->life)
                coro_cancel(c->life);
        coro_shield();
        while (c->life)
                (void) waitq_wait(&c->settled, -1);
        coro_unshield();
}

void life_write(struct jw *w, const struct control *c, const struct box_row *row)
{
        bool live = cstr_eq(row->state, "running") || cstr_eq(row->state, "frozen");
        const struct box *b = map_get(c->boxes, str_of(row->id));
        char at[RFC3339_LEN];

        if (live && c->cfg.archive_ms > 0) {
                int64_t used = !b ? row->used_at : b->refs > 1 ? wall_ms() : b->used_wall;

                jw_kstr(w, "stopsAt", rfc3339(used + c->cfg.archive_ms, at));
        }
        if (row->restorable_until)
                jw_kstr(w, "restorableUntil", rfc3339(row->restorable_until, at));
}
