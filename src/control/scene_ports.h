/*
 * scene_ports: a port of its own for each service of a box, where host names lead nowhere (docs/scenes.md). A port is
 * given when an address is first told, lies in the store, and belongs to its service until the box is deleted; a
 * restart keeps it. Who listens is told by two functions; nothing here suspends.
 *
 * Ports are no secrets: who may come in is for the gate (web/scene_gate.h).
 */
#pragma once

#include "control/wires.h"

#define SCENE_PORTS_MAX 4096 /* of one range */

struct scene_ports;

/* "7500-7599" or one port alone: 1024 and up, SCENE_PORTS_MAX at most. -EINVAL. */
int scene_ports_parse(const char *s, unsigned *ret_from, unsigned *ret_to);

struct scene_ports *scene_ports_new(struct db *db, unsigned from, unsigned to);
void scene_ports_free(struct scene_ports *p); /* closes nothing */

struct scene_ports_listener {
        int (*open)(void *arg, unsigned port, struct err *e); /* -EADDRINUSE: somebody else's */
        void (*close)(void *arg, unsigned port);
        void *arg;
};
/* Opens those that belong to services. One that somebody else has taken meanwhile is given up: its service gets
 * another when its address is told again. listener is copied; NULL: nobody listens any more, and none is given. */
int scene_ports_listen(struct scene_ports *p, const struct scene_ports_listener *listener, struct err *e);

/* The port of a service; given and opened when it has none. 0: none is free. */
unsigned scene_port_give(struct scene_ports *p, const char *box, const struct wires *s, size_t index);
/* The same without giving one. */
unsigned scene_port_find(const struct scene_ports *p, const char *box, const char *service);
/* False when the port belongs to nobody. The strings are valid until anything else is asked of p. */
bool scene_port_owner(const struct scene_ports *p, unsigned port, const char **ret_box, const char **ret_service);
bool scene_port_in_range(const struct scene_ports *p, unsigned port);
/* "7500 to 7599" */
void scene_ports_words(const struct scene_ports *p, char ret[static 32]);
/* Closes the ports of boxes that are no more. p may be NULL. */
void scene_ports_sweep(struct scene_ports *p);
