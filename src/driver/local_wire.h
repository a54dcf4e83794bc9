/*
 * local_wire: the connections of local boxes to their declared names. boxhost opens the socket where nft leads them and
 * hands it over; the kernel tells of each connection who made it and where it wanted to go. Part of the local driver,
 * which owns the struct. Nothing here suspends.
 */
#pragma once

#include "driver/driver.h"

#include <netinet/in.h>

struct map;

struct local_wire {
        struct driver *driver;
        struct listener *listener; /* NULL: none was handed over yet */
        uint32_t first;            /* address of a box's first name, host order */
        size_t count;
        struct map *boxes; /* address -> box id, allocated */
};

void local_wire_init(struct local_wire *w, struct driver *d);
/* Accepts at fd (taken over, and set to -1) instead of at what there was. */
int local_wire_open(struct local_wire *w, int *fd, const char *first, int64_t count, struct err *e);
bool local_wire_is_open(const struct local_wire *w);
void local_wire_close(struct local_wire *w); /* accepts no more */
void local_wire_done(struct local_wire *w);

/* Which box has this address from now on; no address is fine. */
void local_wire_note(struct local_wire *w, const char *address, const char *box);
void local_wire_forget(struct local_wire *w, const char *box);
int local_wire_address(const struct local_wire *w, size_t name, char ret[DRIVER_ADDRESS_MAX], struct err *e);
