/*
 * dns_names: the names that boxes declared, as the forwarder knows them, and the answers to questions about them. Which
 * box asks is told by its address, which it cannot forge (nft). struct dns_names owns what it was told. Pure: no I/O.
 */
#pragma once

#include "boxhost/net.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DNS_NAMES_MESSAGE_MAX (sizeof(uint32_t) + NET_WIRES_MAX * (NET_WIRE_NAME_MAX + 1))

struct dns_names {
        struct net_range subnet;
        struct {
                char *text; /* names, each ended by a NUL, in the order of their wire addresses */
                size_t n;
        } box[NET_INDEX_MAX];
};

/* The message boxhost sends to its forwarder: the box's index, then its names. Bytes written to out. */
size_t dns_names_message(unsigned index, const char *names, size_t n, unsigned char out[DNS_NAMES_MESSAGE_MAX]);
/* Takes such a message in; a malformed one changes nothing. */
void dns_names_take(struct dns_names *d, const unsigned char *p, size_t n);
void dns_names_done(struct dns_names *d);
/*
 * The answer to one question packet from client (host order), written to out: its bytes, or 0 when it is about no name
 * of that box and somebody else has to answer. An address for type A, an empty answer for every other type.
 */
size_t dns_names_answer(const struct dns_names *d, uint32_t client, const unsigned char *p, size_t n,
                        unsigned char *out, size_t room);
