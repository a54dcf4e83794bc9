#include "boxd/conn.h"
#include "boxd/ops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (64u << 10)
#define CONNECT_MS 10000

struct dial {
        int conn, sock;
        struct conn in; /* frames from the server; only its parsing state is used */
        unsigned char header[GUEST_HEADER_LEN];
        size_t have;
        char up[PIECE]; /* server → port */
        size_t up_len, up_off;
        bool up_end, up_done;                /* the server's end was seen; and passed on */
        char down[GUEST_HEADER_LEN + PIECE]; /* a frame on its way to the server */
        size_t down_len, down_off;
        bool down_end;
};

static int connect_to(int family, int port)
{
        struct sockaddr_in v4 = { .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t) port),
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        const struct sockaddr *a = family == AF_INET ? (const void *) &v4 : (const void *) &v6;
        _cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int error = 0, one = 1;
        socklen_t n = sizeof(error);

        if (fd < 0)
                return -errno;
        if (connect(fd, a, family == AF_INET ? sizeof(v4) : sizeof(v6)) < 0) {
                struct pollfd p = { .fd = fd, .events = POLLOUT };

                if (errno != EINPROGRESS)
                        return -errno;
                if (poll(&p, 1, CONNECT_MS) <= 0)
                        return -ETIMEDOUT;
                if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error)
                        return error ? -error : -errno;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return steal_fd(&fd);
}

/* Reads frames of stream 4 into up. False: the server is gone or broke the protocol. */
static bool read_up(struct dial *d)
{
        ssize_t n;

        if (d->in.left == 0) {
                struct guest_header h;

                n = recv(d->conn, d->header + d->have, sizeof(d->header) - d->have, MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n <= 0)
                        return false;
                d->have += (size_t) n;
                if (d->have < sizeof(d->header))
                        return true;
                d->have = 0;
                if (guest_decode(d->header, &h) < 0 || h.stream != GUEST_DATA)
                        return false;
                d->in.left = h.length;
                d->in.last = h.flags & GUEST_END;
        } else {
                n = recv(d->conn, d->up, min_size(sizeof(d->up), d->in.left), MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n <= 0)
                        return false;
                d->in.left -= (uint32_t) n;
                d->up_len = (size_t) n;
                d->up_off = 0;
        }
        if (d->in.left == 0 && d->in.last)
                d->up_end = true;
        return true;
}

static bool write_up(struct dial *d)
{
        while (d->up_off < d->up_len) {
                ssize_t n = send(d->sock, d->up + d->up_off, d->up_len - d->up_off, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n < 0)
                        return false;
                d->up_off += (size_t) n;
        }
        if (d->up_end && !d->up_done) {
                shutdown(d->sock, SHUT_WR);
                d->up_done = true;
        }
        return true;
}

static bool read_down(struct dial *d)
{
        ssize_t n = recv(d->sock, d->down + GUEST_HEADER_LEN, PIECE, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
        d->down_end = n <= 0;
        n = n > 0 ? n : 0;
        guest_encode(&(struct guest_header){ GUEST_DATA, d->down_end ? GUEST_END : 0, (uint32_t) n },
                     (unsigned char *) d->down);
        d->down_len = GUEST_HEADER_LEN + (size_t) n;
        d->down_off = 0;
        return true;
}

static bool write_down(struct dial *d)
{
        while (d->down_off < d->down_len) {
                ssize_t n =
                        send(d->conn, d->down + d->down_off, d->down_len - d->down_off, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n < 0)
                        return false;
                d->down_off += (size_t) n;
        }
        return true;
}

static void relay(struct dial *d)
{
        for (;;) {
                bool up_room = d->up_off >= d->up_len && !d->up_end, down_room = d->down_off >= d->down_len;

                if (down_room && d->down_end && d->up_done)
                        return;
                if (down_room && d->down_end && !up_room && d->up_off >= d->up_len)
                        return;
                struct pollfd p[2] = {
                        { d->conn, (short) ((up_room ? POLLIN : 0) | (down_room ? 0 : POLLOUT)), 0 },
                        { d->sock, (short) ((down_room && !d->down_end ? POLLIN : 0) | (up_room ? 0 : POLLOUT)), 0 },
                };
                if (d->up_done)
                        p[1].events &= (short) ~POLLOUT;
                if (d->down_end && !p[1].events) /* nothing is wanted from the port: its hang-up is known */
                        p[1].fd = -1;
                if (poll(p, 2, -1) < 0 && errno != EINTR)
                        return;
                if (p[0].revents & (POLLERR | POLLHUP) && !(p[0].revents & POLLIN))
                        return;
                if (p[0].revents & POLLIN && (!read_up(d) || !write_up(d)))
                        return;
                if (p[1].revents & (POLLIN | POLLHUP | POLLERR) && down_room && !d->down_end &&
                    (!read_down(d) || !write_down(d)))
                        return;
                if (p[0].revents & POLLOUT && !write_down(d))
                        return;
                if (p[1].revents & POLLOUT && !write_up(d))
                        return;
        }
}

/*
 * The result with the connected socket beside it: from here on no byte of it goes through boxd. 0, or -errno when this
 * connection carries no descriptors (it is no Unix socket, say) and nothing was sent.
 */
static int pass(int fd, int sock)
{
        static const char text[] = "{\"passed\":true,\"done\":true}";
        unsigned char frame[GUEST_HEADER_LEN + sizeof(text) - 1];
        union {
                char room[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } u = { { 0 } };
        struct iovec iov = { frame, sizeof(frame) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room) };
        struct sockaddr_storage me = { 0 };
        socklen_t len = sizeof(me);
        ssize_t n;

        if (getsockname(fd, (struct sockaddr *) &me, &len) < 0)
                return -errno;
        if (me.ss_family != AF_UNIX)
                return -EOPNOTSUPP;
        guest_encode(&(struct guest_header){ GUEST_CONTROL, 0, sizeof(text) - 1 }, frame);
        memcpy(frame + GUEST_HEADER_LEN, text, sizeof(text) - 1);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &sock, sizeof(int));
        do
                n = sendmsg(fd, &m, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : 0; /* so few bytes go out whole */
}

void dial_serve(int fd, const struct json *head, int sock)
{
        static struct dial dial;
        struct dial *d = &dial;
        struct reply r;

        if (json_get_bool(head, "pass", false) && pass(fd, sock) == 0)
                return;
        d->conn = fd;
        d->sock = sock;
        reply_init(&r);
        jw_kstr(&r.w, "event", "connected");
        if (reply_event(&r, fd) < 0)
                return;
        relay(d);
        if (d->down_off < d->down_len) /* the server is gone */
                return;
        reply_init(&r);
        reply_send(&r, fd);
}

void op_dial(int fd, struct json *head)
{
        int64_t port = json_get_int(head, "port", 0);
        struct err e = { 0 };

        if (port < 1 || port > 65535) {
                conn_errorf(fd, -EINVAL, "`port` must be 1 to 65535, got %lld", (long long) port);
                return;
        }
        int sock = connect_to(AF_INET, (int) port);
        if (sock == -ECONNREFUSED) {
                int v6 = connect_to(AF_INET6, (int) port);

                if (v6 >= 0)
                        sock = v6;
        }
        if (sock < 0) {
                if (sock == -ECONNREFUSED)
                        err_set(&e, sock, "nothing listens on port %lld in the box", (long long) port);
                else
                        err_sys(&e, sock, "port %lld", (long long) port);
                conn_error(fd, &e);
                return;
        }
        dial_serve(fd, head, sock);
}
