#include "sync/extract.h"
#include "base/mem.h"
#include "guest/gz.h"
#include "guest/guest.h"
#include "guest/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATHS_MAX ((size_t) 64 << 10)
#define REFUSED_MAX ((size_t) 16 << 10)
#define INFLATE ((size_t) 256 << 10)

struct extract {
        int root_fd;
        bool strip_top, started, ended;
        struct gz_in *gz;
        char *inflated;
        unsigned char magic[2];
        size_t magic_n;
        struct tar_reader tar;
        /* the member being written */
        char name[TAR_NAME_MAX + 1];
        int fd, parent_fd;
        char temp[64];
        const char *base;
        int64_t mtime;
        unsigned serial;
        struct buf paths, refused;
        uint64_t files, refused_count;
};

struct extract *extract_new(int root_fd, bool strip_top)
{
        struct extract *x = xcalloc(1, sizeof *x);

        x->root_fd = root_fd;
        x->strip_top = strip_top;
        x->fd = x->parent_fd = -1;
        x->paths = BUF_MAX(PATHS_MAX);
        x->refused = BUF_MAX(REFUSED_MAX);
        tar_reader_init(&x->tar);
        return x;
}

static void drop_member(struct extract *x)
{
        if (x->fd >= 0) {
                closep(&x->fd);
                (void) unlinkat(x->parent_fd, x->temp, 0);
        }
        closep(&x->parent_fd);
        x->fd = x->parent_fd = -1;
}

void extract_free(struct extract *x)
{
        if (!x)
                return;
        drop_member(x);
        gz_in_free(x->gz);
        free(x->inflated);
        buf_done(&x->paths);
        buf_done(&x->refused);
        free(x);
}

void extract_freep(struct extract **x)
{
        extract_free(*x);
}

uint64_t extract_files(const struct extract *x)
{
        return x->files;
}

const struct buf *extract_paths(const struct extract *x)
{
        return &x->paths;
}

const struct buf *extract_refused(const struct extract *x)
{
        return &x->refused;
}

uint64_t extract_refused_count(const struct extract *x)
{
        return x->refused_count;
}

static int refuse(struct extract *x, const char *why)
{
        size_t before = x->refused.len;

        x->refused_count++;
        if (buf_addf(&x->refused, "%.300s: %s", x->tar.entry.path, why) < 0 || buf_addc(&x->refused, '\0') < 0)
                x->refused.len = before;
        return 0;
}

static void count(struct extract *x)
{
        size_t before = x->paths.len;

        x->files++;
        if (buf_adds(&x->paths, x->name) < 0 || buf_addc(&x->paths, '\0') < 0)
                x->paths.len = before;
}

/* The member's name without its top component, into out: its length, 0 for the top itself, -errno for a hostile one. */
static long clean_name(const struct extract *x, const char *p, size_t n, char *out)
{
        long len = tar_clean_path(p, n, out);
        char *slash;

        if (len <= 0 || !x->strip_top)
                return len;
        slash = strchr(out, '/');
        if (!slash)
                return 0;
        len -= slash + 1 - out;
        memmove(out, slash + 1, (size_t) len + 1);
        return len;
}

static int open_dir_at(int fd, const char *name, bool create)
{
        int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (sub >= 0 || !create)
                return sub < 0 ? -errno : sub;
        if (errno == ENOTDIR && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
                (void) unlinkat(fd, name, 0); /* a file where the archive has a folder; links stay and are refused */
        if (mkdirat(fd, name, 0777) < 0 && errno != EEXIST)
                return -errno;
        sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return sub < 0 ? -errno : sub;
}

/* Opens the folder that holds path, making what is missing; *base is path's last component. */
static int open_parent(const struct extract *x, char *path, bool create, const char **base)
{
        int fd = dup(x->root_fd), depth = 0;
        char *p = path, *slash;

        while (fd >= 0 && (slash = strchr(p, '/'))) {
                int sub;

                if (++depth > EXTRACT_DEPTH_MAX) {
                        close(fd);
                        return -ELOOP;
                }
                *slash = '\0';
                sub = open_dir_at(fd, p, create);
                *slash = '/';
                close(fd);
                fd = sub;
                p = slash + 1;
        }
        *base = p;
        return fd;
}

static int parent_failed(struct extract *x, int r, struct err *e)
{
        if (r == -ELOOP || r == -ENOTDIR || r == -ENAMETOOLONG || r == -ENOENT)
                return refuse(x, "its folder is a link, or nested too deep");
        return err_sys(e, r, "cannot make the folder for %.200s", x->name);
}

/*
 * A relative target that climbs first and descends then stays where its text says, because members lie in real folders.
 * A ".." after a name could climb out of a place that another link leads to, so it is refused.
 */
static const char *judge_link(const char *name, const char *target)
{
        struct str rest = str_of(target);
        size_t up = 0, depth = 0;
        bool named = false;

        if (rest.n == 0 || target[0] == '/')
                return "a link to an absolute path";
        for (const char *p = name; *p; p++)
                depth += *p == '/';
        while (rest.n) {
                struct str c = str_cut(&rest, '/');

                if (str_eq(c, STR("..")) && (named || ++up > depth))
                        return "a link that leads outside";
                named |= c.n > 0 && !str_eq(c, STR(".")) && !str_eq(c, STR(".."));
        }
        return NULL;
}

/* Puts the finished temporary file or link in place of whatever has its name; a folder only when it is empty. */
static int put_in_place(struct extract *x)
{
        if (renameat(x->parent_fd, x->temp, x->parent_fd, x->base) == 0)
                return 0;
        if ((errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST) &&
            unlinkat(x->parent_fd, x->base, AT_REMOVEDIR) == 0 &&
            renameat(x->parent_fd, x->temp, x->parent_fd, x->base) == 0)
                return 0;
        return -errno;
}

static void temp_name(struct extract *x)
{
        (void) snprintf(x->temp, sizeof x->temp, ".psbx-%ld-%u", (long) getpid(), x->serial++);
}

static int finish_in_place(struct extract *x, struct err *e)
{
        int r = put_in_place(x);

        if (r < 0) {
                (void) unlinkat(x->parent_fd, x->temp, 0);
                if (r == -ENOTEMPTY || r == -EEXIST || r == -EISDIR)
                        return refuse(x, "a folder with files is in its place");
                return err_sys(e, r, "cannot write %.200s", x->name);
        }
        count(x);
        return 0;
}

static int make_symlink(struct extract *x, struct err *e)
{
        const char *why = judge_link(x->name, x->tar.entry.link);
        int r;

        if (why)
                return refuse(x, why);
        temp_name(x);
        if (symlinkat(x->tar.entry.link, x->parent_fd, x->temp) < 0)
                return err_sys(e, -errno, "cannot make the link %.200s", x->name);
        r = finish_in_place(x, e);
        return r;
}

static int make_hardlink(struct extract *x, struct err *e)
{
        char target[TAR_NAME_MAX + 1];
        long n = clean_name(x, x->tar.entry.link, x->tar.entry.link_len, target);
        const char *base;
        struct stat st;
        int r = 0;

        if (n <= 0)
                return refuse(x, "a hard link that leads outside");
        _cleanup_close_ int fd = open_parent(x, target, false, &base);
        if (fd < 0 || fstatat(fd, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return refuse(x, "a hard link to nothing in the archive");
        temp_name(x);
        if (linkat(fd, base, x->parent_fd, x->temp, 0) < 0)
                return err_sys(e, -errno, "cannot make the hard link %.200s", x->name);
        r = finish_in_place(x, e);
        (void) unlinkat(x->parent_fd, x->temp, 0); /* renaming over itself leaves both names */
        return r;
}

static int start_file(struct extract *x, struct err *e)
{
        temp_name(x);
        x->mtime = x->tar.entry.mtime;
        x->fd = openat(x->parent_fd, x->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       (x->tar.entry.mode & 0777) | 0200);
        return x->fd < 0 ? err_sys(e, -errno, "cannot write %.200s", x->name) : 0;
}

static int make_dir(struct extract *x, struct err *e)
{
        int fd = open_dir_at(x->parent_fd, x->base, true);

        if (fd < 0)
                return parent_failed(x, fd, e);
        close(fd);
        return 0;
}

static int start_member(struct extract *x, struct err *e)
{
        const struct tar_entry *t = &x->tar.entry;
        long n;
        int r;

        drop_member(x);
        if (t->bad)
                return refuse(x, t->bad);
        n = clean_name(x, t->path, t->path_len, x->name);
        if (n < 0)
                return refuse(x, "a name that leads outside");
        if (n == 0)
                return t->type == TAR_DIR ? 0 : refuse(x, "it has the place of the folder itself");
        if (t->type == TAR_OTHER)
                return refuse(x, "neither file, folder nor link");
        x->parent_fd = open_parent(x, x->name, true, &x->base);
        if (x->parent_fd < 0) {
                r = x->parent_fd;
                x->parent_fd = -1;
                return parent_failed(x, r, e);
        }
        switch (t->type) {
        case TAR_DIR:
                return make_dir(x, e);
        case TAR_SYMLINK:
                return make_symlink(x, e);
        case TAR_HARDLINK:
                return make_hardlink(x, e);
        default:
                return start_file(x, e);
        }
}

static int write_member(struct extract *x, struct str data, struct err *e)
{
        while (x->fd >= 0 && data.n) {
                ssize_t n = write(x->fd, data.p, data.n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(e, -errno, "cannot write %.200s", x->name);
                data = str_n(data.p + n, data.n - (size_t) n);
        }
        return 0;
}

static int end_member(struct extract *x, struct err *e)
{
        int r = 0;

        if (x->fd >= 0) {
                const struct timespec t[2] = { { .tv_sec = (time_t) x->mtime }, { .tv_sec = (time_t) x->mtime } };

                (void) futimens(x->fd, t);
                r = close(steal_fd(&x->fd)) < 0 ? err_sys(e, -errno, "cannot write %.200s", x->name)
                                                : finish_in_place(x, e);
        }
        drop_member(x);
        return r;
}

static int feed_tar(struct extract *x, struct str in, struct err *e)
{
        struct str data;
        int r = 0;

        while (r == 0 && !x->ended) {
                switch (tar_read(&x->tar, &in, &data)) {
                case TAR_MORE:
                        return 0;
                case TAR_HEADER:
                        r = start_member(x, e);
                        break;
                case TAR_DATA:
                        r = write_member(x, data, e);
                        break;
                case TAR_END:
                        r = end_member(x, e);
                        break;
                case TAR_EOF:
                        x->ended = true;
                        break;
                default:
                        return err_set(e, -EPROTO, "the archive is damaged: %s",
                                       x->tar.why ? x->tar.why : "unknown reason");
                }
        }
        return r;
}

static int feed_gzip(struct extract *x, struct str in, struct err *e)
{
        for (;;) {
                long n = gz_inflate(x->gz, &in, x->inflated, INFLATE);
                int r;

                if (n < 0)
                        return err_set(e, (int) n, "the archive is damaged: its compression does not check out");
                if (n == 0 && in.n == 0)
                        return 0;
                r = feed_tar(x, str_n(x->inflated, (size_t) n), e);
                if (r < 0)
                        return r;
        }
}

/* The first two bytes tell gzip from tar; they may come one by one. */
static int start(struct extract *x, struct str *in, struct err *e)
{
        while (x->magic_n < sizeof x->magic && in->n) {
                x->magic[x->magic_n++] = (unsigned char) in->p[0];
                *in = str_n(in->p + 1, in->n - 1);
        }
        if (x->magic_n < sizeof x->magic)
                return 0;
        x->started = true;
        if (gz_magic(x->magic, sizeof x->magic)) {
                x->gz = gz_in_new();
                x->inflated = try_malloc(INFLATE);
                if (!x->gz || !x->inflated)
                        return err_set(e, -ENOMEM, "out of memory");
                return feed_gzip(x, str_n((const char *) x->magic, sizeof x->magic), e);
        }
        return feed_tar(x, str_n((const char *) x->magic, sizeof x->magic), e);
}

int extract_feed(struct extract *x, const void *p, size_t n, struct err *e)
{
        struct str in = str_n(p, n);
        int r = x->started ? 0 : start(x, &in, e);

        if (r < 0 || in.n == 0)
                return r;
        return x->gz ? feed_gzip(x, in, e) : feed_tar(x, in, e);
}

int extract_finish(struct extract *x, struct err *e)
{
        bool whole = x->started && (!x->gz || gz_in_complete(x->gz)) && (x->ended || tar_read_finish(&x->tar) == 0);

        drop_member(x);
        return whole ? 0 : err_set(e, -EPROTO, "the archive ends in the middle");
}
