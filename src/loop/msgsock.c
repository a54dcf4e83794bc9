#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "loop/loop_impl.h"
#include "loop/stream.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0 /* fd_prepare does it a moment later */
#endif

struct msgsock {
        uv_poll_t poll;
        int fd;
        struct coro *reader, *writer;
        unsigned refs;
        unsigned registered;
        bool closed;
};

static void unref(struct msgsock *m)
{
        if (--m->refs == 0)
                free(m);
}

static void on_event(uv_poll_t *h, int status, int events);

/* Interest follows the waiting coroutines, except that a reader that has left is taken out only at the next event. */
static void update(struct msgsock *m, bool exact)
{
        unsigned want = (m->reader ? UV_READABLE : 0u) | (m->writer ? UV_WRITABLE : 0u);
        unsigned now = exact ? want : want | (m->registered & UV_READABLE);

        if (m->closed)
                return;
        if (now != m->registered) {
                if (now)
                        uv_poll_start(&m->poll, (int) now, on_event);
                else
                        uv_poll_stop(&m->poll);
                m->registered = now;
        }
        if (want)
                uv_ref((uv_handle_t *) &m->poll);
        else
                uv_unref((uv_handle_t *) &m->poll);
}

static void on_event(uv_poll_t *h, int status, int events)
{
        struct msgsock *m = container_of(h, struct msgsock, poll);

        if (status < 0) {
                m->registered = 0;
                events = UV_READABLE | UV_WRITABLE;
        }
        if ((events & UV_READABLE) && m->reader)
                coro_wake(m->reader);
        if ((events & UV_WRITABLE) && m->writer)
                coro_wake(m->writer);
        update(m, true);
}

int msgsock_from_fd(int fd, struct msgsock **ret, struct err *e)
{
        struct msgsock *m = xcalloc(1, sizeof(*m));
        int r = fd_prepare(fd);

        if (r == 0)
                r = uv_poll_init(loop_uv(), &m->poll, fd);
        if (r < 0) {
                free(m);
                return err_sys(e, r, "cannot use descriptor %d as a message socket", fd);
        }
        m->fd = fd;
        m->refs = 2; /* the owner and the handle */
        uv_unref((uv_handle_t *) &m->poll);
        *ret = m;
        return 0;
}

static int coroutine_fn wait_for(struct msgsock *m, struct coro **who, int64_t timeout_ms)
{
        int r;

        if (*who)
                return -EBUSY;
        m->refs++;
        *who = coro_self();
        update(m, false);
        r = coro_park(timeout_ms);
        *who = NULL;
        update(m, false);
        if (m->closed)
                r = -ECANCELED;
        unref(m);
        return r;
}

int coroutine_fn msgsock_send(struct msgsock *m, const void *p, size_t n, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        int r = coro_check();

        while (r == 0) {
                ssize_t sent = send(m->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (sent >= 0)
                        return 0;
                if (errno == EINTR)
                        continue;
                if (!would_block(errno))
                        return -errno;
                r = wait_for(m, &m->writer, deadline_left(until));
        }
        return r;
}

/* The descriptor that came with a message; more than one cannot fit. */
static int take_fd(struct msghdr *msg)
{
        struct cmsghdr *c = CMSG_FIRSTHDR(msg);
        int fd;

        if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(fd)))
                return -1;
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
        if (fd_prepare(fd) == 0)
                return fd;
        closep(&fd);
        return -1;
}

static ssize_t receive(int from, void *p, size_t n, int *ret_fd)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec iov = { .iov_base = p, .iov_len = n };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

        if (ret_fd) {
                msg.msg_control = control.bytes;
                msg.msg_controllen = sizeof(control.bytes);
        }
        ssize_t got = recvmsg(from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0)
                return -errno;
        if (ret_fd)
                *ret_fd = take_fd(&msg);
        if (!(msg.msg_flags & MSG_TRUNC))
                return got;
        if (ret_fd) {
                closep(ret_fd);
                *ret_fd = -1;
        }
        return -EMSGSIZE;
}

ssize_t coroutine_fn msgsock_recv(struct msgsock *m, void *p, size_t n, int64_t timeout_ms)
{
        return msgsock_recv_fd(m, p, n, NULL, timeout_ms);
}

ssize_t coroutine_fn msgsock_recv_fd(struct msgsock *m, void *p, size_t n, int *ret_fd, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        int r = coro_check();

        while (r == 0) {
                ssize_t got = receive(m->fd, p, n, ret_fd);

                if (got >= 0)
                        return got;
                if (got == -EINTR)
                        continue;
                if (got == -ECONNRESET)
                        return 0; /* gone with messages of ours unread */
                if (!would_block((int) -got))
                        return got;
                r = wait_for(m, &m->reader, deadline_left(until));
        }
        return r;
}

static void on_closed(uv_handle_t *h)
{
        unref(container_of((uv_poll_t *) h, struct msgsock, poll));
}

void msgsock_close(struct msgsock *m)
{
        if (!m)
                return;
        m->closed = true;
        if (m->reader)
                coro_wake(m->reader);
        if (m->writer)
                coro_wake(m->writer);
        if (uv_is_closing((uv_handle_t *) &m->poll))
                unref(m); /* loop_done was here before the owner */
        else
                uv_close((uv_handle_t *) &m->poll, on_closed);
        closep(&m->fd);
        m->fd = -1;
        unref(m);
}
