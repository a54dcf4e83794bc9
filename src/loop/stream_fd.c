/*
 * Streams on descriptors: sockets by send(2) and recv(2), all else by read(2) and write(2), readiness by uv_poll.
 *
 * Libuv changes a poll registration by two system calls. So interest in reading, once registered, stays registered when
 * the reader leaves and is dropped only when an event comes that nobody wants: a conversation of short messages pays
 * nothing.
 *
 * Sockets are never trusted to be non-blocking: whoever shares the open file description can change that. Every call
 * says MSG_DONTWAIT.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop/loop_impl.h"
#include "loop/stream_fd.h"
#include "loop/stream_impl.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SIGPIPE is ignored anyway */
#endif
#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0
#endif

#define PEER_TEXT 64

_Static_assert(STREAM_READABLE == UV_READABLE && STREAM_WRITABLE == UV_WRITABLE && STREAM_HANGUP == UV_DISCONNECT,
               "events are passed through");

struct fd_stream {
        struct stream s;
        uv_poll_t poll;
        char *peer_text;
        int fd;
        uint16_t port;
        uint8_t addr[16];
        uint8_t family; /* of the peer; AF_UNSPEC when it has no address */
        uint8_t registered, desired;
        bool socket, polled, always; /* always: files, which are ready at any time and cannot be polled */
        bool shared;                 /* a stranger has a copy of the descriptor */
};

static const struct stream_ops fd_ops, tcp_ops;

static struct fd_stream *fd_of(const struct stream *s)
{
        return container_of(s, struct fd_stream, s);
}

static ssize_t fd_try_read(struct stream *s, void *p, size_t n)
{
        struct fd_stream *f = fd_of(s);
        ssize_t r;

        if (f->fd < 0)
                return 0;
        do
                r = f->socket ? recv(f->fd, p, n, MSG_DONTWAIT) : read(f->fd, p, n);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return would_block(errno) ? -EAGAIN : -errno;
        /* Less than asked for means that the kernel has no more now; polling will tell. */
        if (!f->always)
                s->maybe_readable = (size_t) r == n;
        return r;
}

static ssize_t fd_try_write(struct stream *s, const void *p, size_t n)
{
        struct fd_stream *f = fd_of(s);
        ssize_t r;

        if (f->fd < 0)
                return -EPIPE;
        do
                r = f->socket ? send(f->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : write(f->fd, p, n);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return would_block(errno) ? -EAGAIN : -errno;
        return r;
}

static void on_poll(uv_poll_t *h, int status, int events);

static void fd_register(struct fd_stream *f, unsigned events)
{
        if (events)
                uv_poll_start(&f->poll, (int) events, on_poll);
        else
                uv_poll_stop(&f->poll);
        f->registered = (uint8_t) events;
}

static void fd_want(struct stream *s, unsigned events)
{
        struct fd_stream *f = fd_of(s);

        f->desired = (uint8_t) events;
        if (f->always) {
                if (events & ~STREAM_HANGUP)
                        stream_kick(s, events & ~STREAM_HANGUP);
                return;
        }
        if (!f->polled)
                return;
        /* Too much is dropped at once only for writing, which would report at every turn. */
        unsigned lazy = events | (f->registered & STREAM_READABLE);
        if (f->registered != lazy)
                fd_register(f, lazy);
        /* What nobody waits for must not keep the loop alive. */
        if (events)
                uv_ref((uv_handle_t *) &f->poll);
        else
                uv_unref((uv_handle_t *) &f->poll);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
        struct fd_stream *f = container_of(h, struct fd_stream, poll);
        unsigned got = (unsigned) events;

        if (status < 0) {
                /* An error condition: libuv has stopped the handle. Reading or writing finds out which. */
                f->registered = 0;
                got = f->desired;
        } else if (got & ~f->desired) {
                fd_register(f, f->desired);
        }
        got &= f->desired;
        if (got)
                stream_ready(&f->s, got);
}

static void fd_closed(uv_handle_t *h)
{
        stream_unref(&container_of((uv_poll_t *) h, struct fd_stream, poll)->s);
}

static void fd_release(struct fd_stream *f)
{
        if (f->polled) {
                f->polled = false;
                if (uv_is_closing((uv_handle_t *) &f->poll))
                        stream_unref(&f->s); /* loop_done was here before the owner */
                else
                        uv_close((uv_handle_t *) &f->poll, fd_closed);
        }
        if (f->shared)
                shared_fd_close(f->fd);
        else
                closep(&f->fd);
        f->fd = -1;
}

static void fd_close(struct stream *s)
{
        struct fd_stream *f = fd_of(s);

        fd_release(f);
        freep(&f->peer_text);
        f->peer_text = NULL;
}

static int fd_shutdown(struct stream *s)
{
        struct fd_stream *f = fd_of(s);

        if (f->fd < 0)
                return 0;
        if (!f->socket) {
                /* The only way to end a pipe. A terminal or file given as both ends would be lost for reading, too:
                 * left alone. */
                int mode = fcntl(f->fd, F_GETFL);

                if (mode >= 0 && (mode & O_ACCMODE) == O_WRONLY)
                        fd_release(f);
                return 0;
        }
        if (shutdown(f->fd, SHUT_WR) < 0 && errno != ENOTCONN)
                return -errno;
        return 0;
}

static int fd_fd(const struct stream *s)
{
        return fd_of(s)->fd;
}

static const char *fd_peer(struct stream *s)
{
        struct fd_stream *f = fd_of(s);
        char host[INET6_ADDRSTRLEN];

        if (f->family != AF_INET && f->family != AF_INET6)
                return f->socket ? "unix" : "pipe";
        if (!f->peer_text) {
                if (!inet_ntop(f->family, f->addr, host, sizeof(host)))
                        return "?";
                f->peer_text = xasprintf(f->family == AF_INET ? "%s:%u" : "[%s]:%u", host, f->port);
        }
        return f->peer_text;
}

static const struct stream_ops fd_ops = { fd_try_read, fd_try_write, fd_want, fd_shutdown,
                                          fd_close,    fd_fd,        fd_peer, false };
static const struct stream_ops tcp_ops = { fd_try_read, fd_try_write, fd_want, fd_shutdown,
                                           fd_close,    fd_fd,        fd_peer, true };

/* An IPv4 address that came through an IPv6 socket is an IPv4 address. */
static void remember_peer(struct fd_stream *f, const struct sockaddr *sa)
{
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

        f->family = (uint8_t) sa->sa_family;
        if (sa->sa_family == AF_INET) {
                const struct sockaddr_in *in = (const void *) sa;

                memcpy(f->addr, &in->sin_addr, 4);
                f->port = ntohs(in->sin_port);
        } else if (sa->sa_family == AF_INET6) {
                const struct sockaddr_in6 *in6 = (const void *) sa;

                memcpy(f->addr, &in6->sin6_addr, 16);
                f->port = ntohs(in6->sin6_port);
                if (memcmp(f->addr, mapped, sizeof(mapped)) == 0) {
                        memmove(f->addr, f->addr + 12, 4);
                        f->family = AF_INET;
                }
        }
}

int fd_stream_new(int fd, const struct sockaddr *peer, struct stream **ret)
{
        struct sockaddr_storage ss = { 0 };
        socklen_t len = sizeof(ss);
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        struct fd_stream *f = xcalloc(1, sizeof(*f));
        f->fd = fd;
        f->socket = S_ISSOCK(st.st_mode);
        if (f->socket && !peer && getpeername(fd, (struct sockaddr *) &ss, &len) == 0)
                peer = (const struct sockaddr *) &ss;
        if (f->socket && peer)
                remember_peer(f, peer);
        bool tcp = f->family == AF_INET || f->family == AF_INET6;
        stream_setup(&f->s, tcp ? &tcp_ops : &fd_ops);
        int r = fd_prepare(fd);
        if (r == 0)
                r = uv_poll_init(loop_uv(), &f->poll, fd);
        if (r == UV_EPERM && !f->socket) {
                f->always = true;
                r = 0;
        } else if (r == 0) {
                f->polled = true;
                stream_ref(&f->s); /* held by the handle until it is closed */
                uv_unref((uv_handle_t *) &f->poll);
        }
        if (r < 0) {
                free(f);
                return r;
        }
        if (tcp)
                (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        *ret = &f->s;
        return 0;
}

int stream_from_fd(int fd, struct stream **ret, struct err *e)
{
        int r = fd_stream_new(fd, NULL, ret);

        return r < 0 ? err_sys(e, r, "cannot use descriptor %d as a stream", fd) : 0;
}

int stream_from_shared_fd(int fd, struct stream **ret, struct err *e)
{
        int r = stream_from_fd(fd, ret, e);

        if (r == 0)
                fd_of(*ret)->shared = true;
        return r;
}

/* Keeps the first descriptor of a message. */
static void take_rights(struct msghdr *m, int *ret_fd)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
                        if (*ret_fd < 0)
                                *ret_fd = fd;
                        else
                                shared_fd_close(fd);
                }
        }
}

ssize_t coroutine_fn stream_read_fd(struct stream *s, void *p, size_t n, int *ret_fd, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        union {
                char room[CMSG_SPACE(sizeof(int))]; /* what does not fit is closed by the kernel */
                struct cmsghdr align;
        } u;

        if (s->ops != &fd_ops || !fd_of(s)->socket)
                return -EINVAL;
        for (;;) {
                struct iovec iov = { p, n };
                struct msghdr m = {
                        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room)
                };
                int r = stream_wait_readable(s, deadline_left(until));

                if (r < 0)
                        return r;
                if (s->in.len || s->in_err)
                        return stream_try_read(s, p, n);
                ssize_t got = recvmsg(fd_of(s)->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (got >= 0) {
                        take_rights(&m, ret_fd);
                        return got;
                }
                if (errno != EINTR && !would_block(errno))
                        return -errno;
                s->maybe_readable = false;
        }
}
