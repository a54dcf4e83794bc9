#include "boxhost/cgroup.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "boxhost/sys.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define CPU_PERIOD_US 100000
#define REMOVE_WAIT_MS 2000

static void pause_ms(long ms)
{
        struct timespec t = { .tv_nsec = ms * 1000000L };

        (void) nanosleep(&t, NULL);
}

static int read_text(const char *path, struct buf *b, struct err *e)
{
        int r = file_read(AT_FDCWD, path, b);

        return r < 0 ? err_sys(e, r, "cannot read %s", path) : 0;
}

static int read_layout(struct cg_layout *ret, struct err *e)
{
        _cleanup_buf_ struct buf mounts = BUF_MAX(1 << 20), self = BUF_MAX(1 << 16);
        char path[CG_PATH_MAX + 32], v2[512] = "";
        int r = read_text("/proc/self/mountinfo", &mounts, e);

        if (r == 0)
                r = read_text("/proc/self/cgroup", &self, e);
        if (r == 0)
                r = cg_layout_parse(buf_cstr(&mounts), buf_cstr(&self), "", ret, e);
        for (size_t i = 0; r == 0 && i < ret->n; i++) {
                if (!ret->h[i].v2)
                        continue;
                snprintf(path, sizeof(path), "%s/cgroup.controllers", ret->h[i].mount);
                if (sys_read(AT_FDCWD, path, v2, sizeof(v2)) > 0)
                        return cg_layout_parse(buf_cstr(&mounts), buf_cstr(&self), v2, ret, e);
        }
        return r;
}

static bool is_delegated(const char *path)
{
        char v[8];

        return getxattr(path, "trusted.delegate", v, sizeof(v)) == 1 ||
               getxattr(path, "user.delegate", v, sizeof(v)) == 1;
}

/*
 * Where the instance's folder goes. v1 has no owner: the top of the hierarchy. On v2 a service manager hands out parts
 * of the tree and marks them; the innermost part that is ours is used, else the top.
 */
static void find_base(const struct cg_hierarchy *h, char *out, size_t n)
{
        char own[CG_PATH_MAX];

        snprintf(out, n, "%s", h->mount);
        if (!h->v2)
                return;
        snprintf(own, sizeof(own), "%s", h->own);
        while (own[0] == '/' && own[1] != '\0') {
                char path[2 * CG_PATH_MAX];
                snprintf(path, sizeof(path), "%s%s", h->mount, own);
                if (is_delegated(path)) {
                        snprintf(out, n, "%s", path);
                        return;
                }
                *strrchr(own, '/') = '\0';
        }
}

/* v2 gives no controllers to children of a cgroup that has processes itself: they move into a leaf of it. */
static void move_to_leaf(int base)
{
        _cleanup_close_ int leaf = -1;
        char pids[1 << 14];
        struct str text;

        if (mkdirat(base, "psbx-host", 0755) < 0 && errno != EEXIST)
                return;
        leaf = openat(base, "psbx-host/cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (leaf < 0 || sys_read(base, "cgroup.procs", pids, sizeof(pids)) < 0)
                return;
        text = str_of(pids);
        while (text.n > 0) {
                struct str pid = str_cut(&text, '\n');
                if (pid.n > 0 && write(leaf, pid.p, pid.n) < 0)
                        log_debug("cannot move process %.*s to a leaf cgroup", (int) pid.n, pid.p);
        }
}

static unsigned enable_v2(int dir, unsigned wanted)
{
        static const char *const words[CG_CONTROLLERS] = {
                [CG_CPU] = "+cpu", [CG_MEMORY] = "+memory", [CG_PIDS] = "+pids"
        };
        unsigned got = wanted & 1U << CG_FREEZER; /* part of the core, nothing to enable */
        bool moved = false;

        for (unsigned c = 0; c < CG_CONTROLLERS; c++) {
                struct err e = { 0 };
                int r;
                if (!(wanted & 1U << c) || !words[c])
                        continue;
                r = sys_write(dir, "cgroup.subtree_control", words[c], &e);
                if (r == -EBUSY && !moved) {
                        move_to_leaf(dir);
                        moved = true;
                        r = sys_write(dir, "cgroup.subtree_control", words[c], &e);
                }
                if (r == 0)
                        got |= 1U << c;
                else
                        log_debug("%s", err_text(&e));
        }
        return got;
}

static int open_hierarchy(struct cg_hierarchy *h, const char *folder, struct err *e)
{
        char base_path[2 * CG_PATH_MAX];
        _cleanup_close_ int base = -1;

        find_base(h, base_path, sizeof(base_path));
        base = open(base_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (base < 0)
                return err_sys(e, -errno, "cannot open %s", base_path);
        if (mkdirat(base, folder, 0755) < 0 && errno != EEXIST)
                return err_sys(e, -errno, "cannot make %s/%s", base_path, folder);
        h->fd = openat(base, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (h->fd < 0)
                return err_sys(e, -errno, "cannot open %s/%s", base_path, folder);
        if (h->v2) {
                h->controllers = enable_v2(base, h->controllers);
                h->controllers = enable_v2(h->fd, h->controllers);
        }
        return 0;
}

int cgroups_open(struct cgroups *c, const char *instance, struct err *e)
{
        int r;

        *c = (struct cgroups){ .v2 = -1 };
        snprintf(c->folder, sizeof(c->folder), "psbx-%s", instance);
        for (unsigned i = 0; i < CG_CONTROLLERS; i++)
                c->has[i] = -1;
        r = read_layout(&c->layout, e);
        if (r < 0)
                return r;
        for (size_t i = 0; i < c->layout.n; i++) {
                struct cg_hierarchy *h = &c->layout.h[i];
                struct err why = { 0 };
                if (open_hierarchy(h, c->folder, &why) < 0) {
                        log_debug("cgroup hierarchy left out: %s", err_text(&why));
                        continue;
                }
                if (h->v2)
                        c->v2 = (int) i;
                for (unsigned k = 0; k < CG_CONTROLLERS; k++) {
                        /* v2 wins: its freezer and counters are better */
                        if ((h->controllers & 1U << k) && (h->v2 || c->has[k] < 0))
                                c->has[k] = (int) i;
                }
        }
        c->kill = c->v2 >= 0 && faccessat(c->layout.h[c->v2].fd, "cgroup.kill", F_OK, 0) == 0;
        return 0;
}

void cgroups_close(struct cgroups *c)
{
        for (size_t i = 0; i < c->layout.n; i++) {
                if (c->layout.h[i].fd >= 0)
                        close(steal_fd(&c->layout.h[i].fd));
        }
}

void cgroups_destroy(struct cgroups *c)
{
        for (size_t i = 0; i < c->layout.n; i++) {
                struct cg_hierarchy *h = &c->layout.h[i];
                char base[2 * CG_PATH_MAX];
                _cleanup_close_ int fd = -1;
                if (h->fd < 0)
                        continue;
                find_base(h, base, sizeof(base));
                fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0 && unlinkat(fd, c->folder, AT_REMOVEDIR) < 0)
                        log_warning("cannot remove cgroup %s/%s: %s", base, c->folder, strerror(errno));
                close(steal_fd(&h->fd));
        }
}

static int write_number(int dir, const char *file, uint64_t v, struct err *e)
{
        char text[32];

        snprintf(text, sizeof(text), "%" PRIu64, v);
        return sys_write(dir, file, text, e);
}

static int limit_cpu(const struct cg_hierarchy *h, int dir, double cpus, struct err *e)
{
        uint64_t quota = (uint64_t) (cpus * CPU_PERIOD_US);
        char text[64];

        if (!h->v2)
                return write_number(dir, "cpu.cfs_quota_us", quota, e);
        snprintf(text, sizeof(text), "%" PRIu64 " %d", quota, CPU_PERIOD_US);
        return sys_write(dir, "cpu.max", text, e);
}

static int limit_memory(const struct cg_hierarchy *h, int dir, uint64_t bytes, struct err *e)
{
        int r = write_number(dir, h->v2 ? "memory.max" : "memory.limit_in_bytes", bytes, e);

        /* Swap would move the limit; the files exist only where swap is accounted. */
        if (r == 0)
                (void) write_number(dir, h->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", h->v2 ? 0 : bytes,
                                    NULL);
        return r;
}

static int limit(struct cgroups *c, size_t i, int dir, const struct cg_limits *l, struct err *e)
{
        const struct cg_hierarchy *h = &c->layout.h[i];
        int r = 0;

        if (c->has[CG_PIDS] == (int) i)
                r = write_number(dir, "pids.max", l->pids, e);
        if (r == 0 && c->has[CG_MEMORY] == (int) i)
                r = limit_memory(h, dir, l->memory, e);
        if (r == 0 && c->has[CG_CPU] == (int) i)
                r = limit_cpu(h, dir, l->cpus, e);
        return r;
}

static bool is_used(const struct cgroups *c, size_t i)
{
        if (c->layout.h[i].fd < 0)
                return false;
        if ((int) i == c->v2)
                return true;
        for (unsigned k = 0; k < CG_CONTROLLERS; k++) {
                if (c->has[k] == (int) i)
                        return true;
        }
        return false;
}

int cg_make(struct cgroups *c, const char *id, const struct cg_limits *limits, struct cg_join *ret, struct err *e)
{
        *ret = (struct cg_join){ .v2_dir = -1 };
        for (size_t i = 0; i < c->layout.n; i++) {
                const struct cg_hierarchy *h = &c->layout.h[i];
                _cleanup_close_ int dir = -1;
                int r;
                if (!is_used(c, i))
                        continue;
                if (mkdirat(h->fd, id, 0755) < 0)
                        return err_sys(e, -errno, "cannot make the cgroup of %s", id);
                dir = openat(h->fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (dir < 0)
                        return err_sys(e, -errno, "cannot open the cgroup of %s", id);
                r = limit(c, i, dir, limits, e);
                if (r < 0)
                        return r;
                if (h->v2) {
                        ret->v2_dir = steal_fd(&dir);
                        continue;
                }
                ret->tasks[ret->n] = openat(dir, "tasks", O_WRONLY | O_CLOEXEC);
                if (ret->tasks[ret->n] < 0)
                        return err_sys(e, -errno, "cannot open the cgroup tasks of %s", id);
                ret->n++;
        }
        return 0;
}

void cg_join_close(struct cg_join *j)
{
        if (j->v2_dir >= 0)
                close(steal_fd(&j->v2_dir));
        while (j->n > 0)
                close(j->tasks[--j->n]);
}

/* Any hierarchy knows all processes of the box; the v2 one, when there is one. */
static int any_dir(struct cgroups *c, const char *id)
{
        if (c->v2 >= 0)
                return openat(c->layout.h[c->v2].fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (size_t i = 0; i < c->layout.n; i++) {
                if (is_used(c, i))
                        return openat(c->layout.h[i].fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        return -1;
}

static int kill_listed(struct cgroups *c, const char *id)
{
        _cleanup_close_ int dir = any_dir(c, id);
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct str text;

        if (dir < 0)
                return -errno;
        (void) cg_freeze(c, id, true, NULL); /* a fork bomb must hold still to be counted */
        if (file_read(dir, "cgroup.procs", &b) < 0)
                return -EIO;
        text = buf_str(&b);
        while (text.n > 0) {
                uint64_t pid;
                if (parse_u64(str_cut(&text, '\n'), INT32_MAX, &pid) == 0 && pid > 1)
                        (void) kill((pid_t) pid, SIGKILL);
        }
        (void) cg_freeze(c, id, false, NULL); /* v1 delivers the signal only after a thaw */
        return 0;
}

int cg_kill(struct cgroups *c, const char *id)
{
        _cleanup_close_ int dir = -1;

        if (!c->kill)
                return kill_listed(c, id);
        dir = any_dir(c, id);
        if (dir < 0)
                return -errno;
        return sys_write(dir, "cgroup.kill", "1", NULL);
}

bool cg_empty(struct cgroups *c, const char *id)
{
        _cleanup_close_ int dir = any_dir(c, id);
        char text[256];
        uint64_t populated;

        if (dir < 0)
                return true;
        if (c->v2 >= 0 && sys_read(dir, "cgroup.events", text, sizeof(text)) > 0 &&
            sys_find_key(text, "populated", &populated) == 0)
                return populated == 0;
        return sys_read(dir, "cgroup.procs", text, sizeof(text)) <= 0;
}

/* Folders made in the box (it may have a cgroup view of its own) go first. */
static int remove_below(int parent, const char *name, int depth)
{
        _cleanup_close_ int fd = -1;
        DIR *d;

        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                return 0;
        if (errno != EBUSY && errno != ENOTEMPTY)
                return -errno;
        if (depth > 32)
                return -ELOOP;
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
                return -errno;
        (void) steal_fd(&fd); /* the stream owns it */
        for (struct dirent *it; (it = readdir(d));) {
                if (it->d_type == DT_DIR && it->d_name[0] != '.')
                        (void) remove_below(dirfd(d), it->d_name, depth + 1);
        }
        closedir(d);
        return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int cg_remove(struct cgroups *c, const char *id)
{
        int64_t until = clock_ms() + REMOVE_WAIT_MS;
        int worst = 0;

        for (size_t i = 0; i < c->layout.n; i++) {
                int r;
                if (c->layout.h[i].fd < 0)
                        continue;
                while ((r = remove_below(c->layout.h[i].fd, id, 0)) == -EBUSY && clock_ms() < until)
                        pause_ms(1);
                if (r < 0)
                        worst = r;
        }
        return worst;
}

static bool is_frozen(int dir, bool v2)
{
        char text[256];
        uint64_t v = 0;

        if (!v2)
                return sys_read(dir, "freezer.state", text, sizeof(text)) > 0 &&
                       str_starts(str_of(text), STR("FROZEN"));
        return sys_read(dir, "cgroup.events", text, sizeof(text)) > 0 && sys_find_key(text, "frozen", &v) == 0 &&
               v == 1;
}

int cg_freeze(struct cgroups *c, const char *id, bool frozen, struct err *e)
{
        const struct cg_hierarchy *h;
        _cleanup_close_ int dir = -1;
        int r;

        if (c->has[CG_FREEZER] < 0)
                return err_set(e, -EOPNOTSUPP, "this machine cannot freeze boxes");
        h = &c->layout.h[c->has[CG_FREEZER]];
        dir = openat(h->fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return err_sys(e, -errno, "box %s has no cgroup", id);
        if (h->v2)
                r = sys_write(dir, "cgroup.freeze", frozen ? "1" : "0", e);
        else
                r = sys_write(dir, "freezer.state", frozen ? "FROZEN" : "THAWED", e);
        /* Notification through poll is throttled by the kernel; reading again is quicker. */
        for (int64_t until = clock_ms() + 250; r == 0 && is_frozen(dir, h->v2) != frozen && clock_ms() < until;)
                pause_ms(1);
        return r;
}

bool cg_is_frozen(struct cgroups *c, const char *id)
{
        const struct cg_hierarchy *h;
        uint64_t v = 0;
        _cleanup_close_ int dir = -1;

        if (c->has[CG_FREEZER] < 0)
                return false;
        h = &c->layout.h[c->has[CG_FREEZER]];
        dir = openat(h->fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* What was asked for counts: it becomes so in a moment, when it is not yet. */
        return dir >= 0 && sys_read_u64(dir, h->v2 ? "cgroup.freeze" : "freezer.self_freezing", &v) == 0 && v == 1;
}

static void read_memory(int dir, bool v2, struct cg_stats *s)
{
        char text[1024];

        (void) sys_read_u64(dir, v2 ? "memory.current" : "memory.usage_in_bytes", &s->memory_used);
        (void) sys_read_u64(dir, v2 ? "memory.max" : "memory.limit_in_bytes", &s->memory_limit);
        if (sys_read(dir, v2 ? "memory.events" : "memory.oom_control", text, sizeof(text)) > 0)
                (void) sys_find_key(text, "oom_kill", &s->oom_kills);
}

static void read_cpu(int dir, bool v2, struct cg_stats *s)
{
        char text[1024];
        uint64_t ns;

        if (v2) {
                if (sys_read(dir, "cpu.stat", text, sizeof(text)) > 0)
                        (void) sys_find_key(text, "usage_usec", &s->cpu_usec);
        } else if (sys_read_u64(dir, "cpuacct.usage", &ns) == 0) {
                s->cpu_usec = ns / 1000;
        }
}

char *cg_oom_file(const struct cgroups *c)
{
        char link[64], folder[PATH_MAX];
        const struct cg_hierarchy *h = c->has[CG_MEMORY] >= 0 ? &c->layout.h[c->has[CG_MEMORY]] : NULL;
        ssize_t n = -1;

        if (h && h->fd >= 0) {
                (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", h->fd);
                n = readlink(link, folder, sizeof(folder) - 1);
        }
        if (n <= 0)
                return NULL;
        folder[n] = '\0';
        return xasprintf("%s/*/%s", folder, h->v2 ? "memory.events" : "memory.oom_control");
}

int cg_read_stats(struct cgroups *c, const char *id, struct cg_stats *ret)
{
        int cpu = c->v2 >= 0 ? c->v2 : c->has[CG_CPUACCT]; /* v2 counts time without the controller */

        *ret = (struct cg_stats){ 0 };
        for (size_t i = 0; i < c->layout.n; i++) {
                const struct cg_hierarchy *h = &c->layout.h[i];
                _cleanup_close_ int dir = -1;
                if (!is_used(c, i))
                        continue;
                dir = openat(h->fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (dir < 0)
                        return -errno;
                if (c->has[CG_MEMORY] == (int) i)
                        read_memory(dir, h->v2, ret);
                if (c->has[CG_PIDS] == (int) i) {
                        (void) sys_read_u64(dir, "pids.current", &ret->pids_used);
                        (void) sys_read_u64(dir, "pids.max", &ret->pids_limit);
                }
                if (cpu == (int) i)
                        read_cpu(dir, h->v2, ret);
        }
        return 0;
}

void cg_each(struct cgroups *c, void (*fn)(const char *id, void *arg), void *arg)
{
        for (size_t i = 0; i < c->layout.n; i++) {
                int fd =
                        c->layout.h[i].fd < 0 ? -1 : openat(c->layout.h[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                DIR *d = fd < 0 ? NULL : fdopendir(fd);
                if (!d) {
                        if (fd >= 0)
                                close(fd);
                        continue;
                }
                for (struct dirent *it; (it = readdir(d));) {
                        if (it->d_type == DT_DIR && it->d_name[0] != '.')
                                fn(it->d_name, arg);
                }
                closedir(d);
        }
}
