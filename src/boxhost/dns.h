/*
 * dns: a forwarder for the boxes' name queries, as a child process without privileges: an unprivileged uid, no
 * capabilities, a filter that allows little more than sockets. Boxes ask the gateway address, port 53; the packet
 * filter sends that to the forwarder's port, and it asks the machine's resolvers, also those on loopback, which a box
 * could never reach. It ends with boxhost. struct dns owns the child and a pipe to it. dns_start does not block.
 */
#pragma once

#include "boxhost/net.h"
#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

struct dns {
        pid_t pid; /* 0 when none runs */
        int pidfd;
        int names; /* to the child: what boxes declared, -1 when none runs */
        uint16_t port;
};

/*
 * Binds the gateway's address and port (0 or taken: another one, told in d->port) and starts the child. resolver is
 * NULL (what /etc/resolv.conf says, read again when it changes), an address or "address:port".
 */
int dns_start(struct dns *d, const struct net_range *subnet, uint16_t port, const char *resolver, struct err *e);
void dns_stop(struct dns *d);
/* One message of dns_names.h for the child. One that does not take it within a second is ended: what starts it again
 * tells it everything anew. */
void dns_tell(struct dns *d, const void *p, size_t n);
