/*
 * net: the network of boxes. Each box has a veth pair without a bridge: `psb<index>` here, `eth0` in the box, both with
 * fixed addresses, permanent neighbour entries and routes to single hosts. Which box belongs to this instance is told
 * by the interface group, a number made of the instance's name: the rules in nft match the group, so they are written
 * once at start and no box needs an entry of its own. struct net owns a netlink socket. Blocks only for the kernel's
 * answers, at start and cleanup also for `nft`.
 */
#pragma once

#include "base/err.h"
#include "base/buf.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NET_INDEX_MAX 4096U
#define NET_ALLOW_MAX 64
#define NET_WIRES_MAX 32U /* declared names of one box; each has an address */
#define NET_WIRE_NAME_MAX 63

struct net_range {
        uint32_t address; /* host order */
        unsigned bits;
};

struct net_config {
        const char *instance;
        struct net_range subnet;
        struct net_range allow[NET_ALLOW_MAX];
        size_t allow_count;
        uint16_t dns_port;  /* of the forwarder; 0 when there is none */
        uint16_t wire_port; /* where connections to declared names arrive; 0: nowhere */
};

struct net {
        int nl;
        uint32_t group, mtu;
        struct net_range subnet;
};

/* "10.0.0.0/8" or an address; -EINVAL. */
int net_range_parse(const char *text, struct net_range *ret);
uint32_t net_group(const char *instance);
uint32_t net_gateway(const struct net_range *subnet);                 /* host order */
uint32_t net_address(const struct net_range *subnet, unsigned index); /* host order */
/* Of a box's place-th declared name: the same for every box, and no box's own. Host order. */
uint32_t net_wire_address(const struct net_range *subnet, unsigned place);
void net_print(uint32_t address, char out[INET_ADDRSTRLEN]);

int net_open(struct net *n, const struct net_config *config, struct err *e);
void net_close(struct net *n);

/* The text for `nft -f`: replaces the instance's table in one transaction. */
int net_rules(struct buf *out, const struct net_config *config);
int net_rules_load(const struct net_config *config, struct err *e);
void net_rules_remove(const char *instance);
/* Where another program set the forward policy to DROP (docker): lets boxes through its own chain for such. */
void net_pass_docker(bool add);

/* True when no interface psb<index> exists on the machine right now. */
bool net_index_is_free(unsigned index);
/* Makes the pair with the peer in the network namespace of pid. -EEXIST: the index was taken meanwhile. */
int net_make(struct net *n, unsigned index, pid_t pid, struct err *e);
/* Removes the interface when it is of this instance; missing is no error. */
int net_remove(struct net *n, unsigned index, struct err *e);
/* Calls fn for every interface of this instance. */
int net_each(struct net *n, void (*fn)(unsigned index, void *arg), void *arg, struct err *e);

/* In the child, in its own network namespace with /proc at "proc": loopback and, unless alone, address and routes. */
int net_box_up(unsigned index, bool wired, struct err *e);
/* Which subnet net_box_up uses; set before the first box. */
void net_box_subnet(const struct net_range *subnet);
uint32_t net_box_gateway(void);
