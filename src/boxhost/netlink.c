#include "boxhost/netlink.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/netlink.h>
#include <sys/time.h>

int nl_open(int protocol, struct err *e)
{
        struct timeval patience = { .tv_sec = 5 };
        struct sockaddr_nl a = { .nl_family = AF_NETLINK };
        int one = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

        if (fd < 0 || bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0)
                return err_sys(e, -errno, "cannot open a netlink socket");
        (void) setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        return fd;
}

void nl_batch_init(struct nl_batch *b)
{
        b->len = 0;
        b->count = 0;
        b->open = NULL;
}

static void close_open(struct nl_batch *b)
{
        if (b->open)
                b->len += MNL_ALIGN(b->open->nlmsg_len);
        b->open = NULL;
}

void *nl_begin(struct nl_batch *b, uint16_t type, uint16_t flags, size_t n, const char *what)
{
        struct nlmsghdr *h;

        close_open(b);
        /* Requests here are far below 512 bytes; a batch that would not fit is a mistake in the program. */
        if (b->count >= NL_BATCH_MAX || b->len + 512 > sizeof(b->bytes))
                __builtin_trap();
        memset(b->bytes + b->len, 0, 512);
        h = mnl_nlmsg_put_header(b->bytes + b->len);
        h->nlmsg_type = type;
        h->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | NLM_F_ACK | flags);
        h->nlmsg_seq = (uint32_t) b->count + 1;
        b->what[b->count] = what;
        b->ignored[b->count] = 0;
        b->count++;
        b->open = h;
        return mnl_nlmsg_put_extra_header(h, n);
}

struct nlmsghdr *nl_message(struct nl_batch *b)
{
        return b->open;
}

void nl_ignore(struct nl_batch *b, int error)
{
        b->ignored[b->count - 1] = error;
}

static void answer(struct nl_batch *b, const struct nlmsghdr *h, size_t *left, int *ret, struct err *e)
{
        const struct nlmsgerr *ack = mnl_nlmsg_get_payload(h);
        size_t i = h->nlmsg_seq - 1;

        if (h->nlmsg_type != NLMSG_ERROR || i >= b->count)
                return;
        (*left)--;
        if (ack->error != 0 && ack->error != -b->ignored[i] && *ret == 0)
                *ret = err_sys(e, ack->error, "%s", b->what[i]);
}

int nl_send(int fd, struct nl_batch *b, struct err *e)
{
        _Alignas(8) char in[8192];
        size_t left = b->count;
        int ret = 0;

        close_open(b);
        if (send(fd, b->bytes, b->len, 0) != (ssize_t) b->len)
                return err_sys(e, -errno, "cannot send to the kernel's network interface");
        while (left > 0) {
                ssize_t n = recv(fd, in, sizeof(in), 0);
                int rest = (int) n;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(e, -errno, "no answer of the kernel's network interface");
                for (const struct nlmsghdr *h = (const void *) in; mnl_nlmsg_ok(h, rest); h = mnl_nlmsg_next(h, &rest))
                        answer(b, h, &left, &ret, e);
        }
        nl_batch_init(b);
        return ret;
}
