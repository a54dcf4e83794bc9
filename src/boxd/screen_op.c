#include "boxd/conn.h"
#include "boxd/ops.h"
#include "boxd/screen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define START_SECONDS 20

static int connect_unix(const char *path, bool abstract)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        struct timeval limit = { .tv_sec = START_SECONDS };
        size_t n = strlen(path), at = abstract ? 1 : 0;
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        memcpy(a.sun_path + at, path, n);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
            connect(fd, (struct sockaddr *) &a, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + at + n)) < 0)
                return -errno;
        return steal_fd(&fd);
}

static int receive_all(int fd, unsigned char *p, size_t n)
{
        for (size_t have = 0; have < n;) {
                ssize_t k = recv(fd, p + have, n - have, 0);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return k < 0 ? -errno : -ECONNRESET;
                have += (size_t) k;
        }
        return 0;
}

/* An X client that only says hello: the first one starts the server, and the answer means that it is up. */
static int greet(struct err *e)
{
        static const unsigned char hello[12] = { 'l', 0, 11 }; /* little endian, version 11.0, no authorization */
        unsigned char reply[8] = { 0 };
        char reason[256] = "";
        _cleanup_close_ int fd = connect_unix(SCREEN_SOCKET, true);

        if (fd < 0)
                return err_sys(e, fd, "the display " SCREEN_DISPLAY);
        int r = send(fd, hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t) sizeof(hello) ? 0 : -errno;
        if (r == 0)
                r = receive_all(fd, reply, sizeof(reply));
        if (r == -EAGAIN)
                return err_set(e, -ETIMEDOUT, "the X server of this box did not answer within %d s", START_SECONDS);
        if (r < 0)
                return err_set(e, -EIO, "the X server of this box ended at its start");
        if (reply[0] == 1)
                return 0;
        if (receive_all(fd, (unsigned char *) reason, reply[1]) < 0 || !reason[0])
                return err_set(e, -EIO, "the X server of this box refuses clients");
        reason[strcspn(reason, "\n")] = '\0';
        return err_set(e, strstr(reason, "no X server") ? -ENOENT : -EIO, "%s", reason);
}

void op_screen(int fd, struct json *head)
{
        struct err e = { 0 };

        int sock = connect_unix(SCREEN_RFB, false);
        if (sock < 0) {
                if (greet(&e) < 0) {
                        conn_error(fd, &e);
                        return;
                }
                sock = connect_unix(SCREEN_RFB, false);
        }
        if (sock < 0) {
                err_sys(&e, sock, "the X server of this box runs, but its RFB socket");
                conn_error(fd, &e);
                return;
        }
        dial_serve(fd, head, sock);
        close(sock);
}
