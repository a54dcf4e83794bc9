#include "base/file.h"
#include "base/ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_CHUNK 65536
/* A tree deeper than this is flattened while it is removed: neither descriptors nor stack grow with its depth. */
#define REMOVE_DEPTH_MAX 32

static ssize_t read_some(int fd, void *p, size_t n)
{
        ssize_t got;

        do
                got = read(fd, p, n);
        while (got < 0 && errno == EINTR);
        return got < 0 ? -errno : got;
}

/* With the buffer full, one more byte tells a file that just fits from one that is too long. */
static int at_end(int fd)
{
        char c;
        ssize_t got = read_some(fd, &c, 1);

        return got < 0 ? (int) got : got == 0 ? 0 : -ENOBUFS;
}

static int read_all(int fd, struct buf *b)
{
        for (;;) {
                size_t want = min_size(READ_CHUNK, b->len < b->max ? b->max - b->len : 0);
                if (want == 0)
                        return at_end(fd);
                char *p = buf_room(b, want);
                if (!p)
                        return -ENOMEM;
                ssize_t got = read_some(fd, p, want);
                if (got <= 0)
                        return (int) got;
                buf_grew(b, (size_t) got);
        }
}

int file_read(int dirfd, const char *path, struct buf *b)
{
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
        size_t before = b->len;

        if (fd < 0)
                return -errno;
        int r = read_all(fd, b);
        if (r < 0)
                b->len = before;
        return r;
}

int fd_write_all(int fd, const void *p, size_t n)
{
        const char *s = p;

        while (n) {
                ssize_t done = write(fd, s, n);

                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0)
                        return -errno;
                s += done;
                n -= (size_t) done;
        }
        return 0;
}

static int fsync_folder_of(int dirfd, const char *path)
{
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *folder = !slash          ? xstrdup(".")
                                      : slash == path ? xstrdup("/")
                                                      : xstrndup(path, (size_t) (slash - path));
        _cleanup_close_ int fd = openat(dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int fill(int fd, const void *p, size_t n, mode_t mode)
{
        int r = fd_write_all(fd, p, n);

        /* The umask has no say: the caller names the mode the file is to have. */
        if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0))
                r = -errno;
        return r;
}

int file_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
        char id[13];

        random_id(id, sizeof id - 1);
        _cleanup_free_ char *temp = xasprintf("%s.%s.tmp", path, id);
        int fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(e, -errno, "cannot create %s", temp);
        int r = fill(fd, p, n, mode);
        if (close(fd) < 0 && r == 0)
                r = -errno;
        if (r < 0)
                (void) err_sys(e, r, "cannot write %s", temp);
        else if (renameat(dirfd, temp, dirfd, path) < 0)
                r = err_sys(e, -errno, "cannot rename %s to %s", temp, path);
        if (r < 0) {
                (void) unlinkat(dirfd, temp, 0);
                return r;
        }
        r = fsync_folder_of(dirfd, path);
        return r < 0 ? err_sys(e, r, "cannot sync the folder of %s", path) : 0;
}

static int mkdir_one(const char *path, mode_t mode)
{
        struct stat st;

        if (mkdir(path, mode) == 0)
                return 0;
        int r = -errno;
        /* Some systems answer EROFS or EISDIR for what exists, so look rather than trust the errno. */
        if (stat(path, &st) < 0)
                return r;
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int mkdir_all(const char *path, mode_t mode)
{
        _cleanup_free_ char *copy = xstrdup(path);

        if (!*copy)
                return -ENOENT;
        for (char *p = copy + 1; *p; p++) {
                if (*p != '/' || p[-1] == '/')
                        continue;
                *p = '\0';
                int r = mkdir_one(copy, mode);
                *p = '/';
                if (r < 0)
                        return r;
        }
        return mkdir_one(copy, mode);
}

struct removal {
        int top; /* where folders beyond REMOVE_DEPTH_MAX are moved */
        int r;   /* first error */
};

static void failed(struct removal *rm, int r)
{
        if (rm->r == 0)
                rm->r = r;
}

static bool is_folder(int dirfd, const char *name)
{
        struct stat st;

        return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Opens a folder about to be emptied; read-only trees (module caches) must not stop us, so it is made writable. */
static DIR *open_folder(int dirfd, const char *name)
{
        const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        int fd = openat(dirfd, name, flags);

        if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
                fd = openat(dirfd, name, flags);
        if (fd < 0)
                return NULL;
        (void) fchmod(fd, 0700);
        DIR *d = fdopendir(fd);
        if (!d)
                (void) close(fd);
        return d;
}

static void move_to_top(struct removal *rm, int dirfd, const char *name)
{
        char id[25];

        random_id(id, sizeof id - 1);
        if (renameat(dirfd, name, rm->top, id) < 0)
                failed(rm, -errno);
}

static void empty_folder(struct removal *rm, DIR *d, unsigned depth);

static void remove_entry(struct removal *rm, int dirfd, const char *name, unsigned depth)
{
        if (!is_folder(dirfd, name)) {
                if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
                        failed(rm, -errno);
                return;
        }
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
                return;
        if (depth >= REMOVE_DEPTH_MAX) {
                move_to_top(rm, dirfd, name);
                return;
        }
        DIR *d = open_folder(dirfd, name);
        if (!d) {
                failed(rm, -errno);
                return;
        }
        empty_folder(rm, d, depth + 1);
        (void) closedir(d);
        if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                failed(rm, -errno);
}

/* One pass; true when there was something to remove. */
static bool empty_once(struct removal *rm, DIR *d, unsigned depth)
{
        bool any = false;

        rewinddir(d);
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(d);
                if (!entry)
                        break;
                if (cstr_eq(entry->d_name, ".") || cstr_eq(entry->d_name, ".."))
                        continue;
                any = true;
                remove_entry(rm, dirfd(d), entry->d_name, depth);
        }
        if (errno)
                failed(rm, -errno);
        return any;
}

/* Until nothing is seen: readdir may skip entries while others go, and deep folders are moved to the top. */
static void empty_folder(struct removal *rm, DIR *d, unsigned depth)
{
        while (empty_once(rm, d, depth) && rm->r == 0)
                ;
}

int remove_tree(int dir, const char *path)
{
        struct removal rm = { .top = -1 };

        if (!is_folder(dir, path))
                return unlinkat(dir, path, 0) < 0 && errno != ENOENT ? -errno : 0;
        DIR *d = open_folder(dir, path);
        if (!d)
                return errno == ENOENT ? 0 : -errno;
        rm.top = dirfd(d);
        empty_folder(&rm, d, 0);
        (void) closedir(d);
        if (rm.r == 0 && unlinkat(dir, path, AT_REMOVEDIR) < 0 && errno != ENOENT)
                rm.r = -errno;
        return rm.r;
}
