#include "boxhost/wire.h"

#include "boxhost/dns_names.h"
#include "boxhost/sys.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define BACKLOG 1024

int wire_listen(const struct net_range *subnet, uint16_t *ret_port, struct err *e)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(net_gateway(subnet)) };
        _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        socklen_t n = sizeof(a);
        int one = 1;

        /* The gateway address exists only while a box does. */
        if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one)) < 0 ||
            bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0 ||
            getsockname(fd, (struct sockaddr *) &a, &n) < 0)
                return err_sys(e, -errno, "cannot listen for the connections of boxes");
        *ret_port = ntohs(a.sin_port);
        return steal_fd(&fd);
}

bool wire_name_ok(const char *name)
{
        size_t n = strlen(name);

        for (size_t i = 0; i < n; i++) {
                char c = name[i];
                if (!(c >= 'a' && c <= 'z') && (i == 0 || (!(c >= '0' && c <= '9') && c != '-')))
                        return false;
        }
        return n > 0 && n <= NET_WIRE_NAME_MAX;
}

static void tell(struct host *h, const struct box *b)
{
        unsigned char message[DNS_NAMES_MESSAGE_MAX];
        size_t n = dns_names_message(b->index, b->names, b->names_len, message);

        dns_tell(&h->dns, message, n);
}

void wire_names_set(struct host *h, struct box *b, char *names, size_t n)
{
        free(b->names);
        b->names = names;
        b->names_len = n;
        tell(h, b);
}

void wire_names_forget(struct host *h, struct box *b)
{
        if (b->names)
                wire_names_set(h, b, NULL, 0);
}

void wire_names_tell_all(struct host *h)
{
        list_for_each (it, &h->boxes) {
                struct box *b = list_entry(it, struct box, link);
                if (b->names)
                        tell(h, b);
        }
}
