#include "boxd/beneath.h"

#include "base/mem.h"
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RACE_RETRIES 16

/* Without openat2 (old kernels, gVisor): one component after the other, and no symlink at all. */
static int open_by_steps(int dirfd, const char *path, int flags, mode_t mode)
{
        _cleanup_free_ char *copy = xstrdup(path);
        _cleanup_close_ int cur = -1;
        int at = dirfd;

        if (strcmp(path, ".") == 0)
                return openat(dirfd, ".", flags | O_CLOEXEC, mode);
        if (!guest_path_ok(path, strlen(path)))
                return errno = EXDEV, -1;
        for (char *part = copy, *slash; (slash = strchr(part, '/')); part = slash + 1) {
                *slash = '\0';
                int next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (next < 0)
                        return -1;
                closep(&cur);
                at = cur = next;
        }
        const char *last = strrchr(path, '/');
        return openat(at, last ? last + 1 : path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
}

int beneath_open(int dirfd, const char *path, int flags, mode_t mode, unsigned long long resolve)
{
        struct open_how how = { .flags = (unsigned) flags | O_CLOEXEC, .resolve = resolve };

        if (flags & O_CREAT)
                how.mode = mode;
        if (!*path)
                path = ".";
        for (int i = 0;; i++) {
                long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

                if (fd < 0 && errno == ENOSYS)
                        fd = open_by_steps(dirfd, path, flags, mode);
                if (fd >= 0)
                        return (int) fd;
                /* EAGAIN: something was renamed while the kernel checked a ".." */
                if ((errno != EAGAIN && errno != EINTR) || i == RACE_RETRIES)
                        return -errno;
        }
}

int root_open(const char *root, struct err *e)
{
        static const char *const roots[][2] = {
                { "work", WORK_DIR }, { "tmp", "/tmp" }, { "shm", "/dev/shm" }, { "record", RECORD_DIR }
        };

        for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
                if (strcmp(root, roots[i][0]) != 0)
                        continue;
                int fd = open(roots[i][1], O_PATH | O_DIRECTORY | O_CLOEXEC);
                return fd < 0 ? err_sys(e, -errno, "%s", roots[i][1]) : fd;
        }
        return err_set(e, -EINVAL, "`root` must be \"work\", \"tmp\", \"shm\" or \"record\", got \"%s\"", root);
}

static int explain(struct err *e, int r, const char *dest)
{
        switch (-r) {
        case EXDEV:
                return err_set(e, r, "%s leads out of /work", dest);
        case ELOOP:
        case ENOTDIR:
                return err_set(e, r, "%s is no folder (a file or a symlink is in the way)", dest);
        default:
                return err_sys(e, r, "%s", dest);
        }
}

/* Makes the folders of dest one by one; what is there is opened beneath root, so a symlink may lead along inside. */
static int make_dest(int root, const char *dest, size_t n)
{
        _cleanup_free_ char *prefix = xstrndup(dest, n);
        _cleanup_close_ int cur = fcntl(root, F_DUPFD_CLOEXEC, 3);
        size_t start = 0;

        if (cur < 0)
                return -errno;
        for (size_t i = 0; i <= n; i++) {
                if (i < n && prefix[i] != '/')
                        continue;
                prefix[i] = '\0';
                int flags = O_PATH | O_DIRECTORY | (i == n ? O_NOFOLLOW : 0);
                int fd = beneath_open(root, prefix, flags, 0, BENEATH_FOLLOW);
                if (fd == -ENOENT) {
                        if (mkdirat(cur, prefix + start, 0755) < 0 && errno != EEXIST)
                                return -errno;
                        fd = beneath_open(cur, prefix + start, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, BENEATH_STRICT);
                }
                if (fd < 0)
                        return fd;
                close(cur);
                cur = fd;
                if (i < n)
                        prefix[i] = '/';
                start = i + 1;
        }
        return steal_fd(&cur);
}

int dest_open(const char *dest, bool create, struct err *e)
{
        _cleanup_close_ int root = root_open("work", e);
        size_t n = strlen(dest);

        if (root < 0)
                return root;
        if (n == 0 || strcmp(dest, ".") == 0)
                return steal_fd(&root);
        if (n > GUEST_PATH_MAX || !guest_path_ok(dest, n))
                return err_set(e, -EINVAL, "`dest` must be a plain path below /work, got \"%s\"", dest);
        int fd = beneath_open(root, dest, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, BENEATH_FOLLOW);
        if (fd == -ENOENT && create)
                fd = make_dest(root, dest, n);
        return fd < 0 ? explain(e, fd, dest) : fd;
}

const char *path_split(const char *path, size_t n, size_t *ret_dir_len)
{
        const char *slash = memrchr(path, '/', n);

        *ret_dir_len = slash ? (size_t) (slash - path) : 0;
        return slash ? slash + 1 : path;
}

void dircache_init(struct dircache *d, int root)
{
        d->root = root;
        d->fd = -1;
        d->len = 0;
}

void dircache_drop(struct dircache *d)
{
        if (d->fd >= 0)
                close(d->fd);
        d->fd = -1;
}

void dircache_put(struct dircache *d, const char *path, size_t n, int fd)
{
        dircache_drop(d);
        memcpy(d->path, path, n);
        d->path[n] = '\0';
        d->len = n;
        d->fd = fd;
}

int dircache_get(struct dircache *d, const char *path, size_t n)
{
        char copy[sizeof(d->path)];

        if (n == 0)
                return d->root;
        if (n >= sizeof(d->path))
                return -ENAMETOOLONG;
        if (d->fd >= 0 && d->len == n && memcmp(d->path, path, n) == 0)
                return d->fd;
        memcpy(copy, path, n);
        copy[n] = '\0';
        int fd = beneath_open(d->root, copy, O_PATH | O_DIRECTORY, 0, BENEATH_STRICT);
        if (fd < 0)
                return fd;
        dircache_put(d, path, n, fd);
        return fd;
}
