#include "control/scene_ports.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/scene_ports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FULL_MS 2000 /* a range without a free port is not tried again for so long */

struct owned {
        char box[33], service[WIRE_NAME_MAX + 1];
};

struct scene_ports {
        struct db *db;
        unsigned from, count;
        struct owned **of; /* by port - from; NULL: nobody's */
        struct map *ports; /* "box service" -> port, as a number */
        unsigned next;     /* where the next free one is looked for, so that a port rests before it is used anew */
        int64_t full_at;   /* clock_ms() of the last search that found none; 0: something may be free */
        struct scene_ports_listener listener; /* open NULL: nobody listens */
};

int scene_ports_parse(const char *s, unsigned *ret_from, unsigned *ret_to)
{
        struct str to = str_of(s), from = str_cut(&to, '-');
        uint64_t a, b;

        if (parse_u64(from, UINT16_MAX, &a) < 0 || a < 1024)
                return -EINVAL;
        b = a;
        if (strchr(s, '-') && parse_u64(to, UINT16_MAX, &b) < 0)
                return -EINVAL;
        if (b < a || b - a >= SCENE_PORTS_MAX)
                return -EINVAL;
        *ret_from = (unsigned) a;
        *ret_to = (unsigned) b;
        return 0;
}

static struct str key_of(const char *box, const char *service, char buf[static 128])
{
        return str_n(buf, (size_t) snprintf(buf, 128, "%s %s", box, service));
}

static void own(struct scene_ports *p, unsigned port, const char *box, const char *service)
{
        struct owned *o = xcalloc(1, sizeof *o);
        char key[128];

        (void) snprintf(o->box, sizeof o->box, "%s", box);
        (void) snprintf(o->service, sizeof o->service, "%s", service);
        p->of[port - p->from] = o;
        (void) map_put(p->ports, key_of(o->box, o->service, key), (void *) (uintptr_t) port);
}

static void disown_port(struct scene_ports *p, unsigned port)
{
        struct owned *o = p->of[port - p->from];
        char key[128];

        (void) map_del(p->ports, key_of(o->box, o->service, key));
        p->of[port - p->from] = NULL;
        p->full_at = 0;
        free(o);
}

static void load_one(unsigned port, const char *box, const char *service, void *arg)
{
        own(arg, port, box, service);
}

struct scene_ports *scene_ports_new(struct db *db, unsigned from, unsigned to)
{
        struct scene_ports *p = xcalloc(1, sizeof *p);

        p->db = db;
        p->from = from;
        p->count = to - from + 1;
        p->of = xcalloc(p->count, sizeof *p->of);
        p->ports = map_new();
        return p;
}

void scene_ports_free(struct scene_ports *p)
{
        if (!p)
                return;
        for (unsigned i = 0; i < p->count; i++)
                free(p->of[i]);
        map_free(p->ports);
        free(p->of);
        free(p);
}

int scene_ports_listen(struct scene_ports *p, const struct scene_ports_listener *listener, struct err *e)
{
        if (!listener) {
                p->listener = (struct scene_ports_listener){ 0 };
                return 0;
        }
        scene_ports_sweep(p); /* nothing of it is in memory yet */
        int r = scene_port_each(p->db, p->from, p->from + p->count - 1, load_one, p, e);
        if (r < 0)
                return r;
        p->listener = *listener;
        for (unsigned port = p->from; port < p->from + p->count; port++) {
                struct err why = { 0 };

                if (!p->of[port - p->from])
                        continue;
                p->next = port - p->from + 1;
                if (listener->open(listener->arg, port, &why) == 0)
                        continue;
                log_warning("port %u of the service \"%s\" of the box %s is lost: %s; it gets another", port,
                            p->of[port - p->from]->service, p->of[port - p->from]->box, err_text(&why));
                disown_port(p, port);
                (void) scene_port_delete(p->db, port, NULL);
        }
        return 0;
}

unsigned scene_port_find(const struct scene_ports *p, const char *box, const char *service)
{
        char key[128];

        return (unsigned) (uintptr_t) map_get(p->ports, key_of(box, service, key));
}

/* A restored box may have other services: the ports of those that it has no more are free. */
static void drop_stale(struct scene_ports *p, const char *box, const struct wires *s)
{
        for (unsigned i = 0; i < p->count; i++) {
                if (!p->of[i] || !cstr_eq(p->of[i]->box, box) || wire_find(s, p->of[i]->service) ||
                    scene_port_delete(p->db, p->from + i, NULL) < 0)
                        continue;
                p->listener.close(p->listener.arg, p->from + i);
                disown_port(p, p->from + i);
        }
}

/* An open port that is nobody's yet; 0: there is none. */
static unsigned open_one(struct scene_ports *p)
{
        struct err e = { 0 };

        for (unsigned i = 0; i < p->count; i++) {
                unsigned at = (p->next + i) % p->count;

                if (p->of[at])
                        continue;
                int r = p->listener.open(p->listener.arg, p->from + at, &e);
                if (r == 0) {
                        p->next = at + 1;
                        return p->from + at;
                }
                if (r == -EMFILE || r == -ENFILE)
                        break;
        }
        log_warning("no port of the scenes' range %u to %u is free%s%s: services are told without an address", p->from,
                    p->from + p->count - 1, err_text(&e)[0] ? "; the last one tried: " : "", err_text(&e));
        p->full_at = clock_ms();
        return 0;
}

unsigned scene_port_give(struct scene_ports *p, const char *box, const struct wires *s, size_t index)
{
        const char *service = s->wire[index].name;
        unsigned port = scene_port_find(p, box, service);
        struct err e = { 0 };

        if (port || !p->listener.open || (p->full_at && clock_ms() - p->full_at < FULL_MS))
                return port;
        scene_ports_sweep(p);
        drop_stale(p, box, s);
        port = open_one(p);
        if (!port)
                return 0;
        /* Told only when it is written down. */
        if (scene_port_insert(p->db, port, box, service, &e) < 0) {
                log_warning("the port of a scene cannot be kept: %s", err_text(&e));
                p->listener.close(p->listener.arg, port);
                return 0;
        }
        own(p, port, box, service);
        return port;
}

bool scene_port_owner(const struct scene_ports *p, unsigned port, const char **ret_box, const char **ret_service)
{
        const struct owned *o = scene_port_in_range(p, port) ? p->of[port - p->from] : NULL;

        if (!o)
                return false;
        *ret_box = o->box;
        *ret_service = o->service;
        return true;
}

bool scene_port_in_range(const struct scene_ports *p, unsigned port)
{
        return port >= p->from && port - p->from < p->count;
}

void scene_ports_words(const struct scene_ports *p, char ret[static 32])
{
        (void) snprintf(ret, 32, "%u to %u", p->from, p->from + p->count - 1);
}

static void swept(unsigned port, void *arg)
{
        struct scene_ports *p = arg;

        if (!scene_port_in_range(p, port) || !p->of[port - p->from])
                return;
        if (p->listener.close)
                p->listener.close(p->listener.arg, port);
        disown_port(p, port);
}

void scene_ports_sweep(struct scene_ports *p)
{
        struct err e = { 0 };

        if (p && scene_port_sweep(p->db, swept, p, &e) < 0)
                log_warning("ports of scenes that are gone stay taken for now: %s", err_text(&e));
}
