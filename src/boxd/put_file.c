#include "boxd/put.h"

#include "base/file.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE (64u << 10)
#define TEMP_PREFIX ".psbx-"
#define TEMP_SUFFIX ".part"
#define TEMP_RANDOM 12

void temp_name(char out[TEMP_NAME_LEN])
{
        char id[TEMP_RANDOM + 1];

        random_id(id, TEMP_RANDOM);
        snprintf(out, TEMP_NAME_LEN, TEMP_PREFIX "%s" TEMP_SUFFIX, id);
}

bool is_temp_name(const char *name)
{
        struct str s = str_of(name);

        return s.n == strlen(TEMP_PREFIX TEMP_SUFFIX) + TEMP_RANDOM && str_starts(s, STR(TEMP_PREFIX)) &&
               str_ends(s, STR(TEMP_SUFFIX));
}

void sink_init(struct sink *s)
{
        memset(s, 0, sizeof(*s));
        s->old_fd = s->new_fd = -1;
}

static int open_temp(struct sink *s)
{
        temp_name(s->temp);
        s->new_fd = openat(s->dir, s->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, s->mode);
        if (s->new_fd < 0) {
                s->temp[0] = '\0';
                return -errno;
        }
        s->changed = true;
        return 0;
}

int sink_begin(struct sink *s, int dir, const char *name, uint64_t size, unsigned mode, bool compare, bool whole)
{
        sink_init(s);
        s->dir = dir;
        s->size = size;
        s->mode = mode & 0777;
        snprintf(s->name, sizeof(s->name), "%s", name);
        hash_init(&s->hash);
        if (whole) {
                s->new_fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, s->mode);
                if (s->new_fd >= 0) {
                        s->changed = true;
                        return 0;
                }
                if (errno != EEXIST)
                        return -errno;
        }
        if (fstatat(dir, name, &s->old, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? open_temp(s) : -errno;
        if (S_ISDIR(s->old.st_mode))
                return -EISDIR;
        if (compare && S_ISREG(s->old.st_mode) && (uint64_t) s->old.st_size == size)
                s->old_fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return s->old_fd >= 0 ? 0 : open_temp(s);
}

static bool same(struct sink *s, const char *p, size_t n)
{
        char piece[PIECE];

        for (size_t i = 0; i < n;) {
                size_t want = min_size(sizeof(piece), n - i);
                ssize_t k = pread(s->old_fd, piece, want, (off_t) (s->done + i));

                if (k <= 0 || memcmp(piece, p + i, (size_t) k) != 0)
                        return false;
                i += (size_t) k;
        }
        return true;
}

/* The first difference: from here on a new file is written, beginning with what was equal. */
static int diverge(struct sink *s)
{
        char piece[PIECE];
        int r = open_temp(s);

        for (uint64_t off = 0; r >= 0 && off < s->done;) {
                size_t want = s->done - off < sizeof(piece) ? (size_t) (s->done - off) : sizeof(piece);
                ssize_t k = pread(s->old_fd, piece, want, (off_t) off);

                if (k <= 0)
                        return k < 0 ? -errno : -EAGAIN; /* it shrank under our hands */
                hash_update(&s->hash, piece, (size_t) k);
                r = fd_write_all(s->new_fd, piece, (size_t) k);
                off += (uint64_t) k;
        }
        close(s->old_fd);
        s->old_fd = -1;
        return r;
}

int sink_data(struct sink *s, const void *p, size_t n)
{
        int r = 0;

        if (s->old_fd >= 0 && !same(s, p, n))
                r = diverge(s);
        if (r >= 0 && s->new_fd >= 0) {
                hash_update(&s->hash, p, n);
                r = fd_write_all(s->new_fd, p, n);
        }
        s->done += n;
        return r;
}

/*
 * The content came from us, so its digest is known; but a file stamped "now" may change again within the same clock
 * tick unseen. Two ticks back, any later write shows in the mtime.
 */
static void step_back(int fd)
{
        struct timespec t[2] = { { .tv_nsec = UTIME_OMIT } }, tick;

        clock_gettime(CLOCK_REALTIME_COARSE, &t[1]);
        clock_getres(CLOCK_REALTIME_COARSE, &tick);
        t[1].tv_nsec -= 2 * tick.tv_nsec;
        if (t[1].tv_nsec < 0) {
                t[1].tv_nsec += 1000000000;
                t[1].tv_sec--;
        }
        futimens(fd, t);
}

static int keep_old(struct sink *s)
{
        if (!((s->old.st_mode ^ s->mode) & 0100))
                return 0;
        s->changed = true;
        /* A hard link may lead anywhere: its inode is never touched, a copy takes its place. */
        if (s->old.st_nlink == 1)
                return fchmod(s->old_fd, s->mode) < 0 ? -errno : 0;
        return diverge(s);
}

int sink_end(struct sink *s)
{
        int r = 0;

        s->at = cache_now();

        if (s->old_fd >= 0)
                r = keep_old(s);
        if (r >= 0 && s->new_fd >= 0) {
                step_back(s->new_fd);
                if (s->temp[0] && renameat(s->dir, s->temp, s->dir, s->name) < 0)
                        r = -errno;
                else
                        s->temp[0] = '\0';
        }
        if (r < 0) {
                sink_abort(s);
                return r;
        }
        hash_final(&s->hash, s->digest);
        s->written = s->new_fd >= 0 && fstat(s->new_fd, &s->st) == 0;
        closep(&s->new_fd);
        closep(&s->old_fd);
        s->new_fd = s->old_fd = -1;
        return 0;
}

void sink_remember(const struct sink *s, struct cache *cache)
{
        if (cache && s->written)
                cache_put(cache, &s->st, s->at, s->digest);
}

void sink_abort(struct sink *s)
{
        if (s->new_fd >= 0 && s->temp[0])
                unlinkat(s->dir, s->temp, 0);
        else if (s->new_fd >= 0) /* created under its final name, and not complete */
                unlinkat(s->dir, s->name, 0);
        closep(&s->new_fd);
        closep(&s->old_fd);
        s->new_fd = s->old_fd = -1;
        s->temp[0] = '\0';
}
