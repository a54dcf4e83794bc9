#include "control/pool.h"

#include "control/box_impl.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <stdio.h>
#include <stdlib.h>

#define POOL_SIZE "medium"      /* the default of sandbox_start */
#define REFILL_MS 30            /* lets the first command of the box that was taken go first */
#define RETRY_MS 30000          /* after a box could not be made */
#define CHECK_MS 60000          /* without events: age and demand are looked at */
#define CALM_MS (10 * 60000)    /* without a miss for so long, half as many are enough */
#define AGE_MAX_MS (60 * 60000) /* what a box took from the machine when it was made grows old */

struct warm {
        struct list link;
        char id[33];
        struct image_choice image;
        int64_t made;
        bool dead;
};

struct pool {
        struct control *c;
        struct list ready; /* struct warm, oldest first */
        size_t count;      /* in ready */
        size_t wanted, most;
        struct image_choice usual; /* of the next; empty until the images were looked at */
        struct driver_size size;
        struct timer *timer;
        struct waitq idle; /* the worker has ended */
        bool begun, hurried, working, stopping;
        int64_t missed_at;
};

static void on_timer(void *arg);

struct pool *pool_new(struct control *c, size_t most)
{
        struct pool *p;

        if (most == 0)
                return NULL;
        p = xcalloc(1, sizeof *p);
        p->c = c;
        p->most = most < POOL_MOST ? most : POOL_MOST;
        p->wanted = 1;
        list_init(&p->ready);
        waitq_init(&p->idle);
        (void) size_lookup(POOL_SIZE, &p->size);
        return p;
}

static void drop(struct pool *p, struct warm *w)
{
        list_remove(&w->link);
        p->count--;
        free(w);
}

void pool_free(struct pool *p)
{
        if (!p)
                return;
        timer_stop(&p->timer);
        while (!list_empty(&p->ready))
                drop(p, list_entry(p->ready.next, struct warm, link));
        free(p);
}

/* ---- the worker: one coroutine while there is something to do ---- */

/* Boxes that callers have go before; the pool takes what is left. */
static size_t goal(const struct pool *p)
{
        int64_t left = control_boxes_max(p->c) - (int64_t) control_running(p->c);

        if (p->stopping || p->c->stopping || left <= 0 || disk_has_room(p->c, NULL) < 0)
                return 0;
        return (int64_t) p->wanted < left ? p->wanted : (size_t) left;
}

static bool same(const struct image_choice *a, const struct image_choice *b)
{
        return cstr_eq(a->name, b->name) && cstr_eq(a->version, b->version);
}

static struct warm *to_remove(const struct pool *p)
{
        list_for_each (it, &p->ready) {
                struct warm *w = list_entry(it, struct warm, link);

                if (w->dead || !same(&w->image, &p->usual) || p->count > goal(p) || clock_ms() - w->made > AGE_MAX_MS)
                        return w;
        }
        return NULL;
}

static void coroutine_fn remove_one(struct pool *p, struct warm *w)
{
        char id[33];
        struct err e = { 0 };

        (void) snprintf(id, sizeof id, "%s", w->id);
        drop(p, w); /* first: nobody may take it any more */
        box_claim(p->c, id, "being removed");
        if (p->c->driver->ops->destroy(p->c->driver, id, &e) < 0)
                log_warning("the box %s, which stood ready, could not be removed: %s", id, err_text(&e));
        box_unclaim(p->c, id);
}

static int coroutine_fn make_one(struct pool *p)
{
        struct control *c = p->c;
        struct image_choice image;
        struct err e = { 0 };
        char id[33];
        int r;

        random_id(id, BOX_ID_LEN);
        r = image_choose(c, NULL, &image, &e);
        if (r == 0) {
                box_claim(c, id, "being made"); /* while it is made, it has no row */
                r = c->driver->ops->create(c->driver, id, image.name, id, &p->size, &e);
                box_unclaim(c, id);
        }
        if (r < 0) {
                log_warning("no box can be kept ready: %s", err_text(&e));
                return r;
        }
        struct warm *w = xcalloc(1, sizeof *w);
        (void) snprintf(w->id, sizeof w->id, "%s", id);
        w->image = image;
        w->made = clock_ms();
        list_append(&p->ready, &w->link);
        p->count++;
        return 0;
}

static void coroutine_fn work(void *arg)
{
        struct pool *p = arg;
        struct warm *w;
        int r = 0;

        for (;;) {
                if ((w = to_remove(p)))
                        remove_one(p, w);
                else if (r == 0 && p->count < goal(p))
                        r = make_one(p);
                else
                        break;
        }
        p->working = false;
        timer_reset(p->timer, r < 0 ? RETRY_MS : CHECK_MS);
        waitq_wake_all(&p->idle);
}

static void on_timer(void *arg)
{
        struct pool *p = arg;

        p->hurried = false;
        if (p->wanted > 1 && clock_ms() - p->missed_at > CALM_MS) {
                p->wanted /= 2;
                p->missed_at = clock_ms();
        }
        if (p->working || p->stopping)
                return;
        p->working = coro_start(work, p, CORO_STACK_DEFAULT, "pool") != NULL;
        if (!p->working)
                timer_reset(p->timer, RETRY_MS);
}

/* ---- what others ask ---- */

static void soon(struct pool *p)
{
        if (!p->begun || p->hurried || p->working || p->stopping)
                return;
        p->hurried = true; /* and not put off by the next that hurries */
        timer_reset(p->timer, REFILL_MS);
}

void pool_begin(struct pool *p)
{
        if (!p || p->begun)
                return;
        p->begun = true;
        p->timer = timer_start(0, 0, on_timer, p);
}

void pool_usual(struct pool *p, const struct image_choice *usual)
{
        if (!p || same(&p->usual, usual))
                return;
        p->usual = *usual;
        soon(p);
}

bool pool_take(struct pool *p, const struct image_choice *image, const char *size, char id[33])
{
        if (!p || p->stopping || !same(image, &p->usual) || !cstr_eq(size, POOL_SIZE))
                return false;
        soon(p);
        list_for_each (it, &p->ready) {
                struct warm *w = list_entry(it, struct warm, link);

                if (w->dead || !same(&w->image, image))
                        continue;
                (void) snprintf(id, 33, "%s", w->id);
                drop(p, w);
                return true;
        }
        p->missed_at = clock_ms();
        p->wanted = p->wanted * 2 < p->most ? p->wanted * 2 : p->most;
        return false;
}

static struct warm *find(const struct pool *p, const char *id)
{
        list_for_each (it, &p->ready) {
                struct warm *w = list_entry(it, struct warm, link);

                if (cstr_eq(w->id, id))
                        return w;
        }
        return NULL;
}

void pool_settle(struct pool *p, struct map *states)
{
        if (!p)
                return;
        list_for_each (it, &p->ready) {
                struct warm *w = list_entry(it, struct warm, link);
                const char *state = map_del(states, str_of(w->id));

                w->dead = w->dead || !state || !cstr_eq(state, "running");
        }
        soon(p);
}

bool pool_box_ended(struct pool *p, const char *id)
{
        struct warm *w = p ? find(p, id) : NULL;

        if (!w)
                return false;
        w->dead = true;
        soon(p);
        return true;
}

size_t pool_ready(const struct pool *p)
{
        return p ? p->count : 0;
}

void pool_squeeze(struct pool *p)
{
        if (p && p->count > goal(p))
                soon(p);
}

void coroutine_fn pool_stop(struct pool *p)
{
        if (!p)
                return;
        coro_shield();
        p->stopping = true;
        while (p->working)
                (void) waitq_wait(&p->idle, -1);
        while (!list_empty(&p->ready))
                remove_one(p, list_entry(p->ready.next, struct warm, link));
        coro_unshield();
}
