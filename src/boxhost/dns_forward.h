/*
 * dns_forward: the loop of the name forwarder; runs in its own process and never returns. UDP: at most DNS_IN_FLIGHT
 * questions, each on a socket and with a random id of its own, so a forged answer must guess both. TCP: at most
 * DNS_CONNECTIONS pairs of connections, relayed byte by byte. One box may hold an eighth of either.
 */
#pragma once

#include "boxhost/net.h"

#define DNS_IN_FLIGHT 512
#define DNS_CONNECTIONS 64
#define DNS_ONE_CLIENT 8 /* one client may hold 1/8 */

/* names: a message socket that tells the names of boxes (dns_names.h). */
void dns_forward(int udp, int tcp, int names, const struct net_range *subnet, const char *resolver)
        __attribute__((noreturn));
