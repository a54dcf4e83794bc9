#include "boxd/keeper.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const enum guest_stream streams[2] = { GUEST_STDOUT, GUEST_STDERR };

/* Appends a frame to what is pending. Memory for it is small and bounded; without it the connection is given up. */
static int queue(struct keeper *k, enum guest_stream stream, unsigned flags, const void *p, size_t n)
{
        unsigned char header[GUEST_HEADER_LEN];

        guest_encode(&(struct guest_header){ stream, flags, (uint32_t) n }, header);
        int r = buf_add(&k->pend, header, sizeof(header));
        return r < 0 ? r : buf_add(&k->pend, p, n);
}

void io_spool(struct keeper *k)
{
        int dir = jobs_dir();

        for (int i = 0; i < 2; i++) {
                char name[32];

                jobs_file_name(k->seq, i, name);
                spool_to_file(&k->out[i].spool, dir, name);
        }
        closep(&dir);
}

void io_detach(struct keeper *k)
{
        const char over = MSG_FOREGROUND_OVER;

        if (k->conn < 0)
                return;
        /* PID 1 holds a duplicate, so that it can answer when we are killed: shutdown ends the connection for both. */
        shutdown(k->conn, SHUT_RDWR);
        close(k->conn);
        k->conn = -1;
        k->slot->partial = 0;
        send(k->ctl, &over, 1, MSG_NOSIGNAL);
        buf_done(&k->pend);
        k->pend_off = 0;
        if (k->in >= 0 && !k->args.background && !k->feed.ended)
                k->in_close = true; /* nobody is left to say when stdin ends */
        if (!(k->over && k->all_gone))
                io_spool(k);
}

void io_flush(struct keeper *k)
{
        while (k->conn >= 0 && k->pend_off < k->pend.len) {
                /* A Unix socket takes a piece of this size whole or not at all; another may take a part of it. */
                size_t n = min_size(k->pend.len - k->pend_off, CHUNK);

                if (!k->conn_unix)
                        k->slot->partial = 1;
                ssize_t r = send(k->conn, k->pend.p + k->pend_off, n, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (r < 0 && errno == EINTR)
                        continue;
                if (r < 0 && errno == EAGAIN)
                        return;
                if (r < 0) {
                        io_detach(k);
                        return;
                }
                k->pend_off += (size_t) r;
                k->slot->partial = k->pend_off < k->pend.len;
        }
        if (k->pend_off == k->pend.len) {
                buf_clear(&k->pend);
                k->pend_off = 0;
                if (k->result_queued)
                        io_detach(k);
        }
}

void io_read_output(struct keeper *k, int i)
{
        static char data[CHUNK - GUEST_HEADER_LEN];
        struct stream *s = &k->out[i];
        ssize_t n = read(s->fd, data, sizeof(data));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                close(s->fd);
                s->fd = -1;
                s->drain = 0;
                return;
        }
        s->drain -= n;
        spool_add(&s->spool, data, (size_t) n);
        k->slot->total[i] = s->spool.total;
        wait_output(k, i, data, (size_t) n);
        if (k->conn < 0)
                return;
        if (queue(k, streams[i], 0, data, (size_t) n) < 0)
                io_detach(k);
        else
                io_flush(k);
}

bool io_drained(const struct keeper *k, int64_t now_us)
{
        bool late = now_us >= k->leader_ended_us + OVER_GRACE_MS * 1000;

        for (int i = 0; i < 2; i++)
                if (k->out[i].fd >= 0 && !(late && k->out[i].drain <= 0))
                        return false;
        return true;
}

void io_queue_result(struct keeper *k)
{
        struct reply r;

        reply_init(&r);
        job_status_fields(&r.w, k->status, k->flags);
        jw_kint(&r.w, "durationMs", (k->leader_ended_us - k->started_us) / 1000);
        for (int i = 0; i < 2; i++)
                jw_kint(&r.w, i ? "stderrBytes" : "stdoutBytes", (int64_t) k->out[i].spool.total);
        if (!k->all_gone) /* what the command left running; it stays part of the job */
                jw_kbool(&r.w, "leftRunning", true);
        jw_kbool(&r.w, "done", true);
        int e = jw_end_all(&r.w);
        for (int i = 0; i < 2 && e >= 0; i++)
                e = queue(k, streams[i], GUEST_END, NULL, 0);
        if (e >= 0)
                e = queue(k, GUEST_CONTROL, 0, r.b.p, r.b.len);
        buf_done(&r.b);
        k->result_queued = true;
        if (e < 0)
                io_detach(k);
        else
                io_flush(k);
}

/* Reads one piece of stdin into in_buf. *gone: the peer closed or broke the protocol. */
void io_read_feed(struct keeper *k, struct feed *f, int fd, bool *gone)
{
        ssize_t n;

        *gone = false;
        if (f->left == 0) {
                struct guest_header h;

                n = recv(fd, f->header + f->have, sizeof(f->header) - f->have, MSG_DONTWAIT);
                if (n <= 0) {
                        *gone = n == 0 || (errno != EAGAIN && errno != EINTR);
                        return;
                }
                f->have += (size_t) n;
                if (f->have < sizeof(f->header))
                        return;
                f->have = 0;
                if (guest_decode(f->header, &h) < 0 || h.stream != GUEST_STDIN) {
                        *gone = true;
                        return;
                }
                f->left = h.length;
                f->last = h.flags & GUEST_END;
        } else {
                if (!k->in_buf)
                        k->in_buf = xmalloc(CHUNK);
                n = recv(fd, k->in_buf, min_size(CHUNK, f->left), MSG_DONTWAIT);
                if (n <= 0) {
                        *gone = n == 0 || (errno != EAGAIN && errno != EINTR);
                        return;
                }
                f->left -= (uint32_t) n;
                f->taken += (uint64_t) n;
                k->in_len = k->in < 0 ? 0 : (size_t) n; /* nobody reads it any more: taken and dropped */
                k->in_off = 0;
        }
        if (f->left == 0 && f->last) {
                f->ended = true;
                if (f->closes)
                        k->in_close = true;
        }
        io_write_stdin(k);
}

void io_read_conn(struct keeper *k)
{
        bool gone;
        char dropped[4096];

        if (!k->args.wants_stdin || k->feed.ended) {
                /* Nothing is expected: only the end of the peer's side. Its full close shows as POLLHUP or EPIPE. */
                ssize_t n = recv(k->conn, dropped, sizeof(dropped), MSG_DONTWAIT);

                if (n == 0)
                        k->conn_closed_read = true;
                else if (n < 0 && errno != EAGAIN && errno != EINTR)
                        io_detach(k);
                return;
        }
        io_read_feed(k, &k->feed, k->conn, &gone);
        if (gone) {
                k->conn_closed_read = k->feed.ended = true;
                k->in_close = true;
                io_write_stdin(k);
        }
}

void io_write_stdin(struct keeper *k)
{
        while (k->in >= 0 && k->in_off < k->in_len) {
                ssize_t n = write(k->in, k->in_buf + k->in_off, k->in_len - k->in_off);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < 0) { /* the reader is gone: what comes is dropped, as a shell's pipe would */
                        close(k->in);
                        k->in = -1;
                        break;
                }
                k->in_off += (size_t) n;
        }
        k->in_len = k->in_off = 0;
        if (k->in_close && k->in >= 0) {
                close(k->in);
                k->in = -1;
        }
}
