/* What a box sends to the name forwarder: no read or write beyond the packet, and an answer is one to that question. */
#include "fuzz.h"

#include "base/mem.h"
#include "boxhost/dns_names.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char names[] = "db\0front-end\0a-very-long-name-for-a-service-of-a-box";
        static struct dns_names table;
        unsigned char message[DNS_NAMES_MESSAGE_MAX], out[600];

        if (size > 512)
                return 0;
        if (!table.box[0].text) {
                (void) net_range_parse("198.18.0.0/16", &table.subnet);
                dns_names_take(&table, message, dns_names_message(0, names, sizeof names, message));
        }
        dns_names_take(&table, data, size); /* as if boxhost said it */
        if (size >= 4 && memcmp(data, "\0\0\0\0", 4) == 0)
                dns_names_take(&table, message, dns_names_message(0, names, sizeof names, message));
        size_t n = dns_names_answer(&table, net_address(&table.subnet, 0), data, size, out, sizeof out);
        if (n == 0)
                return 0;
        if (n > sizeof out || n < 17 || memcmp(out, data, 2) != 0 || !(out[2] & 0x80) || (out[7] && n < 33))
                abort();
        return 0;
}
