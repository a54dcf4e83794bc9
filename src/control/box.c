#include "control/box_impl.h"
#include "control/guest_client.h"
#include "control/pool.h"
#include "control/secrets.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB ((int64_t) 1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const struct {
        const char *name;
        struct driver_size size;
} sizes[] = {
        { "small", { .cpus = 1, .memory_bytes = 2 * GIB, .pids = 512, .disk_bytes = 5 * GIB } },
        { "medium", { .cpus = 2, .memory_bytes = 4 * GIB, .pids = 2048, .disk_bytes = 10 * GIB } },
        { "large", { .cpus = 4, .memory_bytes = 8 * GIB, .pids = 4096, .disk_bytes = 20 * GIB } },
};

int size_lookup(const char *name, struct driver_size *ret)
{
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                if (cstr_eq(sizes[i].name, name)) {
                        *ret = sizes[i].size;
                        return 0;
                }
        return -ENOENT;
}

/* ---- references ---- */

struct box *box_new(struct control *c, const char *id, const char *account, int64_t oom_kills)
{
        struct box *b = xcalloc(1, sizeof *b);

        (void) snprintf(b->id, sizeof b->id, "%s", id);
        (void) snprintf(b->account, sizeof b->account, "%s", account);
        b->refs = 1;
        b->used_at = loop_now();
        b->used_wall = wall_ms();
        b->oom_kills = oom_kills;
        waitq_init(&b->changed);
        (void) map_put(c->boxes, str_of(b->id), b);
        return b;
}

void box_drop(struct box *b)
{
        if (!b || --b->refs > 0)
                return;
        free(b->running_note);
        mask_unref(b->mask);
        free(b);
}

void box_touch(struct box *b)
{
        b->used_at = loop_now();
        b->used_wall = wall_ms();
        b->cpu_at = 0;
}

void box_release(struct box *b)
{
        if (b)
                box_touch(b);
        box_drop(b);
}

void box_releasep(struct box **b)
{
        box_release(*b);
}

void box_forget(struct control *c, const char *id)
{
        struct box *b;

        box_secrets_end(c, id);
        b = map_del(c->boxes, str_of(id));
        if (!b)
                return;
        b->ending = true;
        waitq_wake_all(&b->changed);
        wires_forget(c, id);
        box_drop(b);
        waitq_wake_all(&c->capacity);
}

size_t control_running(const struct control *c)
{
        return map_len(c->boxes) + c->starting;
}

int64_t control_boxes_max(const struct control *c)
{
        if (c->cfg.boxes_max > 0)
                return c->cfg.boxes_max;
        /* Idle boxes cost well under 2 MiB; what bounds their number is what they are used for. An eighth of a GiB each
         * is what a light job takes, and the cgroup limits keep a heavy one from hurting the others. */
        int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        int64_t fit = pages > 0 && page > 0 ? pages * page / (128 * MIB) : 8;
        return fit < 4 ? 4 : fit > 1000 ? 1000 : fit;
}

/* ---- starting ---- */

struct place {
        struct list node;
};

static size_t place_of(const struct control *c, const struct place *p)
{
        size_t n = 1;

        list_for_each (it, &c->queue) {
                if (it == &p->node)
                        return n;
                n++;
        }
        return n;
}

static bool has_room(const struct control *c)
{
        return (int64_t) control_running(c) < control_boxes_max(c);
}

static int no_room(const struct control *c, struct err *e)
{
        return err_set(
                e, -EAGAIN,
                "no room for another box: %zu run and %lld fit; sandbox_stop on one that is no longer needed makes"
                " room (sandbox_list shows them), or pass waitForCapacitySec to queue; nothing was started",
                control_running(c), (long long) control_boxes_max(c));
}

static int waited_in_vain(const struct control *c, int64_t waited_ms, size_t place, struct err *e)
{
        return err_set(e, -EAGAIN,
                       "no room for another box after %lld s in the queue, at place %zu: %zu run and %lld fit. The "
                       "place is given up, "
                       "since the caller can wait no longer, and nothing was started: call again to queue anew, or "
                       "make room with "
                       "sandbox_stop (sandbox_list shows the boxes)",
                       (long long) waited_ms / 1000, place, control_running(c), (long long) control_boxes_max(c));
}

int coroutine_fn box_take_slot(struct control *c, const struct box_request *r, struct err *e)
{
        struct place me = { { NULL, NULL } };
        int64_t until = loop_now() + r->wait_capacity_ms;
        size_t told = 0;
        int ret = 0;

        list_append(&c->queue, &me.node);
        while (!(c->queue.next == &me.node && has_room(c))) {
                size_t place = place_of(c, &me);
                int64_t left = until - loop_now();

                if (c->queue.next == &me.node && box_make_room(c))
                        continue;
                if (c->stopping)
                        ret = err_set(e, -ECANCELED, "the server is stopping; nothing was started");
                else if (r->wait_capacity_ms <= 0)
                        ret = no_room(c, e);
                else if (left <= 0)
                        ret = waited_in_vain(c, r->wait_capacity_ms, place, e);
                if (ret < 0)
                        break;
                if (place != told && r->waiting)
                        r->waiting(told = place, r->arg);
                int w = waitq_wait(&c->capacity, left);
                if (w == -ECANCELED) {
                        ret = w;
                        break;
                }
        }
        list_remove(&me.node);
        if (ret == 0) {
                c->starting++;
                pool_squeeze(c->pool);
        }
        /* Whoever is first now may have room too. */
        waitq_wake_all(&c->capacity);
        return ret;
}

static int coroutine_fn create_and_record(struct control *c, const struct identity *who, const struct box_request *r,
                                          const struct wires *wires, const struct driver_size *size, bool warm,
                                          const char *id, struct err *e)
{
        _cleanup_free_ char *services = wires_services_text(wires), *wiring = wires_wiring_text(wires);
        int64_t now = wall_ms();
        int ret;

        struct box_row row = {
                .id = (char *) (uintptr_t) id,
                .account = (char *) who->account,
                .name = (char *) (r->name ? r->name : id),
                .goal = (char *) r->goal,
                .image = (char *) r->image,
                .size = (char *) r->size,
                .state = (char *) "starting",
                .agent = who->agent[0] ? (char *) who->agent : NULL,
                .agent_client = who->client[0] ? (char *) who->client : NULL,
                .services = services,
                .wiring = wiring,
                .repos = (char *) "[]",
                .created_at = now,
                .used_at = now,
        };
        box_claim(c, id, "still starting");
        ret = boxes_insert(c->db, &row, e);
        if (ret == 0 && !warm)
                ret = c->driver->ops->create(c->driver, id, r->image, id, size, e);
        if (ret == 0 && wires->count) /* names resolve from the first moment */
                ret = wires_apply(c, id, e);
        if (ret == 0 && r->secrets)
                ret = secrets_give(c, who->account, id, r->secrets, e);
        if (ret == 0)
                ret = boxes_set_state(c->db, id, "running", NULL, e);
        if (ret < 0) {
                /* Nobody was told of it: it must leave no trace, also when the caller was cancelled meanwhile. */
                coro_shield();
                (void) c->driver->ops->destroy(c->driver, id, NULL);
                coro_unshield();
                wires_forget(c, id);
                (void) boxes_delete(c->db, id, NULL);
        }
        return ret;
}

/* The request as it is written down: a value that the box is about to hold is in no text about it. */
int box_hide_secrets(struct control *c, const struct identity *who, struct box_request *r, char **goal, char **name,
                     struct err *e)
{
        _cleanup_secrets_ struct secret_values values = { 0 };
        _cleanup_mask_ struct mask *mask = NULL;
        _cleanup_free_ char *services = r->services ? json_text(r->services) : NULL;
        int ret = secrets_open(c, who->account, r->secrets, &values, e);

        if (ret == 0)
                ret = secret_values_mask(&values, &mask, e);
        if (ret == 0 && mask_hits(mask, str_of(services)))
                ret = err_set(e, -EINVAL, "`services` must not hold the value of a secret");
        if (ret == 0 && r->external_base_url && mask_hits(mask, str_of(r->external_base_url)))
                ret = err_set(e, -EINVAL, "`externalBaseUrl` must not hold the value of a secret");
        if (ret < 0)
                return err_wrap(e, "nothing was started");
        r->goal = *goal = r->goal ? mask_cstr(mask, r->goal) : NULL;
        r->name = *name = r->name ? mask_cstr(mask, r->name) : NULL;
        return 0;
}

int coroutine_fn box_start(struct control *c, const struct identity *who, const struct box_request *asked, char id[33],
                           struct err *e)
{
        _cleanup_wires_ struct wires wires = { .count = 0 };
        _cleanup_free_ char *goal = NULL, *name = NULL;
        struct box_request known = *asked, *r = &known;
        struct image_choice image = { 0 };
        struct driver_size size;
        bool warm;
        int ret;

        if (size_lookup(r->size, &size) < 0)
                return err_set(e, -EINVAL, "`size` must be small, medium or large, got \"%.40s\"", r->size);
        ret = wires_begin(c, who, r->services, r->external_base_url, &wires, e);
        if (ret == 0 && r->secrets)
                ret = box_hide_secrets(c, who, r, &goal, &name, e);
        if (ret == 0)
                ret = disk_has_room(c, e);
        if (ret == 0)
                ret = image_choose(c, r->image, &image, e);
        known.image = image.name;
        if (ret == 0)
                ret = box_take_slot(c, r, e);
        if (ret < 0)
                return ret;
        warm = pool_take(c->pool, &image, r->size, id);
        if (!warm)
                random_id(id, BOX_ID_LEN);
        ret = create_and_record(c, who, &known, &wires, &size, warm, id, e);
        box_unclaim(c, id);
        c->starting--;
        if (ret == 0) {
                c->starts++;
                (void) box_new(c, id, who->account, 0);
        } else {
                c->start_failures++;
                (void) err_wrap(e, "the box could not be started, and nothing is left of it");
                waitq_wake_all(&c->capacity);
        }
        return ret;
}
