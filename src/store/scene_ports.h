/* scene_ports: which port of the scenes' range belongs to which service of a box. */
#pragma once

#include "store/db.h"

int scene_port_insert(struct db *db, unsigned port, const char *box, const char *service, struct err *e);
int scene_port_delete(struct db *db, unsigned port, struct err *e);
/* Calls fn for each port from `from` to `to`; those outside are given up. fn runs no statement. */
int scene_port_each(struct db *db, unsigned from, unsigned to,
                    void (*fn)(unsigned port, const char *box, const char *service, void *arg), void *arg,
                    struct err *e);
/* Gives up the ports of boxes that are no more, and calls fn for each. fn runs no statement. */
int scene_port_sweep(struct db *db, void (*fn)(unsigned port, void *arg), void *arg, struct err *e);
