#include "boxhost/net.h"

#include "boxhost/netlink.h"
#include "boxhost/sys.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define FIRST_WIRE 2U      /* after the gateway: the addresses of declared names */
#define FIRST_ADDRESS 256U /* of boxes */
#define NEIGHBOUR_PERMANENT 0x80

static struct net_range box_subnet;

int net_range_parse(const char *text, struct net_range *ret)
{
        struct str s = str_of(text), address = str_cut(&s, '/');
        char copy[INET_ADDRSTRLEN];
        struct in_addr in;
        uint64_t bits = 32;

        if (address.n == 0 || address.n >= sizeof(copy))
                return -EINVAL;
        memcpy(copy, address.p, address.n);
        copy[address.n] = '\0';
        if (inet_pton(AF_INET, copy, &in) != 1)
                return -EINVAL;
        if (strchr(text, '/') && parse_u64(s, 32, &bits) < 0)
                return -EINVAL;
        ret->bits = (unsigned) bits;
        ret->address = ntohl(in.s_addr);
        if (bits < 32)
                ret->address &= ~(UINT32_MAX >> bits);
        return 0;
}

uint32_t net_group(const char *instance)
{
        uint32_t h = 2166136261U; /* FNV-1a: the number must be the same in every run */

        for (const char *p = instance; *p; p++)
                h = (h ^ (unsigned char) *p) * 16777619U;
        return (h & 0x3fffffffU) |
               0x40000000U; /* never 0, the group of all other interfaces, nor a small one of the admin */
}

uint32_t net_gateway(const struct net_range *subnet)
{
        return subnet->address + 1;
}

uint32_t net_address(const struct net_range *subnet, unsigned index)
{
        return subnet->address + FIRST_ADDRESS + index;
}

uint32_t net_wire_address(const struct net_range *subnet, unsigned place)
{
        return subnet->address + FIRST_WIRE + place;
}

void net_print(uint32_t address, char out[INET_ADDRSTRLEN])
{
        struct in_addr in = { .s_addr = htonl(address) };

        (void) inet_ntop(AF_INET, &in, out, INET_ADDRSTRLEN);
}

static void interface_name(unsigned index, char out[IFNAMSIZ])
{
        snprintf(out, IFNAMSIZ, "psb%u", index);
}

/* Locally administered, the box's end has the lowest bit of the first byte's upper half set. */
static void mac_of(unsigned index, bool box, unsigned char out[6])
{
        const unsigned char mac[6] = {
                0x02, 'p', 's', box ? 1 : 0, (unsigned char) (index >> 8), (unsigned char) index
        };

        memcpy(out, mac, 6);
}

/* Packets of a box leave by the default route: its size fits without fragments. */
static uint32_t route_mtu(void)
{
        char text[8192], path[64];
        struct str lines;
        uint64_t mtu = 1500;

        if (sys_read(AT_FDCWD, "/proc/net/route", text, sizeof(text)) <= 0)
                return 1500;
        lines = str_of(text);
        while (lines.n > 0) {
                struct str line = str_cut(&lines, '\n'), name = str_cut(&line, '\t');
                if (!str_starts(line, STR("00000000\t")) || name.n >= IFNAMSIZ)
                        continue;
                snprintf(path, sizeof(path), "/sys/class/net/%.*s/mtu", (int) name.n, name.p);
                if (sys_read_u64(AT_FDCWD, path, &mtu) == 0)
                        break;
        }
        return mtu < 576 ? 576 : mtu > 1500 ? 1500 : (uint32_t) mtu;
}

int net_open(struct net *n, const struct net_config *config, struct err *e)
{
        *n = (struct net){ .group = net_group(config->instance), .subnet = config->subnet, .mtu = route_mtu() };
        n->nl = nl_open(NETLINK_ROUTE, e);
        return n->nl < 0 ? n->nl : 0;
}

void net_close(struct net *n)
{
        if (n->nl >= 0)
                close(steal_fd(&n->nl));
}

bool net_index_is_free(unsigned index)
{
        char name[IFNAMSIZ];

        interface_name(index, name);
        return if_nametoindex(name) == 0;
}

static int make_pair(struct net *n, unsigned index, pid_t pid, struct err *e)
{
        struct nl_batch b;
        struct nlattr *info, *data, *peer;
        struct nlmsghdr *h;
        char name[IFNAMSIZ];
        unsigned char mac[6];

        nl_batch_init(&b);
        interface_name(index, name);
        (void) nl_begin(&b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg),
                        "make the interface pair");
        h = nl_message(&b);
        mnl_attr_put_strz(h, IFLA_IFNAME, name);
        mnl_attr_put_u32(h, IFLA_GROUP, n->group);
        mnl_attr_put_u32(h, IFLA_MTU, n->mtu);
        mac_of(index, false, mac);
        mnl_attr_put(h, IFLA_ADDRESS, sizeof(mac), mac);
        info = mnl_attr_nest_start(h, IFLA_LINKINFO);
        mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
        data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
        peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
        (void) mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
        mnl_attr_put_strz(h, IFLA_IFNAME, "eth0");
        mnl_attr_put_u32(h, IFLA_MTU, n->mtu);
        mac_of(index, true, mac);
        mnl_attr_put(h, IFLA_ADDRESS, sizeof(mac), mac);
        mnl_attr_put_u32(h, IFLA_NET_NS_PID, (uint32_t) pid);
        mnl_attr_nest_end(h, peer);
        mnl_attr_nest_end(h, data);
        mnl_attr_nest_end(h, info);
        return nl_send(n->nl, &b, e);
}

static void add_up(struct nl_batch *b, int link, const char *what)
{
        struct ifinfomsg *m = nl_begin(b, RTM_NEWLINK, 0, sizeof(*m), what);

        m->ifi_index = link;
        m->ifi_flags = m->ifi_change = IFF_UP;
}

static void add_address(struct nl_batch *b, int link, uint32_t address)
{
        struct ifaddrmsg *m = nl_begin(b, RTM_NEWADDR, NLM_F_CREATE, sizeof(*m), "set the address");

        m->ifa_family = AF_INET;
        m->ifa_prefixlen = 32;
        m->ifa_index = (unsigned) link;
        mnl_attr_put_u32(nl_message(b), IFA_LOCAL, htonl(address));
        mnl_attr_put_u32(nl_message(b), IFA_ADDRESS, htonl(address));
}

static void add_neighbour(struct nl_batch *b, int link, uint32_t address, const unsigned char mac[6])
{
        struct ndmsg *m = nl_begin(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m), "set the neighbour");

        m->ndm_family = AF_INET;
        m->ndm_ifindex = link;
        m->ndm_state = NEIGHBOUR_PERMANENT;
        mnl_attr_put_u32(nl_message(b), NDA_DST, htonl(address));
        mnl_attr_put(nl_message(b), NDA_LLADDR, 6, mac);
}

static void add_route(struct nl_batch *b, int link, uint32_t to, unsigned bits, uint32_t gateway)
{
        struct rtmsg *m = nl_begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m), "set a route");

        m->rtm_family = AF_INET;
        m->rtm_dst_len = (unsigned char) bits;
        m->rtm_table = RT_TABLE_MAIN;
        m->rtm_protocol = RTPROT_BOOT;
        m->rtm_scope = gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
        m->rtm_type = RTN_UNICAST;
        if (bits > 0)
                mnl_attr_put_u32(nl_message(b), RTA_DST, htonl(to));
        if (gateway)
                mnl_attr_put_u32(nl_message(b), RTA_GATEWAY, htonl(gateway));
        mnl_attr_put_u32(nl_message(b), RTA_OIF, (uint32_t) link);
}

static int wire_host(struct net *n, unsigned index, struct err *e)
{
        struct nl_batch b;
        char name[IFNAMSIZ], path[96];
        unsigned char mac[6];
        int link;

        interface_name(index, name);
        link = (int) if_nametoindex(name);
        if (link == 0)
                return err_sys(e, -errno, "the interface %s is gone", name);
        snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
        (void) sys_write(AT_FDCWD, path, "1", NULL); /* no such file where the kernel has no IPv6 */
        mac_of(index, true, mac);
        nl_batch_init(&b);
        add_address(&b, link, net_gateway(&n->subnet));
        add_up(&b, link, "bring up the interface");
        add_route(&b, link, net_address(&n->subnet, index), 32, 0);
        add_neighbour(&b, link, net_address(&n->subnet, index), mac);
        return nl_send(n->nl, &b, e);
}

int net_make(struct net *n, unsigned index, pid_t pid, struct err *e)
{
        int r = make_pair(n, index, pid, e);

        if (r < 0)
                return r;
        r = wire_host(n, index, e);
        if (r < 0)
                (void) net_remove(n, index, NULL);
        return r;
}

struct link_info {
        char name[IFNAMSIZ];
        uint32_t group;
};

static int read_link_attr(const struct nlattr *a, void *arg)
{
        struct link_info *info = arg;

        if (mnl_attr_get_type(a) == IFLA_IFNAME)
                snprintf(info->name, sizeof(info->name), "%s", mnl_attr_get_str(a));
        else if (mnl_attr_get_type(a) == IFLA_GROUP)
                info->group = mnl_attr_get_u32(a);
        return MNL_CB_OK;
}

struct each_call {
        uint32_t group;
        void (*fn)(unsigned index, void *arg);
        void *arg;
};

static int visit_link(const struct nlmsghdr *h, void *arg)
{
        const struct each_call *call = arg;
        struct link_info info = { .group = 0 };
        uint64_t index;

        (void) mnl_attr_parse(h, sizeof(struct ifinfomsg), read_link_attr, &info);
        if (info.group == call->group && str_starts(str_of(info.name), STR("psb")) &&
            parse_u64(str_of(info.name + 3), NET_INDEX_MAX - 1, &index) == 0)
                call->fn((unsigned) index, call->arg);
        return MNL_CB_OK;
}

int net_each(struct net *n, void (*fn)(unsigned index, void *arg), void *arg, struct err *e)
{
        struct each_call call = { .group = n->group, .fn = fn, .arg = arg };
        _cleanup_close_ int fd = nl_open(NETLINK_ROUTE, e); /* its own socket: fn may use n->nl meanwhile */
        _Alignas(8) char bytes[32768];
        struct nlmsghdr *h = mnl_nlmsg_put_header(bytes);
        int r = MNL_CB_OK;

        if (fd < 0)
                return fd;
        h->nlmsg_type = RTM_GETLINK;
        h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
        h->nlmsg_seq = 1;
        (void) mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
        if (send(fd, h, h->nlmsg_len, 0) < 0)
                return err_sys(e, -errno, "cannot list interfaces");
        while (r > MNL_CB_STOP) {
                ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return err_sys(e, -errno, "cannot list interfaces");
                r = mnl_cb_run(bytes, (size_t) got, 1, 0, visit_link, &call);
        }
        return r < 0 ? err_sys(e, -errno, "cannot list interfaces") : 0;
}

/* Is the interface of this name one of ours? It may already be another instance's. */
static int is_ours(struct net *n, const char *name, bool *ret, struct err *e)
{
        struct link_info info = { .group = 0 };
        _cleanup_close_ int fd = nl_open(NETLINK_ROUTE, e);
        _Alignas(8) char bytes[16384];
        struct nlmsghdr *h = mnl_nlmsg_put_header(bytes);
        ssize_t got;

        *ret = false;
        if (fd < 0)
                return fd;
        h->nlmsg_type = RTM_GETLINK;
        h->nlmsg_flags = NLM_F_REQUEST;
        (void) mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
        mnl_attr_put_strz(h, IFLA_IFNAME, name);
        if (send(fd, h, h->nlmsg_len, 0) < 0 || (got = recv(fd, bytes, sizeof(bytes), 0)) < 0)
                return err_sys(e, -errno, "cannot look at the interface %s", name);
        h = (void *) bytes;
        if (!mnl_nlmsg_ok(h, (int) got) || h->nlmsg_type != RTM_NEWLINK)
                return 0; /* gone */
        (void) mnl_attr_parse(h, sizeof(struct ifinfomsg), read_link_attr, &info);
        *ret = info.group == n->group;
        return 0;
}

int net_remove(struct net *n, unsigned index, struct err *e)
{
        struct nl_batch b;
        char name[IFNAMSIZ];
        bool ours;
        int r;

        if (net_index_is_free(index))
                return 0;
        interface_name(index, name);
        r = is_ours(n, name, &ours, e);
        if (r < 0 || !ours)
                return r;
        nl_batch_init(&b);
        (void) nl_begin(&b, RTM_DELLINK, 0, sizeof(struct ifinfomsg), "remove the interface");
        mnl_attr_put_strz(nl_message(&b), IFLA_IFNAME, name);
        nl_ignore(&b, ENODEV);
        return nl_send(n->nl, &b, e);
}

void net_box_subnet(const struct net_range *subnet)
{
        box_subnet = *subnet;
}

uint32_t net_box_gateway(void)
{
        return net_gateway(&box_subnet);
}

static int wire_box(struct nl_batch *b, unsigned index, struct err *e)
{
        int link = (int) if_nametoindex("eth0");
        unsigned char mac[6];

        if (link == 0)
                return err_set(e, -ENODEV, "the box has no eth0");
        (void) sys_write(AT_FDCWD, "proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1", NULL);
        mac_of(index, false, mac);
        add_address(b, link, net_address(&box_subnet, index));
        add_up(b, link, "bring up eth0");
        add_neighbour(b, link, net_gateway(&box_subnet), mac);
        add_route(b, link, net_gateway(&box_subnet), 32, 0);
        add_route(b, link, 0, 0, net_gateway(&box_subnet));
        return 0;
}

int net_box_up(unsigned index, bool wired, struct err *e)
{
        _cleanup_close_ int fd = nl_open(NETLINK_ROUTE, e);
        struct nl_batch b;
        int r;

        if (fd < 0)
                return fd;
        nl_batch_init(&b);
        add_up(&b, (int) if_nametoindex("lo"), "bring up lo");
        r = wired ? wire_box(&b, index, e) : 0;
        return r < 0 ? r : nl_send(fd, &b, e);
}
