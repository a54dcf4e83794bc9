#include "boxhost/disk.h"

#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/str.h"
#include "boxhost/mount.h"
#include "boxhost/sys.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define LOOP_MAJOR 7
/* ext4's own numbers; linux/ext4.h is younger than the kernels we run on */
#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define EXT4_GOING_FLAGS_NOLOGFLUSH 2
#endif
#define SIZE_DEFAULT (10ULL << 30)
#define MKFS_TIMEOUT_MS 60000

static const char *const folders[] = { "root", "root.work", "usr", "usr.work", "work" };

static int make_folders(int dir, struct err *e)
{
        for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
                if (mkdirat(dir, folders[i], 0755) < 0 && errno != EEXIST)
                        return err_sys(e, -errno, "cannot make the disk's folder %s", folders[i]);
        }
        return 0;
}

/* A loop device bound to the file; it frees itself when its last user (the mount) is gone. */
static int attach_loop(int file, char device[32], int *ret, struct err *e)
{
        struct loop_config config = {
                .fd = (uint32_t) file,
                .block_size = 4096,
                .info = { .lo_flags = LO_FLAGS_AUTOCLEAR },
        };
        _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

        if (control < 0)
                return err_sys(e, -errno, "cannot open /dev/loop-control");
        for (int tries = 0; tries < 64; tries++) {
                int n = ioctl(control, LOOP_CTL_GET_FREE), fd;
                if (n < 0)
                        return err_sys(e, -errno, "no free loop device");
                snprintf(device, 32, "/dev/loop%d", n);
                fd = open(device, O_RDWR | O_CLOEXEC);
                if (fd < 0 && errno == ENOENT && mknod(device, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned) n)) == 0)
                        fd = open(device, O_RDWR | O_CLOEXEC);
                if (fd < 0)
                        return err_sys(e, -errno, "cannot open %s", device);
                if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
                        *ret = fd;
                        return 0;
                }
                close(fd);
                if (errno != EBUSY) /* busy: another program took it between the two calls */
                        return err_sys(e, -errno, "cannot set up %s", device);
        }
        return err_set(e, -EBUSY, "no free loop device");
}

static int mount_file(int dir, const char *name, int *ret, struct err *e)
{
        static const char *const options[] = {
                "discard", "noinit_itable", "errors=continue", "data=writeback", "nobarrier", "commit=300", NULL
        };
        _cleanup_close_ int file = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW), loop = -1;
        char device[32];
        int r;

        if (file < 0)
                return err_sys(e, -errno, "cannot open the disk %s", name);
        /* The loop device keeps this very open file, and with it the lock, for as long as the disk is mounted: whatever
         * process dies when, nobody mounts it a second time. */
        if (flock(file, LOCK_EX | LOCK_NB) < 0)
                return err_set(e, errno == EWOULDBLOCK ? -EBUSY : -errno, "the disk is still in use");
        r = attach_loop(file, device, &loop, e);
        if (r < 0)
                return r;
        return mount_new("ext4", device, options, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME, ret, e);
}

static int new_file(int dir, const char *name, uint64_t size, int *ret, struct err *e)
{
        int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
                return err_sys(e, -errno, "cannot make the disk file %s", name);
        if (ftruncate(fd, (off_t) size) < 0) {
                int r = err_sys(e, -errno, "cannot size the disk file %s", name);
                close(fd);
                return r;
        }
        *ret = fd;
        return 0;
}

/*
 * The disk dies with its box, so nothing needs a journal's promise; a small one is there all the same, because without
 * it ext4 looks at every inode that was deleted within the last minutes before it gives out one, which makes a tree
 * that is deleted and written again ten times slower. The feature list is spelled out so that every release of mkfs
 * makes the same, and small tables are left unwritten (the file reads as zeros).
 */
static int make_file_system(int file, struct err *e)
{
        char path[64];
        const char *const argv[] = {
                "mkfs.ext4",
                "-q",
                "-F",
                "-b",
                "4096",
                "-I",
                "256",
                "-m",
                "0",
                "-O",
                ("none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,"
                 "dir_nlink,extra_isize,metadata_csum"),
                "-J",
                "size=4",
                "-E",
                "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
                path,
                NULL
        };

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) getpid(), file);
        return sys_run(argv, NULL, MKFS_TIMEOUT_MS, e);
}

static int sync_mount(int mounted, struct err *e)
{
        _cleanup_close_ int fd =
                openat(mounted, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a mount's own descriptor is a mere path */

        if (fd < 0 || syncfs(fd) < 0)
                return err_sys(e, -errno, "cannot write the disk template");
        return 0;
}

/* The first file made in a folder reads bitmaps and tables; better here than while somebody waits for the box. */
static void warm(int mounted)
{
        for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
                _cleanup_close_ int dir = openat(mounted, folders[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (dir >= 0 && mkdirat(dir, "warm", 0700) == 0)
                        (void) unlinkat(dir, "warm", AT_REMOVEDIR);
        }
}

static int make_template(int dir, uint64_t size, char name[32], struct err *e)
{
        _cleanup_close_ int file = -1, mounted = -1;
        char fresh[40];
        int r;

        snprintf(name, 32, "template-w%" PRIu64, size);
        if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        snprintf(fresh, sizeof(fresh), "%s.new", name);
        (void) unlinkat(dir, fresh, 0);
        r = new_file(dir, fresh, size, &file, e);
        if (r == 0)
                r = make_file_system(file, e);
        if (r == 0)
                r = mount_file(dir, fresh, &mounted, e);
        if (r == 0)
                r = make_folders(mounted, e);
        if (r == 0)
                r = sync_mount(mounted, e);
        if (r == 0 && renameat(dir, fresh, dir, name) < 0)
                r = err_sys(e, -errno, "cannot keep the disk template");
        if (r < 0)
                (void) unlinkat(dir, fresh, 0);
        return r;
}

/* Copies only what is data: some hundred KiB of a file of many GiB. */
static int copy_sparse(int from, int to, struct err *e)
{
        off_t at = 0;

        while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
                off_t end = lseek(from, at, SEEK_HOLE), out = at;
                while (at < end) {
                        ssize_t n = copy_file_range(from, &at, to, &out, (size_t) (end - at), 0);
                        if (n <= 0)
                                return err_sys(e, n < 0 ? -errno : -EIO, "cannot copy the disk template");
                }
        }
        return errno == ENXIO ? 0 : err_sys(e, -errno, "cannot read the disk template");
}

static int make_disk(int dir, uint64_t size, struct disk *ret, struct err *e)
{
        _cleanup_close_ int from = -1, to = -1;
        char template[32], id[13];
        int r = make_template(dir, size, template, e);

        if (r < 0)
                return r;
        random_id(id, 12);
        snprintf(ret->name, sizeof(ret->name), "d-%s", id);
        from = openat(dir, template, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (from < 0)
                return err_sys(e, -errno, "cannot open the disk template");
        r = new_file(dir, ret->name, size, &to, e);
        if (r < 0)
                return r;
        r = copy_sparse(from, to, e);
        if (r == 0)
                r = mount_file(dir, ret->name, &ret->mount, e);
        if (r == 0)
                warm(ret->mount);
        if (r < 0)
                (void) unlinkat(dir, ret->name, 0);
        return r;
}

static void drop_files(int dir, const char *except)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        for (struct dirent *it; (it = readdir(d));) {
                if (it->d_name[0] != '.' && !cstr_eq(it->d_name, except))
                        (void) unlinkat(dir, it->d_name, 0);
        }
        closedir(d);
}

/* The size boxes had last: most likely also the next one's. */
static uint64_t remembered_size(int dir)
{
        uint64_t size;

        return sys_read_u64(dir, "size", &size) == 0 && size >= 1 << 20 && size <= 1ULL << 43 ? size : SIZE_DEFAULT;
}

static void remember_size(int dir, uint64_t size)
{
        char text[32];

        snprintf(text, sizeof(text), "%" PRIu64, size);
        (void) file_write_atomic(dir, "size", text, strlen(text), 0600, NULL);
}

void disk_pool_open(struct disk_pool *p, int dir, size_t want, struct err *e)
{
        struct disk first = { .mount = -1 };

        *p = (struct disk_pool){ .dir = dir, .want = min_size(want, DISK_POOL_MAX), .filler_sock = -1 };
        drop_files(dir, "size");
        p->size = remembered_size(dir);
        /* The only honest test is to make one. */
        if (make_disk(dir, p->size, &first, e) < 0)
                return;
        p->limited = true;
        p->ready[p->n++] = first;
}

static void forget_ready(struct disk_pool *p)
{
        while (p->n > 0) {
                p->n--;
                close(p->ready[p->n].mount);
                (void) unlinkat(p->dir, p->ready[p->n].name, 0);
        }
}

static void end_filler(struct disk_pool *p)
{
        if (p->filler <= 0)
                return;
        (void) kill(p->filler, SIGTERM);
        (void) waitpid(p->filler, NULL, 0);
        close(steal_fd(&p->filler_sock));
        p->filler = 0;
}

void disk_pool_close(struct disk_pool *p)
{
        if (p->dir < 0) /* never opened */
                return;
        end_filler(p);
        forget_ready(p);
        drop_files(p->dir, "size");
}

static int take_folder(int box_dir, int *ret, struct err *e)
{
        _cleanup_close_ int fd = -1;
        int r;

        if (mkdirat(box_dir, "root", 0755) < 0)
                return err_sys(e, -errno, "cannot make the box's folder");
        fd = openat(box_dir, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return err_sys(e, -errno, "cannot open the box's folder");
        r = make_folders(fd, e);
        if (r == 0)
                *ret = steal_fd(&fd);
        return r;
}

int disk_take(struct disk_pool *p, uint64_t size, int box_dir, int *ret, struct err *e)
{
        struct disk d = { .mount = -1 };

        if (!p->limited)
                return take_folder(box_dir, ret, e);
        if (p->size != size) {
                end_filler(p);
                forget_ready(p);
                p->size = size;
                remember_size(p->dir, size);
        }
        if (p->n > 0) {
                d = p->ready[--p->n];
        } else {
                int r = make_disk(p->dir, size, &d, e);
                if (r < 0)
                        return r;
        }
        if (renameat(p->dir, d.name, box_dir, DISK_FILE) < 0) {
                int r = err_sys(e, -errno, "cannot hand over a disk");
                close(d.mount);
                return r;
        }
        *ret = d.mount;
        return 0;
}

int disk_open(int box_dir, int *ret, bool *ret_plain, struct err *e)
{
        int fd = openat(box_dir, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

        *ret_plain = fd >= 0;
        if (fd < 0)
                return mount_file(box_dir, DISK_FILE, ret, e);
        *ret = fd;
        return 0;
}

int disk_watch(int box_dir)
{
        return openat(box_dir, DISK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

bool disk_is_free(int watch)
{
        if (flock(watch, LOCK_EX | LOCK_NB) < 0)
                return errno != EWOULDBLOCK;
        (void) flock(watch, LOCK_UN); /* a child that was forked meanwhile may hold a copy for a moment */
        return true;
}

int disk_renew(int disk, struct err *e)
{
        /* "work" is not a layer: it stays. */
        static const char *const layers[] = { "root", "root.work", "usr", "usr.work" };

        for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
                int r = remove_tree(disk, layers[i]);

                if (r < 0)
                        return err_sys(e, r, "cannot remove the layer %s of the disk", layers[i]);
        }
        return make_folders(disk, e);
}

int disk_loop(int disk)
{
        struct stat st;

        return fstat(disk, &st) == 0 && major(st.st_dev) == LOOP_MAJOR ? (int) minor(st.st_dev) : -1;
}

static void filler_main(const struct disk_pool *p, int sock, pid_t parent) __attribute__((noreturn));
static void filler_main(const struct disk_pool *p, int sock, pid_t parent)
{
        int dir = fcntl(p->dir, F_DUPFD_CLOEXEC, 64);

        sock = fcntl(sock, F_DUPFD_CLOEXEC, 64);
        /* Nothing of the boxes may live on in here: not their pidfds, not their mounts. */
        if (dir < 0 || sock < 0 || dup3(dir, 3, O_CLOEXEC) < 0 || dup3(sock, 4, O_CLOEXEC) < 0 ||
            close_range(5, ~0U, 0) < 0)
                _exit(1);
        dir = 3;
        sock = 4;
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        sys_reset_signals();
        (void) setpriority(PRIO_PROCESS, 0, 10);
        if (getppid() != parent)
                _exit(1);
        for (size_t i = p->n; i < p->want; i++) {
                struct disk d = { .mount = -1 };
                struct err e = { 0 };
                if (make_disk(dir, p->size, &d, &e) < 0) {
                        log_warning("cannot prepare a disk: %s", err_text(&e));
                        _exit(1);
                }
                if (sys_send_fds(sock, d.name, sizeof(d.name), &d.mount, 1) < 0)
                        _exit(1);
                close(d.mount);
        }
        _exit(0);
}

void disk_abandon(int disk)
{
        uint32_t flags = EXT4_GOING_FLAGS_NOLOGFLUSH;

        if (disk >= 0)
                (void) ioctl(disk, EXT4_IOC_SHUTDOWN, &flags);
}

void disk_refill(struct disk_pool *p)
{
        pid_t parent = getpid();
        int pair[2];

        if (!p->limited || p->filler > 0 || p->size == 0 || p->n >= p->want)
                return;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return;
        p->filler = fork();
        if (p->filler == 0)
                filler_main(p, pair[1], parent);
        close(pair[1]);
        if (p->filler < 0) {
                close(pair[0]);
                p->filler = 0;
                return;
        }
        p->filler_sock = pair[0];
}

void disk_arrived(struct disk_pool *p)
{
        struct disk d = { .mount = -1 };
        size_t n = 0;
        ssize_t r = sys_recv_fds(p->filler_sock, d.name, sizeof(d.name), &d.mount, 1, &n);

        if (r == (ssize_t) sizeof(d.name) && n == 1 && p->n < DISK_POOL_MAX) {
                p->ready[p->n++] = d;
                return;
        }
        if (n == 1)
                close(d.mount);
        if (r <= 0)
                end_filler(p);
}
