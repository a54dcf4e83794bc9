#include "driver/local_wire.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void local_wire_init(struct local_wire *w, struct driver *d)
{
        *w = (struct local_wire){ .driver = d, .boxes = map_new() };
}

/* Where a connection came from and wanted to go, as the kernel knows it; false for one that was not led here. */
static bool ends_of(int fd, struct sockaddr_in *from, struct sockaddr_in *to)
{
        socklen_t from_len = sizeof *from, to_len = sizeof *to;

        return getpeername(fd, (struct sockaddr *) from, &from_len) == 0 && from->sin_family == AF_INET &&
               getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, to, &to_len) == 0 && to->sin_family == AF_INET;
}

static void accepted(struct stream *s, void *arg)
{
        struct local_wire *w = arg;
        struct sockaddr_in from = { 0 }, to = { 0 };
        char address[INET_ADDRSTRLEN];
        int fd = stream_fd(s), one = 1;

        if (!ends_of(fd, &from, &to) || !inet_ntop(AF_INET, &from.sin_addr, address, sizeof address)) {
                stream_close(s);
                return;
        }
        const char *box = map_get(w->boxes, str_of(address));
        size_t name = ntohl(to.sin_addr.s_addr) - w->first;

        if (!box || name >= w->count || !w->driver->on_wire) {
                log_debug("a connection from %s to no name of a box is closed", address);
                stream_close(s);
                return;
        }
        /* A box that goes away takes its interface along and says no goodbye. */
        (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        w->driver->on_wire(s, box, name, ntohs(to.sin_port), w->driver->arg);
}

int local_wire_open(struct local_wire *w, int *fd, const char *first, int64_t count, struct err *e)
{
        struct in_addr address;

        if (*fd < 0 || inet_pton(AF_INET, first, &address) != 1 || count < 0)
                return err_set(e, -EPROTO, "boxhost gave no usable socket for connections of boxes");
        local_wire_close(w);
        int r = listen_fd(*fd, accepted, w, &w->listener, e);
        if (r < 0)
                return r;
        (void) steal_fd(fd);
        w->first = ntohl(address.s_addr);
        w->count = count < DRIVER_NAMES_MAX ? (size_t) count : DRIVER_NAMES_MAX;
        return 0;
}

bool local_wire_is_open(const struct local_wire *w)
{
        return w->listener != NULL;
}

void local_wire_close(struct local_wire *w)
{
        listener_close(steal_ptr(w->listener));
}

static int free_one(struct str key, void *value, void *arg)
{
        (void) key;
        (void) arg;
        free(value);
        return 0;
}

void local_wire_done(struct local_wire *w)
{
        (void) map_each(w->boxes, free_one, NULL);
        map_free(w->boxes);
}

void local_wire_note(struct local_wire *w, const char *address, const char *box)
{
        const char *known = map_get(w->boxes, str_of(address));

        if (!address[0] || cstr_eq(known, box))
                return;
        local_wire_forget(w, box);
        free(map_put(w->boxes, str_of(address), xstrdup(box)));
}

struct forgetting {
        struct map *boxes;
        const char *box;
};

static int forget_one(struct str key, void *value, void *arg)
{
        const struct forgetting *f = arg;

        if (cstr_eq(value, f->box))
                free(map_del(f->boxes, key));
        return 0;
}

void local_wire_forget(struct local_wire *w, const char *box)
{
        struct forgetting f = { w->boxes, box };

        (void) map_each(w->boxes, forget_one, &f);
}

int local_wire_address(const struct local_wire *w, size_t name, char ret[DRIVER_ADDRESS_MAX], struct err *e)
{
        struct in_addr address = { .s_addr = htonl(w->first + (uint32_t) name) };

        if (name >= w->count || !inet_ntop(AF_INET, &address, ret, DRIVER_ADDRESS_MAX))
                return err_set(e, -EINVAL, "a box has at most %zu names with an address", w->count);
        return 0;
}
