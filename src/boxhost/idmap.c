#include "boxhost/idmap.h"

#include "boxhost/sys.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>

static int write_maps(pid_t pid, const char *map, int *ret_userns, struct err *e)
{
        char path[64];
        int r, fd;

        snprintf(path, sizeof(path), "/proc/%d/uid_map", (int) pid);
        r = sys_write(AT_FDCWD, path, map, e);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/%d/gid_map", (int) pid);
        r = sys_write(AT_FDCWD, path, map, e);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return err_sys(e, -errno, "cannot open %s", path);
        *ret_userns = fd;
        return 0;
}

int idmap_give(pid_t pid, unsigned index, int *ret_userns, struct err *e)
{
        char map[64];

        snprintf(map, sizeof(map), "0 %u %u\n", idmap_base(index), IDMAP_COUNT);
        return write_maps(pid, map, ret_userns, e);
}

int idmap_shift(unsigned from, unsigned to, int *ret_userns, struct err *e)
{
        struct sys_clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
        char map[96];
        int hold[2], r;
        pid_t pid;

        if (pipe2(hold, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "no pipe");
        pid = sys_clone3(&a);
        if (pid == 0) {
                char c;

                close(hold[1]);
                (void) !read(hold[0], &c, 1); /* lives until its namespace is held by a descriptor */
                _exit(0);
        }
        r = pid < 0 ? err_sys(e, -errno, "cannot make a user namespace") : 0;
        /* Root of the machine keeps its files in the layer: the overlay's own work folder. */
        snprintf(map, sizeof(map), "0 0 1\n%u %u %u\n", idmap_base(from), idmap_base(to), IDMAP_COUNT);
        if (r == 0)
                r = write_maps(pid, map, ret_userns, e);
        close(hold[0]);
        close(hold[1]);
        if (pid > 0)
                (void) waitpid(pid, NULL, 0);
        return r;
}

static int clone_with(int dirfd, const char *path, int userns, uint64_t more, int *ret_mount, struct err *e)
{
        struct mount_attr attr = {
                .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | more,
                .userns_fd = (uint64_t) userns,
        };
        _cleanup_close_ int fd = open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

        if (fd < 0)
                return err_sys(e, -errno, "cannot clone the mount of %s", path);
        if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return err_sys(e, -errno, "cannot idmap %s", path);
        *ret_mount = steal_fd(&fd);
        return 0;
}

int idmap_clone(int dirfd, const char *path, int userns, int *ret_mount, struct err *e)
{
        return clone_with(dirfd, path, userns, MOUNT_ATTR_RDONLY, ret_mount, e);
}

int idmap_clone_rw(int dirfd, const char *path, int userns, int *ret_mount, struct err *e)
{
        return clone_with(dirfd, path, userns, 0, ret_mount, e);
}
