#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "loop/loop_impl.h"
#include "loop/stream_fd.h"

#define ACCEPTS_PER_EVENT 64
/* Out of descriptors or memory: the backlog keeps those who wait until some are free again. */
#define EXHAUSTED_PAUSE_MS 100

struct listener {
        uv_poll_t poll;
        struct tmo pause;
        int fd;
        void (*on_accept)(struct stream *s, void *arg);
        void *arg;
        char *path; /* removed at the end while it is still ours */
        dev_t dev;
        ino_t ino;
        bool closed;
        bool exhausted; /* and said so */
};

static int accept_prepared(int fd, struct sockaddr_storage *peer)
{
        socklen_t len = sizeof(*peer);

        memset(peer, 0, sizeof(*peer));
#if defined(__linux__)
        int r = accept4(fd, (struct sockaddr *) peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        return r < 0 ? -errno : r;
#else
        int r = accept(fd, (struct sockaddr *) peer, &len);

        return r < 0 ? -errno : r; /* prepared by fd_stream_new */
#endif
}

static void listener_free(struct listener *l)
{
        free(l->path);
        free(l);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
        struct listener *l = container_of(h, struct listener, poll);

        (void) events;
        if (status < 0)
                uv_poll_start(&l->poll, UV_READABLE, on_readable);
        for (int i = 0; i < ACCEPTS_PER_EVENT && !l->closed; i++) {
                struct sockaddr_storage peer;
                _cleanup_close_ int fd = accept_prepared(l->fd, &peer);
                struct stream *s = NULL;

                if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
                        if (!l->exhausted)
                                log_warning("cannot accept connections for now: %s", strerror(-fd));
                        l->exhausted = true;
                        uv_poll_stop(&l->poll);
                        tmo_start(&l->pause, EXHAUSTED_PAUSE_MS);
                        break;
                }
                if (would_block(-fd))
                        break;
                /* Anything else is about one connection that failed before it was accepted. */
                if (fd < 0)
                        continue;
                if (fd_stream_new(fd, (struct sockaddr *) &peer, &s) < 0)
                        continue;
                (void) steal_fd(&fd);
                l->exhausted = false;
                /* May close this listener; its memory stays until the handle's close callback. */
                l->on_accept(s, l->arg);
        }
}

static void pause_over(struct tmo *t)
{
        struct listener *l = container_of(t, struct listener, pause);

        uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

int listen_fd(int fd, void (*on_accept)(struct stream *s, void *arg), void *arg, struct listener **ret, struct err *e)
{
        struct listener *l = xcalloc(1, sizeof(*l));
        int r = fd_prepare(fd);

        l->fd = fd;
        l->on_accept = on_accept;
        l->arg = arg;
        l->pause.fn = pause_over;
        if (r == 0)
                r = uv_poll_init(loop_uv(), &l->poll, fd);
        if (r < 0) {
                free(l);
                return err_sys(e, r, "cannot listen on descriptor %d", fd);
        }
        uv_poll_start(&l->poll, UV_READABLE, on_readable);
        *ret = l;
        return 0;
}

int listen_tcp(const char *addr, unsigned port, int backlog, void (*on_accept)(struct stream *s, void *arg), void *arg,
               struct listener **ret, struct err *e)
{
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t) port) };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t) port) };
        const struct sockaddr *sa = NULL;
        _cleanup_close_ int fd = -1;
        const int on = 1, off = 0;
        socklen_t len = 0;
        int r;

        if (port > 65535)
                return err_set(e, -EINVAL, "%u is no port", port);
        if (cstr_eq(addr, "localhost"))
                addr = "127.0.0.1";
        if (inet_pton(AF_INET, addr, &in.sin_addr) == 1) {
                sa = (struct sockaddr *) &in;
                len = sizeof(in);
        } else if (inet_pton(AF_INET6, addr, &in6.sin6_addr) == 1) {
                sa = (struct sockaddr *) &in6;
                len = sizeof(in6);
        } else {
                return err_set(e, -EINVAL, "%s is no IPv4 or IPv6 address", addr);
        }
        fd = socket_prepared(sa->sa_family, SOCK_STREAM);
        if (fd < 0)
                return err_sys(e, fd, "cannot make a socket for %s", addr);
        (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        /* "::" means every address of the machine, IPv4 included, whatever the system's default. */
        if (sa->sa_family == AF_INET6)
                (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(fd, sa, len) < 0 || listen(fd, backlog > 0 ? backlog : SOMAXCONN) < 0)
                return err_sys(e, -errno, "cannot listen on %s port %u", addr, port);
        r = listen_fd(fd, on_accept, arg, ret, e);
        if (r == 0)
                (void) steal_fd(&fd);
        return r;
}

/* A socket file that nobody serves is a leftover; one that answers belongs to another server. */
static int remove_stale(const struct sockaddr_un *sun)
{
        struct stat st;

        if (lstat(sun->sun_path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        _cleanup_close_ int fd = socket_prepared(AF_UNIX, SOCK_STREAM);
        if (fd < 0)
                return fd;
        if (connect(fd, (const struct sockaddr *) sun, sizeof(*sun)) == 0 || errno != ECONNREFUSED)
                return -EADDRINUSE;
        return unlink(sun->sun_path) < 0 ? -errno : 0;
}

int listen_unix(const char *path, mode_t mode, void (*on_accept)(struct stream *s, void *arg), void *arg,
                struct listener **ret, struct err *e)
{
        struct sockaddr_un sun = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = -1;
        size_t n = strlen(path);
        struct stat st;
        int r;

        if (n >= sizeof(sun.sun_path))
                return err_set(e, -ENAMETOOLONG, "the socket path %s is too long", path);
        memcpy(sun.sun_path, path, n);
        r = remove_stale(&sun);
        if (r < 0)
                return err_sys(e, r, "cannot listen on %s", path);
        fd = socket_prepared(AF_UNIX, SOCK_STREAM);
        if (fd < 0)
                return err_sys(e, fd, "cannot make a socket for %s", path);
        /* Between bind and listen every connection is refused: nobody gets in before the mode is right. */
        if (bind(fd, (struct sockaddr *) &sun, sizeof(sun)) < 0)
                return err_sys(e, -errno, "cannot listen on %s", path);
        if (chmod(path, mode) < 0 || listen(fd, SOMAXCONN) < 0 || lstat(path, &st) < 0) {
                r = -errno;
                (void) unlink(path);
                return err_sys(e, r, "cannot listen on %s", path);
        }
        r = listen_fd(fd, on_accept, arg, ret, e);
        if (r < 0) {
                (void) unlink(path);
                return r;
        }
        (void) steal_fd(&fd);
        (*ret)->path = xstrdup(path);
        (*ret)->dev = st.st_dev;
        (*ret)->ino = st.st_ino;
        return 0;
}

unsigned listener_port(const struct listener *l)
{
        struct sockaddr_storage ss = { 0 };
        socklen_t len = sizeof(ss);

        if (getsockname(l->fd, (struct sockaddr *) &ss, &len) < 0)
                return 0;
        if (ss.ss_family == AF_INET)
                return ntohs(((struct sockaddr_in *) &ss)->sin_port);
        return ss.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *) &ss)->sin6_port) : 0;
}

static void on_closed(uv_handle_t *h)
{
        listener_free(container_of((uv_poll_t *) h, struct listener, poll));
}

void listener_close(struct listener *l)
{
        struct stat st;

        if (!l)
                return;
        l->closed = true;
        tmo_stop(&l->pause);
        if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
                (void) unlink(l->path);
        bool gone = uv_is_closing((uv_handle_t *) &l->poll); /* loop_done was here before the owner */
        if (!gone)
                uv_close((uv_handle_t *) &l->poll, on_closed);
        closep(&l->fd);
        l->fd = -1;
        if (gone)
                listener_free(l);
}

void listener_closep(struct listener **l)
{
        listener_close(*l);
        *l = NULL;
}
