#include "base/address.h"

#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <string.h>

static bool public_v4(uint32_t a)
{
        static const struct {
                uint32_t net;
                unsigned bits;
        } closed[] = {
                /* RFC 6890 and the IANA registry: this host, private, shared, loopback, link-local, protocol, test,
                   benchmark, multicast, reserved. */
                { 0x00000000, 8 },  { 0x0a000000, 8 },  { 0x64400000, 10 }, { 0x7f000000, 8 },  { 0xa9fe0000, 16 },
                { 0xac100000, 12 }, { 0xc0000000, 24 }, { 0xc0000200, 24 }, { 0xc0586300, 24 }, { 0xc0a80000, 16 },
                { 0xc6120000, 15 }, { 0xc6336400, 24 }, { 0xcb007100, 24 }, { 0xe0000000, 4 },  { 0xf0000000, 4 },
        };

        for (size_t i = 0; i < ARRAY_LEN(closed); i++)
                if ((a >> (32 - closed[i].bits)) == (closed[i].net >> (32 - closed[i].bits)))
                        return false;
        return true;
}

bool address_public(const char *address)
{
        struct in_addr four;
        struct in6_addr six;

        if (inet_pton(AF_INET, address, &four) == 1)
                return public_v4(ntohl(four.s_addr));
        if (inet_pton(AF_INET6, address, &six) != 1)
                return false;
        const uint8_t *b = six.s6_addr;
        /* Global unicast is 2000::/3; of it not what carries an IPv4 address (6to4, Teredo) or is no address of a host:
         * documentation, benchmarking, ORCHID. NAT64 (64:ff9b::/96) and mapped addresses are outside of it. */
        if ((b[0] & 0xe0) != 0x20 || (b[0] == 0x20 && b[1] == 0x02))
                return false;
        if (b[0] == 0x20 && b[1] == 0x01 && (b[2] < 0x02 || (b[2] == 0x0d && b[3] == 0xb8)))
                return false;
        return !(b[0] == 0x3f && b[1] == 0xff && b[2] < 0x10);
}

bool address_in(const char *address, const char *range)
{
        struct str bits_text = str_of(range), net_text = str_cut(&bits_text, '/');
        char net_copy[INET_ADDRSTRLEN];
        struct in_addr a, net;
        uint64_t bits = 32;

        if (net_text.n == 0 || net_text.n >= sizeof net_copy)
                return false;
        memcpy(net_copy, net_text.p, net_text.n);
        net_copy[net_text.n] = '\0';
        if (inet_pton(AF_INET, address, &a) != 1 || inet_pton(AF_INET, net_copy, &net) != 1)
                return false;
        if (strchr(range, '/') && parse_u64(bits_text, 32, &bits) < 0)
                return false;
        return bits == 0 || (ntohl(a.s_addr) ^ ntohl(net.s_addr)) >> (32 - bits) == 0;
}
