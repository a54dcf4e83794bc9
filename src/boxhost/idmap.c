#include "boxhost/idmap.h"

#include "boxhost/sys.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>

int idmap_give(pid_t pid, unsigned index, int *ret_userns, struct err *e)
{
        char path[64], map[64];
        int r, fd;

        snprintf(map, sizeof(map), "0 %u %u\n", idmap_base(index), IDMAP_COUNT);
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

int idmap_clone(int dirfd, const char *path, int userns, int *ret_mount, struct err *e)
{
        struct mount_attr attr = {
                .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV,
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
