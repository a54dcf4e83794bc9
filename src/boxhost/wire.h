/*
 * wire: where the connections of boxes to their declared names arrive. Each name of a box has an address of the subnet
 * that is no box's (net_wire_address); nft leads TCP to these to one socket, which boxhost opens here and hands to the
 * server. Also keeps what the name forwarder was told. Does not block, but for a second when the forwarder hangs.
 */
#pragma once

#include "boxhost/host.h"

/* A listening socket on the gateway's address; its port into *ret_port. The socket, or -errno. */
int wire_listen(const struct net_range *subnet, uint16_t *ret_port, struct err *e);

/* A host name of one label, as services have it. */
bool wire_name_ok(const char *name);
/* Sets the names of a box (each ended by a NUL; owned by the box from now on) and tells the forwarder. */
void wire_names_set(struct host *h, struct box *b, char *names, size_t n);
/* Before its index is somebody else's. */
void wire_names_forget(struct host *h, struct box *b);
/* After the forwarder was started again. */
void wire_names_tell_all(struct host *h);
