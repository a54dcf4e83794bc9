#include "web/scene_listen.h"

#include "base/list.h"
#include "base/mem.h"
#include "control/scene_ports.h"
#include "web/scene_route.h"

#include <stdlib.h>

#define BACKLOG 256

struct port {
        struct list link;
        struct scene_listen *owner;
        struct listener *listener;
        unsigned port;
};

struct scene_listen {
        struct control *c;
        struct http_server *http;
        char *addr;
        struct list ports;
};

static void accepted(struct stream *stream, void *arg)
{
        const struct port *p = arg;

        http_server_take(p->owner->http, stream, scene_route_at(p->owner->c, p->port), scene_route_detach);
}

static int open_port(void *arg, unsigned port, struct err *e)
{
        struct scene_listen *l = arg;
        struct port *p = xcalloc(1, sizeof *p);
        int r;

        p->owner = l;
        p->port = port;
        r = listen_tcp(l->addr, port, BACKLOG, accepted, p, &p->listener, e);
        if (r < 0) {
                free(p);
                return r;
        }
        list_append(&l->ports, &p->link);
        return 0;
}

static void close_one(struct port *p)
{
        list_remove(&p->link);
        listener_closep(&p->listener);
        free(p);
}

static void close_port(void *arg, unsigned port)
{
        struct scene_listen *l = arg;

        list_for_each_safe (it, &l->ports) {
                struct port *p = list_entry(it, struct port, link);

                if (p->port == port)
                        close_one(p);
        }
}

int scene_listen_new(struct control *c, struct http_server *http, const char *addr, struct scene_listen **ret,
                     struct err *e)
{
        struct scene_listen *l = xcalloc(1, sizeof *l);
        struct scene_ports_listener ops = { .open = open_port, .close = close_port, .arg = l };

        l->c = c;
        l->http = http;
        l->addr = xstrdup(addr);
        list_init(&l->ports);
        int r = scene_ports_listen(c->scene_ports, &ops, e);
        if (r < 0) {
                scene_listen_freep(&l);
                return r;
        }
        *ret = l;
        return 0;
}

void scene_listen_freep(struct scene_listen **l)
{
        if (!*l)
                return;
        (void) scene_ports_listen((*l)->c->scene_ports, NULL, NULL);
        while (!list_empty(&(*l)->ports))
                close_one(list_entry((*l)->ports.next, struct port, link));
        free((*l)->addr);
        free(*l);
        *l = NULL;
}
