/* address: what an IP address is, by its text. Pure. */
#pragma once

#include <stdbool.h>

/* Is it a unicast address of the public internet? Neither private, loopback, link-local, shared, reserved, multicast
 * nor one that carries another; false for what is no address. */
bool address_public(const char *address);

/* Lies an IPv4 address in a range as options give it: "10.0.0.0/8", or one address? False for what cannot be read. */
bool address_in(const char *address, const char *range);
