#include "sync/place.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_MAX ((size_t) 64 << 10)

/* realpath of the longest prefix that exists, with the rest as written (dots are gone by then). */
static char *canonical(const char *path)
{
        char *real = realpath(path, NULL);

        if (real || errno != ENOENT)
                return real;
        _cleanup_free_ char *copy = xstrdup(path);
        size_t n = strlen(copy);
        while (n > 1 && copy[n - 1] == '/')
                copy[--n] = '\0';
        char *slash = strrchr(copy, '/');
        if (!slash)
                return NULL;
        const char *base = slash + 1;
        if (strcmp(base, "..") == 0)
                return NULL;
        *slash = '\0';
        _cleanup_free_ char *parent = canonical(*copy ? copy : "/");
        if (!parent)
                return NULL;
        if (strcmp(base, ".") != 0)
                return xasprintf("%s/%s", strcmp(parent, "/") == 0 ? "" : parent, base);
        return steal_ptr(parent);
}

/* Beside target; inside it when that is another file system, or the folder above is not ours to write in. */
static int make_staging(struct place *p, const char *parent, struct err *e)
{
        struct stat st, up;
        char id[9];
        int r = 0;

        random_id(id, 8);
        bool is_dir = lstat(p->target, &st) == 0 && S_ISDIR(st.st_mode);
        bool inside = is_dir && stat(parent, &up) == 0 && up.st_dev != st.st_dev;
        for (int try = inside ? 1 : 0; try < (is_dir ? 2 : 1); try++) {
                const char *dir = try ? p->target : parent;

                p->staging = xasprintf("%s/.psbx-pull-%s", strcmp(dir, "/") == 0 ? "" : dir, id);
                if (mkdir(p->staging, 0777) == 0)
                        return 0;
                r = -errno;
                free(steal_ptr(p->staging));
                if (r != -EACCES && r != -EPERM && r != -EROFS)
                        break;
        }
        return err_sys(e, r, "cannot write in %.300s", parent);
}

int place_open(struct place *p, const char *target, const char *cwd, struct err *e)
{
        char *slash;

        *p = (struct place){
                .staging_fd = -1, .cwd = cwd, .removed_paths = BUF_MAX(LIST_MAX), .notes = BUF_MAX(LIST_MAX)
        };
        _cleanup_free_ char *full = target[0] == '/' ? xstrdup(target) : xasprintf("%s/%s", cwd, target);
        p->target = canonical(full);
        if (!p->target)
                return err_sys(e, errno ? -errno : -EINVAL, "`localPath` %.300s cannot be used", full);
        if (strcmp(p->target, "/") == 0)
                return err_set(e, -EINVAL, "`localPath` must not be the root of the file system");
        slash = strrchr(p->target, '/');
        _cleanup_free_ char *parent =
                slash == p->target ? xstrdup("/") : xstrndup(p->target, (size_t) (slash - p->target));
        int r = mkdir_all(parent, 0777);
        if (r < 0)
                return err_sys(e, r, "cannot make %.300s", parent);
        r = make_staging(p, parent, e);
        if (r < 0 || !p->staging)
                return r < 0 ? r : -ENOMEM;
        p->staging_fd = open(p->staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return p->staging_fd < 0 ? err_sys(e, -errno, "cannot open %.300s", p->staging) : 0;
}

void place_done(struct place *p)
{
        if (p->staging)
                (void) remove_tree(AT_FDCWD, p->staging);
        if (p->staging_fd >= 0)
                closep(&p->staging_fd);
        free(p->staging);
        free(p->target);
        buf_done(&p->removed_paths);
        buf_done(&p->notes);
        *p = (struct place){ .staging_fd = -1 };
}

static bool is_or_holds(const char *dir, const char *path)
{
        _cleanup_free_ char *real = path && *path ? realpath(path, NULL) : NULL;
        size_t n = strlen(dir);

        return real && strncmp(real, dir, n) == 0 && (real[n] == '\0' || real[n] == '/');
}

int place_may_clean(const struct place *p, struct err *e)
{
        _cleanup_free_ char *git = xasprintf("%s/.git", p->target);
        _cleanup_free_ char *parent = xasprintf("%s/..", p->target);
        struct stat st, up;

        if (lstat(git, &st) == 0)
                return err_set(e, -EPERM, "`clean` is refused: %.300s is a git checkout. Nothing was changed.",
                               p->target);
        if (is_or_holds(p->target, getenv("HOME")))
                return err_set(e, -EPERM,
                               "`clean` is refused: %.300s is or holds your home folder. Nothing was changed.",
                               p->target);
        if (is_or_holds(p->target, p->cwd))
                return err_set(
                        e, -EPERM,
                        "`clean` is refused: %.300s is or holds the folder this adapter runs in. Nothing was changed.",
                        p->target);
        if (stat(p->target, &st) == 0 && stat(parent, &up) == 0 && st.st_dev != up.st_dev)
                return err_set(e, -EPERM,
                               "`clean` is refused: %.300s is the root of a file system. Nothing was changed.",
                               p->target);
        return 0;
}

static void add(struct buf *list, const char *text)
{
        size_t before = list->len;

        if (buf_adds(list, text) < 0 || buf_addc(list, '\0') < 0)
                list->len = before;
}

static DIR *open_dir(int fd, const char *name)
{
        int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = sub < 0 ? NULL : fdopendir(sub);

        if (!d && sub >= 0)
                close(sub);
        return d;
}

static bool is_dir_at(int fd, const char *name)
{
        struct stat st;

        return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int merge_dir(struct place *p, int from, int to, const char *prefix, struct err *e);

static int merge_subdir(struct place *p, int from, int to, const char *name, const char *path, struct err *e)
{
        struct stat st;

        bool there = fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

        /* Nothing there: the whole folder moves at once. */
        if (!there || S_ISREG(st.st_mode)) {
                if (there)
                        (void) unlinkat(to, name, 0);
                return renameat(from, name, to, name) < 0 ? err_sys(e, -errno, "cannot write %.200s", path) : 0;
        }
        _cleanup_close_ int sub_from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_close_ int sub_to = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub_from < 0)
                return err_sys(e, -errno, "cannot read %.200s", path);
        if (sub_to < 0) {
                _cleanup_free_ char *note =
                        xasprintf("%s: not written, because a link has the place of this folder here", path);
                add(&p->notes, note);
                return 0;
        }
        return merge_dir(p, sub_from, sub_to, path, e);
}

static int merge_file(struct place *p, int from, int to, const char *name, const char *path, struct err *e)
{
        if (renameat(from, name, to, name) == 0)
                return 0;
        if ((errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST) && unlinkat(to, name, AT_REMOVEDIR) == 0 &&
            renameat(from, name, to, name) == 0)
                return 0;
        if (errno == ENOTEMPTY || errno == EEXIST || errno == EISDIR) {
                _cleanup_free_ char *note =
                        xasprintf("%s: not written, because a folder with files has its place here", path);
                add(&p->notes, note);
                return 0;
        }
        return err_sys(e, -errno, "cannot write %.200s", path);
}

static int merge_dir(struct place *p, int from, int to, const char *prefix, struct err *e)
{
        DIR *d = open_dir(from, ".");
        int r = 0;

        if (!d)
                return err_sys(e, -errno, "cannot read %.200s", prefix);
        for (struct dirent *it; r == 0 && (it = readdir(d));) {
                if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
                        continue;
                _cleanup_free_ char *path = xasprintf("%s%s%s", prefix, *prefix ? "/" : "", it->d_name);
                r = is_dir_at(from, it->d_name) ? merge_subdir(p, from, to, it->d_name, path, e)
                                                : merge_file(p, from, to, it->d_name, path, e);
        }
        (void) closedir(d);
        return r;
}

int place_merge(struct place *p, struct err *e)
{
        struct stat st;

        if (lstat(p->target, &st) < 0)
                return rename(p->staging, p->target) < 0 ? err_sys(e, -errno, "cannot write %.300s", p->target) : 0;
        if (!S_ISDIR(st.st_mode))
                return err_set(e, -ENOTDIR, "`localPath` %.300s is a file, and the box's path is a folder", p->target);
        _cleanup_close_ int to = open(p->target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (to < 0)
                return err_sys(e, -errno, "cannot open %.300s", p->target);
        return merge_dir(p, p->staging_fd, to, "", e);
}

static bool exists_at(int fd, const char *name)
{
        struct stat st;

        return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What old has and new has not; -EPERM at a repository inside. */
static int list_removed(struct place *p, int old, int new, const char *prefix, struct err *e)
{
        DIR *d = open_dir(old, ".");
        int r = 0;

        for (struct dirent *it; r == 0 && d && (it = readdir(d));) {
                const char *name = it->d_name;

                if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                        continue;
                _cleanup_free_ char *path = xasprintf("%s%s%s", prefix, *prefix ? "/" : "", name);
                if (strcmp(name, ".git") == 0) {
                        r = err_set(e, -EPERM,
                                    "`clean` is refused: %.300s holds a git checkout (%.200s). Nothing was changed.",
                                    p->target, *prefix ? prefix : ".");
                } else if (is_dir_at(old, name)) {
                        _cleanup_close_ int sub_old =
                                openat(old, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        _cleanup_close_ int sub_new =
                                new < 0 ? -1 : openat(new, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        if (sub_old >= 0)
                                r = list_removed(p, sub_old, sub_new, path, e);
                } else if (new < 0 || !exists_at(new, name)) {
                        p->removed++;
                        add(&p->removed_paths, path);
                }
        }
        if (d)
                (void) closedir(d);
        return r;
}

/* One step where the system has it, so that localPath is never missing; two renames elsewhere. */
static int exchange(const char *a, const char *b)
{
#if defined(__linux__) && defined(RENAME_EXCHANGE)
        if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
                return 0;
        if (errno != EINVAL && errno != ENOSYS)
                return -errno;
#elif defined(__APPLE__) && defined(RENAME_SWAP)
        if (renamex_np(a, b, RENAME_SWAP) == 0)
                return 0;
        if (errno != ENOTSUP && errno != EINVAL)
                return -errno;
#endif
        _cleanup_free_ char *aside = xasprintf("%s.old", a);
        if (rename(b, aside) < 0)
                return -errno;
        if (rename(a, b) < 0) {
                int r = -errno;
                (void) rename(aside, b);
                return r;
        }
        return rename(aside, a) < 0 ? -errno : 0;
}

int place_swap(struct place *p, struct err *e)
{
        struct stat st;
        int r;

        if (lstat(p->target, &st) < 0)
                return rename(p->staging, p->target) < 0 ? err_sys(e, -errno, "cannot write %.300s", p->target) : 0;
        _cleanup_close_ int old = open(p->target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (old >= 0) {
                r = list_removed(p, old, p->staging_fd, "", e);
                if (r < 0)
                        return r;
        }
        r = exchange(p->staging, p->target);
        return r < 0 ? err_sys(e, r, "cannot replace %.300s", p->target) : 0;
}

int place_file(struct place *p, const char *name, struct err *e)
{
        struct stat st;

        if (stat(p->target, &st) == 0) {
                if (S_ISDIR(st.st_mode))
                        return err_set(e, -EISDIR,
                                       "`localPath` %.300s is a folder, and the box's path is a file: give the path of "
                                       "the file itself",
                                       p->target);
                /* a script that was executable stays so */
                if (fchmodat(p->staging_fd, name, st.st_mode & 0777, 0) < 0)
                        return err_sys(e, -errno, "cannot write %.300s", p->target);
        }
        if (renameat(p->staging_fd, name, AT_FDCWD, p->target) < 0)
                return err_sys(e, -errno, "cannot write %.300s", p->target);
        return 0;
}
