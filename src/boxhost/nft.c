#include "boxhost/net.h"

#include "boxhost/sys.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>

#define NFT_TIMEOUT_MS 10000
#define RULES_BYTES (4096 + NET_ALLOW_MAX * 24)

/* Where a box must not go: the machine's neighbourhood, other boxes, and what is no public unicast address. */
static const char *const closed[] = { "0.0.0.0/8",      "10.0.0.0/8",     "100.64.0.0/10",
                                      "127.0.0.0/8",    "169.254.0.0/16", "172.16.0.0/12",
                                      "192.168.0.0/16", "198.18.0.0/15",  "224.0.0.0/3" };

static void add_sets(struct buf *b, const struct net_config *c)
{
        (void) buf_adds(b, " set closed { type ipv4_addr; flags interval; elements = { ");
        for (size_t i = 0; i < ARRAY_LEN(closed); i++)
                (void) buf_addf(b, "%s%s", i ? ", " : "", closed[i]);
        (void) buf_adds(b, " }; }\n");
        if (c->allow_count == 0)
                return;
        (void) buf_adds(b, " set allowed { type ipv4_addr; flags interval; auto-merge; elements = { ");
        for (size_t i = 0; i < c->allow_count; i++) {
                char a[INET_ADDRSTRLEN];
                net_print(c->allow[i].address, a);
                (void) buf_addf(b, "%s%s/%u", i ? ", " : "", a, c->allow[i].bits);
        }
        (void) buf_adds(b, " }; }\n");
}

/* What may reach the machine itself: answers, and what the rules above led to the forwarder and to the wires. The
 * wires' socket serves no other interface. */
static void add_to_host(struct buf *b, const struct net_config *c, uint32_t group, const char *gateway)
{
        (void) buf_adds(b, " chain to_host { type filter hook input priority 0; policy accept;\n");
        if (c->wire_port)
                (void) buf_addf(b, "  iifgroup != %u ip daddr %s tcp dport %u reject with tcp reset\n", group, gateway,
                                c->wire_port);
        (void) buf_addf(b,
                        "  iifgroup != %u accept\n"
                        "  ct state established,related accept\n"
                        "  ip daddr %s ct status dnat meta l4proto { tcp, udp } th dport %u accept\n",
                        group, gateway, c->dns_port ? c->dns_port : 53U);
        if (c->wire_port)
                (void) buf_addf(b, "  ip daddr %s ct status dnat tcp dport %u accept\n", gateway, c->wire_port);
        (void) buf_adds(b, "  meta l4proto tcp reject with tcp reset\n"
                           "  reject with icmpx admin-prohibited\n }\n");
}

/* A packet whose source is not routed back out of the interface it came from is forged. */
static void add_inbound(struct buf *b, const struct net_config *c, uint32_t group, const char *gateway)
{
        (void) buf_addf(b,
                        " chain from_box { type filter hook prerouting priority raw; policy accept;\n"
                        "  iifgroup %u meta nfproto ipv6 drop\n"
                        "  iifgroup %u fib saddr . iif oif missing drop\n }\n",
                        group, group);
        (void) buf_adds(b, " chain dns { type nat hook prerouting priority dstnat; policy accept;\n");
        if (c->dns_port) {
                (void) buf_addf(b, "  iifgroup %u ip daddr %s udp dport 53 dnat ip to %s:%u\n", group, gateway, gateway,
                                c->dns_port);
                (void) buf_addf(b, "  iifgroup %u ip daddr %s tcp dport 53 dnat ip to %s:%u\n", group, gateway, gateway,
                                c->dns_port);
        }
        if (c->wire_port) {
                char first[INET_ADDRSTRLEN], last[INET_ADDRSTRLEN];
                net_print(net_wire_address(&c->subnet, 0), first);
                net_print(net_wire_address(&c->subnet, NET_WIRES_MAX - 1), last);
                (void) buf_addf(b, "  iifgroup %u ip daddr %s-%s meta l4proto tcp dnat ip to %s:%u\n", group, first,
                                last, gateway, c->wire_port);
        }
        (void) buf_adds(b, " }\n");
        add_to_host(b, c, group, gateway);
}

static void add_forward(struct buf *b, const struct net_config *c, uint32_t group, const char *subnet)
{
        (void) buf_addf(b,
                        " chain through { type filter hook forward priority 0; policy accept;\n"
                        "  iifgroup %u jump leaving\n"
                        "  oifgroup %u ct state established,related accept\n"
                        "  oifgroup %u iifname \"psb*\" reject with icmpx admin-prohibited\n"
                        "  oifgroup %u drop\n }\n"
                        " chain leaving {\n"
                        "  ct state established,related accept\n"
                        "  oifname \"psb*\" reject with icmpx admin-prohibited\n",
                        group, group, group, group);
        if (c->allow_count > 0)
                (void) buf_adds(b, "  ip daddr @allowed accept\n");
        (void) buf_adds(b, "  ip daddr @closed meta l4proto tcp reject with tcp reset\n"
                           "  ip daddr @closed reject with icmpx admin-prohibited\n"
                           "  meta nfproto ipv6 drop\n }\n");
        (void) buf_addf(b,
                        " chain nat { type nat hook postrouting priority srcnat; policy accept;\n"
                        "  ip saddr %s oifname != \"psb*\" oifname != \"lo\" masquerade\n }\n",
                        subnet);
}

int net_rules(struct buf *out, const struct net_config *c)
{
        char gateway[INET_ADDRSTRLEN], address[INET_ADDRSTRLEN], subnet[INET_ADDRSTRLEN + 8];
        uint32_t group = net_group(c->instance);

        if (!buf_room(out, RULES_BYTES)) /* everything below fits, so no addition can fail */
                return -ENOBUFS;
        net_print(net_gateway(&c->subnet), gateway);
        net_print(c->subnet.address, address);
        snprintf(subnet, sizeof(subnet), "%s/%u", address, c->subnet.bits);
        /* adding before deleting makes the deletion succeed whether or not the table was there */
        (void) buf_addf(out, "add table inet psbx_%s\ndelete table inet psbx_%s\ntable inet psbx_%s {\n", c->instance,
                        c->instance, c->instance);
        add_sets(out, c);
        add_inbound(out, c, group, gateway);
        add_forward(out, c, group, subnet);
        return buf_adds(out, "}\n");
}

int net_rules_load(const struct net_config *c, struct err *e)
{
        static const char *const argv[] = { "nft", "-f", "-", NULL };
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);

        if (net_rules(&b, c) < 0)
                return err_set(e, -ENOBUFS, "the packet filter rules are too long");
        return sys_run(argv, buf_cstr(&b), NFT_TIMEOUT_MS, e);
}

void net_rules_remove(const char *instance)
{
        static const char *const argv[] = { "nft", "-f", "-", NULL };
        struct err e = { 0 };
        char text[128];

        snprintf(text, sizeof(text), "add table inet psbx_%s\ndelete table inet psbx_%s\n", instance, instance);
        if (sys_run(argv, text, NFT_TIMEOUT_MS, &e) < 0)
                log_warning("the packet filter table stays: %s", err_text(&e));
}

static bool iptables(const char *action, const char *direction)
{
        const char *const argv[] = { "iptables", "-w",   "5",  action,   "DOCKER-USER",
                                     direction,  "psb+", "-j", "ACCEPT", NULL };

        return sys_run(argv, NULL, NFT_TIMEOUT_MS, NULL) == 0;
}

void net_pass_docker(bool add)
{
        static const char *const list[] = { "iptables", "-w", "5", "-S", "DOCKER-USER", NULL };
        static const char *const directions[] = { "-i", "-o" };

        if (!sys_program("iptables") || sys_run(list, NULL, NFT_TIMEOUT_MS, NULL) < 0)
                return;
        for (size_t i = 0; i < ARRAY_LEN(directions); i++) {
                bool there = iptables("-C", directions[i]);
                if (add && !there && !iptables("-I", directions[i]))
                        log_warning("docker's packet filter may stop the boxes' network");
                if (!add && there)
                        (void) iptables("-D", directions[i]);
        }
}
