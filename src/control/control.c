#include "control/control.h"
#include "control/events.h"
#include "control/pool.h"
#include "control/scene_ports.h"
#include "control/secrets.h"
#include "control/wires.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <stdlib.h>

#define JANITOR_MS 60000
#define DAY_MS (24 * 3600 * (int64_t) 1000)
#define SESSIONS_KEPT 100000
#define SHOTS_MAX 8

static void coroutine_fn reconcile_main(void *arg)
{
        control_reconcile(arg);
}

static void driver_ready(void *arg)
{
        (void) coro_start(reconcile_main, arg, CORO_STACK_DEFAULT, "reconcile");
}

static void janitor(void *arg)
{
        struct control *c = arg;
        int64_t now = wall_ms();

        if (objects_expire(c->objects, now) > 0)
                log_debug("objects past their time were removed");
        (void) sessions_trim(c->db, now - 30 * DAY_MS, SESSIONS_KEPT);
        (void) agents_trim(c->db, now - 30 * DAY_MS);
        box_secrets_janitor(c);
        scene_ports_sweep(c->scene_ports);
}

int control_new(const struct control_config *cfg, struct db *db, struct objects *objects, struct driver *driver,
                struct control **ret, struct err *e)
{
        struct control *c = xcalloc(1, sizeof *c);

        (void) e;
        c->cfg = *cfg;
        c->db = db;
        c->objects = objects;
        c->driver = driver;
        c->origin = xstrdup(cfg->origin);
        c->boxes = map_new();
        c->claims = map_new();
        c->pool = pool_new(c, cfg->warm);
        if (cfg->scene_from)
                c->scene_ports = scene_ports_new(db, cfg->scene_from, cfg->scene_to);
        wires_open(c);
        c->events = events_new(c);
        list_init(&c->queue);
        waitq_init(&c->capacity);
        sem_init_n(&c->shots, SHOTS_MAX);
        waitq_init(&c->settled);
        waitq_init(&c->life_wake);
        if (c->cfg.keep_ms <= 0)
                c->cfg.keep_ms = 30 * DAY_MS;
        (void) steps_close_open(db, "the server was restarted while this ran; sandbox_procs may still have its result");
        driver->on_exit = control_box_exited;
        driver->on_ready = driver_ready;
        driver->on_images = images_changed;
        driver->arg = c;
        c->janitor = timer_start(JANITOR_MS, JANITOR_MS, janitor, c);
        /* Boxes stop at the reserve, what they say at half of it; the rest is for records. */
        objects_keep_free(objects, disk_reserve(c) / 2);
        life_start(c);
        *ret = c;
        return 0;
}

static int release_one(struct str key, void *value, void *arg)
{
        (void) key;
        (void) arg;
        box_release(value);
        return 0;
}

void control_free(struct control *c)
{
        if (!c)
                return;
        timer_stop(&c->janitor);
        c->driver->on_exit = NULL;
        c->driver->on_ready = NULL;
        c->driver->on_images = NULL;
        pool_free(c->pool);
        wires_close(c);
        events_free(c->events);
        scene_ports_free(c->scene_ports);
        (void) map_each(c->boxes, release_one, NULL);
        map_free(c->boxes);
        map_free(c->claims);
        if (c->changed_meanwhile)
                map_free(c->changed_meanwhile);
        free(c->origin);
        free(c);
}
