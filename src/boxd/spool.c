#include "boxd/spool.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void spool_init(struct spool *s)
{
        memset(s, 0, sizeof(*s));
        s->fd = -1;
}

void spool_done(struct spool *s)
{
        free(s->head);
        free(s->ring);
        if (s->fd >= 0)
                close(s->fd);
        spool_init(s);
}

/* Copies from the ring; off counts from its oldest byte. */
static void ring_copy(const struct spool *s, size_t off, char *out, size_t n)
{
        if (!n)
                return;
        size_t start = (s->ring_pos + KEEP_EDGE - s->ring_len + off) % KEEP_EDGE;
        size_t first = min_size(n, KEEP_EDGE - start);

        memcpy(out, s->ring + start, first);
        memcpy(out + first, s->ring, n - first);
}

static size_t add_head(struct spool *s, const char *p, size_t n)
{
        n = min_size(n, KEEP_EDGE - s->head_len);
        if (s->head_len + n > s->head_cap) {
                size_t cap = max_size(s->head_cap ? s->head_cap * 4 : 1024, s->head_len + n);

                cap = min_size(cap, KEEP_EDGE);
                s->head = xrealloc(s->head, cap);
                s->head_cap = cap;
        }
        memcpy(s->head + s->head_len, p, n);
        s->head_len += n;
        return n;
}

static void add_ring(struct spool *s, const char *p, size_t n)
{
        if (!s->ring)
                s->ring = xmalloc(KEEP_EDGE);
        if (n > KEEP_EDGE) {
                p += n - KEEP_EDGE;
                n = KEEP_EDGE;
        }
        size_t first = min_size(n, KEEP_EDGE - s->ring_pos);
        memcpy(s->ring + s->ring_pos, p, first);
        memcpy(s->ring, p + first, n - first);
        s->ring_pos = (s->ring_pos + n) % KEEP_EDGE;
        s->ring_len = min_size(s->ring_len + n, KEEP_EDGE);
}

/* A file that holds less than memory does is of no use. */
static void file_failed(struct spool *s, int error)
{
        s->error = error;
        s->full = true;
        if (s->file_len > (uint64_t) 2 * KEEP_EDGE)
                return;
        close(s->fd);
        s->fd = -1;
}

/* Appends to the file; what did not fit is counted by nobody but the ring. */
static void add_file(struct spool *s, const char *p, size_t n)
{
        size_t room = (size_t) (SPOOL_MAX - s->file_len);

        if (n > room)
                n = room;
        while (n && !s->full) {
                ssize_t k = write(s->fd, p, n);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0) {
                        file_failed(s, -errno);
                        return;
                }
                p += k;
                n -= (size_t) k;
                s->file_len += (uint64_t) k;
                s->file_total += (uint64_t) k;
        }
        if (s->file_len >= SPOOL_MAX)
                s->full = true;
}

void spool_add(struct spool *s, const char *p, size_t n)
{
        size_t in_head = s->head_len < KEEP_EDGE ? add_head(s, p, n) : 0;

        if (n > in_head)
                add_ring(s, p + in_head, n - in_head);
        s->total += n;
        if (s->fd >= 0 && !s->full)
                add_file(s, p, n);
}

void spool_to_file(struct spool *s, int dirfd, const char *name)
{
        char tail[KEEP_EDGE];

        if (s->fd >= 0 || s->error)
                return;
        s->fd = dirfd < 0 ? -1 : openat(dirfd, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (s->fd < 0) {
                s->error = dirfd < 0 ? dirfd : -errno;
                return;
        }
        uint64_t lost = s->total - s->head_len - s->ring_len;
        add_file(s, s->head, s->head_len);
        if (s->full || !s->ring)
                return;
        s->gap = (struct gap){ s->file_len, lost };
        s->file_total += lost;
        ring_copy(s, 0, tail, s->ring_len);
        add_file(s, tail, s->ring_len);
}

static void add_gap(struct kept *k, uint64_t at, uint64_t len)
{
        if (len)
                k->gap[k->gaps++] = (struct gap){ at, len };
}

/* The first part (file or head) and how much of the ring follows it. */
static uint64_t parts(const struct spool *s, size_t *ret_ring)
{
        uint64_t stood_for = s->fd >= 0 ? s->file_total : s->head_len;
        uint64_t rest = s->total - stood_for;

        *ret_ring = rest < s->ring_len ? (size_t) rest : s->ring_len;
        return s->fd >= 0 ? s->file_len : s->head_len;
}

void spool_kept(const struct spool *s, struct kept *k)
{
        size_t ring;
        uint64_t first = parts(s, &ring), stood_for = s->fd >= 0 ? s->file_total : s->head_len;

        memset(k, 0, sizeof(*k));
        k->total = s->total;
        k->len = first + ring;
        k->error = s->error;
        if (s->fd >= 0)
                add_gap(k, s->gap.at, s->gap.len);
        add_gap(k, first, s->total - stood_for - ring);
}

long spool_read(void *spool, uint64_t off, void *p, size_t n)
{
        struct spool *s = spool;
        size_t ring;
        uint64_t first = parts(s, &ring);

        if (off >= first + ring)
                return 0;
        if (off >= first) {
                size_t at = (size_t) (off - first);

                n = min_size(n, ring - at);
                ring_copy(s, s->ring_len - ring + at, p, n);
                return (long) n;
        }
        n = (size_t) (n < first - off ? n : first - off);
        if (s->fd < 0) {
                memcpy(p, s->head + off, n);
                return (long) n;
        }
        ssize_t k = pread(s->fd, p, n, (off_t) off);
        return k < 0 ? -errno : k;
}

static int write_kept(struct spool *s, int fd, uint64_t len)
{
        char piece[4096];

        for (uint64_t off = 0; off < len;) {
                long k = spool_read(s, off, piece, sizeof(piece));
                int r = k <= 0 ? -EIO : fd_write_all(fd, piece, (size_t) k);

                if (r < 0)
                        return r;
                off += (uint64_t) k;
        }
        return 0;
}

static enum store finish_file(struct spool *s, struct kept *k)
{
        char tail[KEEP_EDGE];
        size_t ring;
        uint64_t first = parts(s, &ring);

        /* The end of a stream that outgrew its file goes behind it; when the disk is full it is lost. */
        ring_copy(s, s->ring_len - ring, tail, ring);
        if (ring && pwrite(s->fd, tail, ring, (off_t) first) != (ssize_t) ring) {
                k->len = first;
                if (k->gaps && k->gap[k->gaps - 1].at == first)
                        k->gap[k->gaps - 1].len += ring;
                else
                        add_gap(k, first, ring);
        }
        return STORE_FILE;
}

enum store spool_finish(struct spool *s, int dirfd, const char *name, struct kept *k, unsigned char *inline_out,
                        size_t inline_cap, int *ret_fd)
{
        spool_kept(s, k);
        *ret_fd = -1;
        if (k->len == 0)
                return STORE_NONE;
        if (k->len <= inline_cap) {
                spool_read(s, 0, inline_out, (size_t) k->len);
                return STORE_INLINE;
        }
        if (s->fd >= 0)
                return finish_file(s, k);
        _cleanup_close_ int fd = -1;
        if (dirfd >= 0 && !s->error)
                fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 && write_kept(s, fd, k->len) >= 0)
                return STORE_FILE;
        /* No disk: a memory file, counted in the box's memory, holds the little there is. */
        int mem = memfd_create("output", MFD_CLOEXEC);
        if (mem >= 0 && write_kept(s, mem, k->len) >= 0) {
                *ret_fd = mem;
                return STORE_MEMFD;
        }
        if (mem >= 0)
                close(mem);
        k->gaps = 0;
        k->len = 0;
        add_gap(k, 0, k->total);
        return STORE_NONE;
}
