#include "boxhost/ns.h"

#include "boxhost/caps.h"
#include "boxhost/net.h"
#include "boxhost/seccomp.h"
#include "boxhost/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <grp.h>
#include <linux/keyctl.h>

#define NOFILE_MAX 1048576

static void fail(const struct ns_plan *p, const char *step, int code) __attribute__((noreturn));
static void fail(const struct ns_plan *p, const char *step, int code)
{
        struct ns_failure f = { .code = code };

        snprintf(f.step, sizeof(f.step), "%s", step);
        (void) send(p->sync, &f, sizeof(f), MSG_NOSIGNAL);
        _exit(1);
}

#define TRY(step, call)                        \
        do {                                   \
                if ((call) < 0)                \
                        fail(p, step, -errno); \
        } while (0)

static void join_cgroups(const struct ns_plan *p)
{
        for (size_t i = 0; i < p->join->n; i++)
                TRY("join a cgroup", write(p->join->tasks[i], "0", 1));
}

/* Some of the files may not exist on this kernel; what exists must be covered. */
static void cover(const struct ns_plan *p, const char *path, bool with_null)
{
        if (with_null) {
                if (mount("dev/null", path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
                        fail(p, path, -errno);
                return;
        }
        if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0) {
                if (errno != ENOENT)
                        fail(p, path, -errno);
                return;
        }
        TRY(path, mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
}

static void mask_proc(const struct ns_plan *p)
{
        static const char *const hidden[] = { "proc/kcore",      "proc/keys",        "proc/sysrq-trigger",
                                              "proc/timer_list", "proc/sched_debug", "proc/latency_stats",
                                              "proc/key-users",  "proc/kpagecount" };
        static const char *const read_only[] = { "proc/sys", "proc/irq", "proc/bus", "proc/fs" };
        static const char *const empty[] = { "proc/acpi", "proc/scsi" };

        for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
                cover(p, hidden[i], true);
        for (size_t i = 0; i < ARRAY_LEN(read_only); i++)
                cover(p, read_only[i], false);
        for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
                struct stat st;
                if (stat(empty[i], &st) == 0)
                        TRY(empty[i], mount("tmpfs", empty[i], "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                                            "size=0,mode=555"));
        }
}

static void mount_virtual(const struct ns_plan *p)
{
        const unsigned long quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

        TRY("mount /proc", mount("proc", "proc", "proc", quiet, NULL));
        TRY("mount /dev/pts",
            mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"));
        TRY("mount /dev/shm", mount("shm", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=1g,mode=1777"));
        if (mount("mqueue", "dev/mqueue", "mqueue", quiet, NULL) < 0 && errno != ENODEV)
                fail(p, "mount /dev/mqueue", -errno);
        TRY("mount /run", mount("run", "run", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=755"));
        TRY("make /run/lock", mkdir("run/lock", 01777));
        TRY("make /run/lock", chmod("run/lock", 01777));
}

/*
 * How many namespaces a browser's sandbox may make in the box, in all: the kernel's memory for them is in no limit of
 * the box. These sysctls are of the user namespace that writes them, and hold below it too.
 */
static void limit_namespaces(const struct ns_plan *p)
{
        static const char *const limits[][2] = {
                { "proc/sys/user/max_user_namespaces", "1024" }, { "proc/sys/user/max_pid_namespaces", "1024" },
                { "proc/sys/user/max_net_namespaces", "32" },    { "proc/sys/user/max_mnt_namespaces", "1" },
                { "proc/sys/user/max_ipc_namespaces", "1" },     { "proc/sys/user/max_uts_namespaces", "1" }
        };

        for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
                _cleanup_close_ int fd = open(limits[i][0], O_WRONLY | O_CLOEXEC);

                if (fd >= 0)
                        TRY(limits[i][0], write(fd, limits[i][1], strlen(limits[i][1])));
        }
}

/* boxd once more, as the program that asks boxd to start one with a sandbox of its own (docs/screens.md). */
static void put_launcher(const struct ns_plan *p, int mount)
{
        _cleanup_close_ int fd = -1;

        TRY("make /run/boxd", mkdir("run/boxd", 0755));
        fd = open("run/boxd/launch", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        TRY("make /run/boxd/launch", fd);
        TRY("attach /run/boxd/launch", move_mount(mount, "", AT_FDCWD, "run/boxd/launch", MOVE_MOUNT_F_EMPTY_PATH));
}

static void enter_root(const struct ns_plan *p, const struct ns_go *go, const int *mounts)
{
        struct err e = { 0 };

        TRY("make mounts private", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
        /* boxhost's working folder carries the new root: reaching "." asks no permission of the folders above it */
        TRY("attach the root", move_mount(mounts[NS_ROOT], "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH));
        TRY("enter the root", fchdir(mounts[NS_ROOT]));
        TRY("attach /dev", move_mount(mounts[NS_DEV], "", AT_FDCWD, "dev", MOVE_MOUNT_F_EMPTY_PATH));
        if (mkdir("work", 0755) < 0 && errno != EEXIST)
                fail(p, "make /work", -errno);
        TRY("attach /work", move_mount(mounts[NS_WORK], "", AT_FDCWD, "work", MOVE_MOUNT_F_EMPTY_PATH));
        if (go->has_usr)
                TRY("attach /usr", move_mount(mounts[NS_USR], "", AT_FDCWD, "usr", MOVE_MOUNT_F_EMPTY_PATH));
        mount_virtual(p);
        put_launcher(p, mounts[NS_LAUNCH]);
        limit_namespaces(p);
        if (net_box_up(go->index, p->net, &e) < 0)
                fail(p, e.msg, e.code);
        mask_proc(p);
        TRY("pivot", sys_pivot_root(".", "."));
        TRY("let go of the old root", umount2(".", MNT_DETACH));
        TRY("enter /", chdir("/"));
}

/* Paths are the box's own by now: whatever an image made of its /etc, nothing outside can be reached. */
static void put_file(const char *path, const char *text)
{
        _cleanup_close_ int fd = -1;

        (void) unlink(path); /* it may be a link to what a service manager would have made */
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd >= 0)
                (void) !write(fd, text, strlen(text));
}

static void put_ca(int from)
{
        _cleanup_close_ int fd = -1;
        off_t at = 0;

        (void) mkdir("/etc/ssl", 0755);
        (void) mkdir("/etc/ssl/certs", 0755);
        (void) unlink("/etc/ssl/certs/ca-certificates.crt");
        fd = open("/etc/ssl/certs/ca-certificates.crt", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        while (fd >= 0 && sendfile(fd, from, &at, 1 << 20) > 0)
                ;
}

/* machine-id(5): a box is a machine of its own; the bus and what asks for it would complain. */
static void put_machine_id(void)
{
        unsigned char id[16];
        char text[2 * sizeof(id) + 2];

        if (getrandom(id, sizeof(id), 0) != (ssize_t) sizeof(id))
                return;
        for (size_t i = 0; i < sizeof(id); i++)
                snprintf(text + 2 * i, 3, "%02x", id[i]);
        snprintf(text + 2 * sizeof(id), 2, "\n");
        put_file("/etc/machine-id", text);
}

/* Debian's `chromium` reads every file there. In all images, since it may be installed later. */
static void put_chromium_hook(void)
{
        static const char hook[] =
                "# Chromium keeps its own sandbox on: boxd starts it anew, with the rights for that and not as root.\n"
                "if [ \"$(id -u)\" = 0 ] && [ -S /run/boxd/launch.sock ]; then\n"
                "\tcase \" $* \" in\n"
                "\t*\" --no-sandbox \"*) ;;\n"
                "\t*) exec /run/boxd/launch \"$0\" \"$@\" ;;\n"
                "\tesac\n"
                "fi\n"
                "export CHROMIUM_FLAGS=\"$CHROMIUM_FLAGS --no-first-run --password-store=basic\"\n";

        (void) mkdir("/etc/chromium.d", 0755);
        put_file("/etc/chromium.d/zz-box", hook);
}

static void put_identity(const struct ns_plan *p, const struct ns_go *go)
{
        char text[512], gateway[INET_ADDRSTRLEN];

        (void) mkdir("/etc", 0755);
        snprintf(text, sizeof(text), "127.0.0.1 localhost\n127.0.1.1 %s\n", p->hostname);
        put_file("/etc/hosts", text);
        snprintf(text, sizeof(text), "%s\n", p->hostname);
        put_file("/etc/hostname", text);
        put_machine_id();
        put_chromium_hook();
        net_print(net_box_gateway(), gateway);
        snprintf(text, sizeof(text), "nameserver %s\noptions timeout:3 attempts:2\n", gateway);
        put_file("/etc/resolv.conf", text);
        if (!go->has_usr && p->ca >= 0)
                put_ca(p->ca);
}

static void set_limits(void)
{
        static const struct {
                int what;
                rlim_t soft, hard;
        } wanted[] = { { RLIMIT_NOFILE, 65536, NOFILE_MAX }, { RLIMIT_CORE, 0, RLIM_INFINITY } };

        for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
                struct rlimit now, next;
                if (getrlimit((__rlimit_resource_t) wanted[i].what, &now) < 0)
                        continue;
                next.rlim_max =
                        wanted[i].hard < now.rlim_max ? wanted[i].hard : now.rlim_max; /* raising may be refused */
                next.rlim_cur = wanted[i].soft < next.rlim_max ? wanted[i].soft : next.rlim_max;
                (void) setrlimit((__rlimit_resource_t) wanted[i].what, &next);
        }
        (void) umask(022);
}

static void place_descriptors(const struct ns_plan *p, int *boxd)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        /* High numbers first, so that filling 0–4 cannot close what is still needed. */
        int listener = fcntl(p->listener, F_DUPFD_CLOEXEC, 64), ready = fcntl(p->ready, F_DUPFD_CLOEXEC, 64);
        int sync = fcntl(p->sync, F_DUPFD_CLOEXEC, 64);

        *boxd = fcntl(p->boxd, F_DUPFD_CLOEXEC, 64);
        if (null < 0 || listener < 0 || ready < 0 || sync < 0 || *boxd < 0)
                fail(p, "place descriptors", -errno);
        null = fcntl(null, F_DUPFD_CLOEXEC, 64);
        if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || dup2(listener, 3) < 0 ||
            dup2(ready, 4) < 0 || close_range(5, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                _exit(1);
}

static void wait_for_go(const struct ns_plan *p, struct ns_go *go, int *mounts)
{
        size_t n = 0;
        ssize_t r = sys_recv_fds(p->sync, go, sizeof(*go), mounts, NS_MOUNTS, &n);

        if (r != (ssize_t) sizeof(*go) || n < NS_USR + (size_t) go->has_usr)
                _exit(1); /* boxhost is gone or gave up */
}

static void child_main(const struct ns_plan *p) __attribute__((noreturn));
static void child_main(const struct ns_plan *p)
{
        static const char *const argv[] = { "boxd", NULL };
        int mounts[NS_MOUNTS], boxd = -1, r;
        struct ns_go go;

        close(p->keep);
        join_cgroups(p);
        (void) setsid();
        (void) syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
        wait_for_go(p, &go, mounts);
        TRY("become root", setresgid(0, 0, 0));
        TRY("become root", setgroups(0, NULL));
        TRY("become root", setresuid(0, 0, 0));
        TRY("unshare the cgroup namespace", unshare(CLONE_NEWCGROUP));
        TRY("set the host name", sethostname(p->hostname, strlen(p->hostname)));
        enter_root(p, &go, mounts);
        put_identity(p, &go);
        set_limits();
        place_descriptors(p, &boxd);
        sys_reset_signals();
        r = caps_keep();
        if (r == 0)
                r = box_filter_load(box_filter());
        if (r < 0)
                _exit(1);
        sys_execveat(boxd, argv, p->env);
        _exit(1);
}

int ns_start(const struct ns_plan *plan, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
        int pidfd = -1;
        struct sys_clone_args a = {
                .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
                         CLONE_PIDFD,
                .pidfd = (uint64_t) (uintptr_t) &pidfd,
                .exit_signal = SIGCHLD,
        };
        pid_t pid;

        if (plan->join->v2_dir >= 0) {
                a.flags |= SYS_CLONE_INTO_CGROUP;
                a.cgroup = (uint64_t) plan->join->v2_dir;
        }
        (void) box_filter(); /* written before the clone, so every child finds it ready */
        pid = sys_clone3(&a);
        if (pid < 0)
                return err_sys(e, -errno, "cannot start a process in new namespaces");
        if (pid == 0)
                child_main(plan);
        *ret_pid = pid;
        *ret_pidfd = pidfd;
        return 0;
}
