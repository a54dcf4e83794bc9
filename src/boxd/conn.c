#include "boxd/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#define PIECE (256u << 10)
#define DRAIN_MAX ((uint64_t) 1 << 30)
#define DRAIN_SECONDS 10

static int send_frame(int fd, const void *header, const void *p, size_t n, int flags)
{
        struct iovec iov[2] = { { (void *) (uintptr_t) header, GUEST_HEADER_LEN }, { (void *) (uintptr_t) p, n } };
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = n ? 2 : 1 };

        for (;;) {
                ssize_t k = sendmsg(fd, &m, flags | MSG_NOSIGNAL);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                flags &= ~MSG_DONTWAIT; /* a frame that has begun is finished */
                size_t done = (size_t) k;
                while (m.msg_iovlen && done >= m.msg_iov->iov_len) {
                        done -= m.msg_iov->iov_len;
                        m.msg_iov++;
                        m.msg_iovlen--;
                }
                if (!m.msg_iovlen)
                        return 0;
                m.msg_iov->iov_base = (char *) m.msg_iov->iov_base + done;
                m.msg_iov->iov_len -= done;
        }
}

static int send_flags(int fd, enum guest_stream stream, unsigned flags, const void *p, size_t n, int how)
{
        unsigned char header[GUEST_HEADER_LEN];

        guest_encode(&(struct guest_header){ stream, flags, (uint32_t) n }, header);
        return send_frame(fd, header, p, n, how);
}

int conn_send(int fd, enum guest_stream stream, unsigned flags, const void *p, size_t n)
{
        return send_flags(fd, stream, flags, p, n, 0);
}

int conn_send_nb(int fd, enum guest_stream stream, unsigned flags, const void *p, size_t n)
{
        return send_flags(fd, stream, flags, p, n, MSG_DONTWAIT);
}

int conn_send_bytes(int fd, enum guest_stream stream, const void *p, size_t n)
{
        for (size_t i = 0; i < n; i += PIECE) {
                int r = conn_send(fd, stream, 0, (const char *) p + i, min_size(PIECE, n - i));

                if (r < 0)
                        return r;
        }
        return 0;
}

void reply_init(struct reply *r)
{
        r->b = BUF_MAX(GUEST_CONTROL_MAX);
        jw_init(&r->w, &r->b);
        jw_obj(&r->w);
}

int reply_event(struct reply *r, int fd)
{
        int e = jw_end_all(&r->w);

        if (e >= 0)
                e = conn_send(fd, GUEST_CONTROL, 0, r->b.p, r->b.len);
        buf_done(&r->b);
        return e;
}

int reply_send(struct reply *r, int fd)
{
        jw_kbool(&r->w, "done", true);
        if (r->w.r < 0) { /* too long for one control frame: the caller still gets an answer */
                buf_done(&r->b);
                return conn_errorf(fd, -EMSGSIZE, "the result is longer than %u bytes", GUEST_CONTROL_MAX);
        }
        return reply_event(r, fd);
}

const char *code_name(int code)
{
        const char *s = strerrorname_np(-code);

        return s ? s : "EIO";
}

int conn_error(int fd, const struct err *e)
{
        return conn_errorf(fd, e->code ? e->code : -EIO, "%s", err_text(e));
}

int conn_errorf(int fd, int code, const char *fmt, ...)
{
        struct err e = { 0 };
        struct reply r;
        va_list ap;

        va_start(ap, fmt);
        err_setv(&e, code, fmt, ap);
        va_end(ap);
        reply_init(&r);
        jw_kstr(&r.w, "error", err_text(&e));
        jw_kstr(&r.w, "code", code_name(code));
        jw_kbool(&r.w, "done", true);
        return reply_event(&r, fd);
}

static long receive(int fd, void *p, size_t n)
{
        for (;;) {
                ssize_t k = recv(fd, p, n, 0);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return errno == EAGAIN ? -ETIMEDOUT : -errno;
                return k == 0 ? -ECONNRESET : k;
        }
}

static int next_frame(struct conn *c)
{
        unsigned char raw[GUEST_HEADER_LEN];
        struct guest_header h;

        for (size_t have = 0; have < sizeof(raw);) {
                long k = receive(c->fd, raw + have, sizeof(raw) - have);

                if (k < 0)
                        return (int) k;
                have += (size_t) k;
        }
        int r = guest_decode(raw, &h);
        if (r < 0 || h.stream != c->want)
                return -EPROTO;
        c->left = h.length;
        c->last = h.flags & GUEST_END;
        return 0;
}

long conn_data(struct conn *c, void *p, size_t cap)
{
        while (!c->ended) {
                if (c->left) {
                        long k = receive(c->fd, p, min_size(cap, c->left));

                        if (k > 0)
                                c->left -= (uint32_t) k;
                        return k;
                }
                if (c->last) {
                        c->ended = true;
                        break;
                }
                int r = next_frame(c);
                if (r < 0)
                        return r;
        }
        return 0;
}

void conn_drain(struct conn *c)
{
        struct timeval limit = { .tv_sec = DRAIN_SECONDS };
        static char sink[64 << 10];
        uint64_t total = 0;

        setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        while (total < DRAIN_MAX) {
                long k = conn_data(c, sink, sizeof(sink));

                if (k <= 0)
                        return;
                total += (uint64_t) k;
        }
}
