/* Connecting: the addresses of a name one after the other, the time left divided among those still to be tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "loop/loop_impl.h"
#include "loop/resolve.h"
#include "loop/stream_fd.h"
#include "loop/stream_impl.h"
#include "loop/wait.h"

#define UNIX_RETRY_MS 10

static int coroutine_fn wait_connected(struct stream *s, int64_t timeout_ms)
{
        int64_t until = deadline_in(timeout_ms);
        int error = EINPROGRESS, r = 0;
        socklen_t len = sizeof(error);

        s->connecting = true;
        s->writer = coro_self();
        stream_update(s);
        r = coro_park(deadline_left(until));
        s->writer = NULL;
        s->connecting = false;
        stream_update(s);
        if (r < 0)
                return r;
        if (getsockopt(stream_fd(s), SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                return -errno;
        return -error;
}

/* -EAGAIN: a Unix listener's backlog is full. */
static int coroutine_fn connect_one(const struct sockaddr *sa, socklen_t len, int64_t timeout_ms, struct stream **ret)
{
        _cleanup_(stream_closep) struct stream *s = NULL;
        _cleanup_close_ int fd = -1;
        bool pending = false;
        int r;

        fd = socket_prepared(sa->sa_family, SOCK_STREAM);
        if (fd < 0)
                return fd;
        if (connect(fd, sa, len) < 0) {
                if (errno != EINPROGRESS && errno != EINTR)
                        return -errno;
                pending = true;
        }
        r = fd_stream_new(fd, sa, &s);
        if (r < 0)
                return r;
        (void) steal_fd(&fd);
        if (pending)
                r = wait_connected(s, timeout_ms);
        if (r == 0)
                *ret = steal_ptr(s);
        return r;
}

static bool literal(const char *host, unsigned port, struct sockaddr_storage *ret, socklen_t *len)
{
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t) port) };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t) port) };

        if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
                memcpy(ret, &in, sizeof(in));
                *len = sizeof(in);
                return true;
        }
        if (inet_pton(AF_INET6, host, &in6.sin6_addr) == 1) {
                memcpy(ret, &in6, sizeof(in6));
                *len = sizeof(in6);
                return true;
        }
        return false;
}

static void set_port(struct sockaddr *sa, unsigned port)
{
        if (sa->sa_family == AF_INET)
                ((struct sockaddr_in *) (void *) sa)->sin_port = htons((uint16_t) port);
        else if (sa->sa_family == AF_INET6)
                ((struct sockaddr_in6 *) (void *) sa)->sin6_port = htons((uint16_t) port);
}

static int coroutine_fn connect_any(struct addrinfo *found, unsigned port, int64_t timeout_ms, struct stream **ret)
{
        int64_t until = deadline_in(timeout_ms);
        int r = -EHOSTUNREACH;
        int left = 0;

        for (struct addrinfo *a = found; a; a = a->ai_next)
                left++;
        for (struct addrinfo *a = found; a; a = a->ai_next, left--) {
                if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
                        continue;
                set_port(a->ai_addr, port);
                int64_t ms = deadline_left(until);
                r = connect_one(a->ai_addr, a->ai_addrlen, ms > 0 ? ms / left : ms, ret);
                if (r == 0 || r == -ECANCELED)
                        return r;
        }
        return r;
}

int coroutine_fn stream_connect_tcp(const char *host, unsigned port, int64_t timeout_ms, struct stream **ret,
                                    struct err *e)
{
        int64_t until = deadline_in(timeout_ms);
        struct sockaddr_storage ss;
        struct addrinfo *found = NULL;
        socklen_t len;
        int r;

        if (port == 0 || port > 65535)
                return err_set(e, -EINVAL, "%u is no port", port);
        r = coro_check();
        if (r == 0 && literal(host, port, &ss, &len)) {
                r = connect_one((struct sockaddr *) &ss, len, timeout_ms, ret);
        } else if (r == 0) {
                r = resolve_all(host, timeout_ms, &found, e);
                if (r < 0)
                        return r;
                r = connect_any(found, port, deadline_left(until), ret);
                freeaddrinfo(found);
        }
        return r < 0 ? err_sys(e, r, "cannot connect to %s port %u", host, port) : 0;
}

int coroutine_fn stream_connect_unix(const char *path, int64_t timeout_ms, struct stream **ret, struct err *e)
{
        struct sockaddr_un sun = { .sun_family = AF_UNIX };
        int64_t until = deadline_in(timeout_ms);
        size_t n = strlen(path);
        int r = coro_check();

        if (n >= sizeof(sun.sun_path))
                return err_set(e, -ENAMETOOLONG, "the socket path %s is too long", path);
        memcpy(sun.sun_path, path, n);
        while (r == 0) {
                r = connect_one((struct sockaddr *) &sun, sizeof(sun), deadline_left(until), ret);
                if (r == 0)
                        return 0;
                if (r != -EAGAIN)
                        break;
                /* The backlog is full, and poll knows no event for room in it. */
                r = deadline_left(until) == 0 ? -ETIMEDOUT : coro_sleep(UNIX_RETRY_MS);
        }
        return err_sys(e, r, "cannot connect to %s", path);
}
