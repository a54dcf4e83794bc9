#include "boxhost/dns_names.h"

#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 12
#define TYPE_A 1
#define CLASS_IN 1

size_t dns_names_message(unsigned index, const char *names, size_t n, unsigned char out[DNS_NAMES_MESSAGE_MAX])
{
        uint32_t at = index;

        n = min_size(n, DNS_NAMES_MESSAGE_MAX - sizeof(at));
        memcpy(out, &at, sizeof(at));
        if (n > 0)
                memcpy(out + sizeof(at), names, n);
        return sizeof(at) + n;
}

void dns_names_take(struct dns_names *d, const unsigned char *p, size_t n)
{
        uint32_t index;

        if (n < sizeof(index) || n > DNS_NAMES_MESSAGE_MAX)
                return;
        memcpy(&index, p, sizeof(index));
        p += sizeof(index);
        n -= sizeof(index);
        if (index >= NET_INDEX_MAX || (n > 0 && p[n - 1] != '\0'))
                return;
        free(d->box[index].text);
        d->box[index].text = n > 0 ? xmemdup(p, n) : NULL;
        d->box[index].n = n;
}

void dns_names_done(struct dns_names *d)
{
        for (size_t i = 0; i < NET_INDEX_MAX; i++)
                freep(&d->box[i].text);
}

/* The place of a name among those of a box, or -1. Names have one label, so the question's first is all of it. */
static int place_of(const struct dns_names *d, uint32_t client, struct str name)
{
        uint32_t first = net_address(&d->subnet, 0);
        const char *at;
        size_t left;

        if (client < first || client - first >= NET_INDEX_MAX)
                return -1;
        at = d->box[client - first].text;
        left = d->box[client - first].n;
        for (int place = 0; left > 0; place++) {
                struct str one = str_n(at, strlen(at));
                if (str_ieq(one, name))
                        return place;
                at += one.n + 1;
                left -= one.n + 1;
        }
        return -1;
}

size_t dns_names_answer(const struct dns_names *d, uint32_t client, const unsigned char *p, size_t n,
                        unsigned char *out, size_t room)
{
        /* a pointer to the name of the question, type A, class IN, no time to live, four bytes */
        unsigned char record[16] = { 0xc0, HEADER, 0, TYPE_A, 0, CLASS_IN, 0, 0, 0, 0, 0, 4 };
        size_t label, end;
        uint32_t address;
        bool with_address;
        int place;

        /* one plain question (RFC 1035 §4.1): no answer bit, opcode 0, one entry */
        if (n < HEADER + 7 || (p[2] & 0xf8) != 0 || p[4] != 0 || p[5] != 1)
                return 0;
        label = p[HEADER];
        end = HEADER + 1 + label + 1 + 4;
        if (label == 0 || label > NET_WIRE_NAME_MAX || end > n || p[HEADER + 1 + label] != 0)
                return 0;
        if (p[end - 2] != 0 || p[end - 1] != CLASS_IN || end + sizeof(record) > room)
                return 0;
        place = place_of(d, client, str_n((const char *) p + HEADER + 1, label));
        if (place < 0)
                return 0;
        with_address = p[end - 4] == 0 && p[end - 3] == TYPE_A;
        memcpy(out, p, end);
        out[2] = (unsigned char) (0x84 | (p[2] & 1)); /* an answer, authoritative; recursion as it was asked for */
        out[3] = 0x80;                                /* recursion available, no error */
        memset(out + 6, 0, 6);
        if (!with_address)
                return end;
        out[7] = 1;
        address = htonl(net_wire_address(&d->subnet, (unsigned) place));
        memcpy(record + 12, &address, sizeof(address));
        memcpy(out + end, record, sizeof(record));
        return end + sizeof(record);
}
