/*
 * dns: a forwarder for the boxes' name queries, as a child process without privileges: an unprivileged uid, no
 * capabilities, a filter that allows little more than sockets. Boxes ask the gateway address, port 53; the packet
 * filter sends that to the forwarder's port, and it asks the machine's resolvers, also those on loopback, which a box
 * could never reach. It ends with boxhost. struct dns owns the child and a pipe to it. dns_start does not block.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

struct dns {
        pid_t pid; /* 0 when none runs */
        int pidfd;
        uint16_t port;
};

/*
 * Binds address:port (host order; port 0 or taken: another one, told in d->port) and starts the child. resolver is NULL
 * (what /etc/resolv.conf says, read again when it changes), an address or "address:port".
 */
int dns_start(struct dns *d, uint32_t address, uint16_t port, const char *resolver, struct err *e);
void dns_stop(struct dns *d);
