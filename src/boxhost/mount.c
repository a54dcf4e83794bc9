#include "boxhost/mount.h"

#include "boxhost/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

int mount_private(struct err *e)
{
        if (unshare(CLONE_NEWNS) < 0)
                return err_sys(e, -errno, "cannot make a mount namespace");
        if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
                return err_sys(e, -errno, "cannot set mount propagation");
        return 0;
}

static int fill_dev(const char *stage, struct err *e)
{
        static const struct {
                const char *name;
                unsigned major, minor;
        } nodes[] = { { "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
                      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
        static const char *const folders[] = { "pts", "shm", "mqueue" };
        static const char *const links[][2] = { { "/proc/self/fd", "fd" },
                                                { "/proc/self/fd/0", "stdin" },
                                                { "/proc/self/fd/1", "stdout" },
                                                { "/proc/self/fd/2", "stderr" },
                                                { "pts/ptmx", "ptmx" } };
        _cleanup_close_ int dir = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir < 0)
                return err_sys(e, -errno, "cannot open %s", stage);
        for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
                if (mknodat(dir, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0 ||
                    fchmodat(dir, nodes[i].name, 0666, 0) < 0)
                        return err_sys(e, -errno, "cannot make /dev/%s", nodes[i].name);
        }
        for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
                if (mkdirat(dir, folders[i], 0755) < 0 || fchmodat(dir, folders[i], 0755, 0) < 0)
                        return err_sys(e, -errno, "cannot make /dev/%s", folders[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(links); i++) {
                if (symlinkat(links[i][0], dir, links[i][1]) < 0)
                        return err_sys(e, -errno, "cannot make /dev/%s", links[i][1]);
        }
        return 0;
}

int mount_dev_template(const char *stage, int *ret, struct err *e)
{
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
        _cleanup_close_ int fd = -1;
        int r;

        if (mount("dev", stage, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k") < 0)
                return err_sys(e, -errno, "cannot mount a tmpfs for /dev");
        r = fill_dev(stage, e);
        if (r == 0) {
                fd = open_tree(AT_FDCWD, stage, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                        r = err_sys(e, -errno, "cannot clone the template of /dev");
        }
        mount_detach(stage);
        if (r == 0)
                *ret = steal_fd(&fd);
        return r;
}

static int copy_program(const char *path, int from, struct err *e)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0755);
        off_t at = 0;
        ssize_t n = 1;

        if (fd < 0 || fchmod(fd, 0755) < 0)
                return err_sys(e, -errno, "cannot make a copy of boxd");
        while (n > 0)
                n = sendfile(fd, from, &at, 1 << 20);
        return n < 0 ? err_sys(e, -errno, "cannot copy boxd") : 0;
}

int mount_file_template(const char *stage, int program, int *ret, struct err *e)
{
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
        _cleanup_close_ int fd = -1;
        char path[128];
        int r;

        snprintf(path, sizeof(path), "%s/launch", stage);
        if (mount("launch", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") < 0)
                return err_sys(e, -errno, "cannot mount a tmpfs for boxd");
        r = copy_program(path, program, e);
        if (r == 0) {
                fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                        r = err_sys(e, -errno, "cannot clone the copy of boxd");
        }
        mount_detach(stage);
        if (r == 0)
                *ret = steal_fd(&fd);
        return r;
}

int mount_clone(int fd, int *ret, struct err *e)
{
        int r = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

        if (r < 0)
                return err_sys(e, -errno, "cannot clone a mount");
        *ret = r;
        return 0;
}

int mount_folder(int fd, int *ret, struct err *e)
{
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_NODEV, .attr_clr = MOUNT_ATTR_NOSUID };
        _cleanup_close_ int tree = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

        if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
                return err_sys(e, -errno, "cannot make a mount of a folder");
        *ret = steal_fd(&tree);
        return 0;
}

int mount_attach(int fd, const char *path, struct err *e)
{
        if (move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return err_sys(e, -errno, "cannot attach a mount at %s", path);
        return 0;
}

void mount_detach(const char *path)
{
        (void) umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static int configure(int fs, const char *option)
{
        char key[64];
        const char *eq = strchr(option, '=');

        if (!eq)
                return fsconfig(fs, FSCONFIG_SET_FLAG, option, NULL, 0);
        snprintf(key, sizeof(key), "%.*s", (int) (eq - option), option);
        return fsconfig(fs, FSCONFIG_SET_STRING, key, eq + 1, 0);
}

int mount_new(const char *type, const char *source, const char *const options[], unsigned attr, int *ret, struct err *e)
{
        _cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
        int fd;

        if (fs < 0)
                return err_sys(e, -errno, "no file system %s", type);
        if (fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) < 0)
                return err_sys(e, -errno, "%s: source %s", type, source);
        for (size_t i = 0; options && options[i]; i++) {
                if (configure(fs, options[i]) < 0)
                        return err_sys(e, -errno, "%s: option %s", type, options[i]);
        }
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return err_sys(e, -errno, "cannot mount %s", type);
        fd = fsmount(fs, FSMOUNT_CLOEXEC, attr);
        if (fd < 0)
                return err_sys(e, -errno, "cannot mount %s", type);
        *ret = fd;
        return 0;
}

int mount_overlay(int lower, int upper, int work, int *ret, struct err *e)
{
        /* Paths through /proc also keep the machine's folder names out of the box's /proc/self/mounts. */
        char l[64], u[64], w[64];
        const char *const options[] = { l, u, w, NULL };

        snprintf(l, sizeof(l), "lowerdir=/proc/self/fd/%d", lower);
        snprintf(u, sizeof(u), "upperdir=/proc/self/fd/%d", upper);
        snprintf(w, sizeof(w), "workdir=/proc/self/fd/%d", work);
        return mount_new("overlay", "overlay", options, MOUNT_ATTR_NODEV, ret, e);
}
