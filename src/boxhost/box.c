#include "boxhost/box.h"

#include "boxhost/idmap.h"
#include "boxhost/image_store.h"
#include "boxhost/mount.h"
#include "boxhost/ns.h"
#include "boxhost/state.h"
#include "boxhost/sys.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define READY_TIMEOUT_MS 10000
#define END_TIMEOUT_MS 5000
#define INDEX_TRIES 64

/* What a half-made box holds; everything is let go of at the end, made or not. */
struct making {
        struct box *box;
        int dir, disk, layers, listener, sync[2], ready[2], userns;
        int mounts[NS_MOUNTS];
        bool has_usr, plain, restore, renewed; /* plain: the disk is a folder, no mount */
        struct cg_join join;
        struct image image;
        int64_t mark;
};

static int64_t lap(struct making *m)
{
        int64_t now = clock_us(), spent = now - m->mark;

        m->mark = now;
        return spent;
}

static void close_all(struct making *m)
{
        int *const fds[] = { &m->dir,     &m->disk,     &m->layers,   &m->listener, &m->sync[0],
                             &m->sync[1], &m->ready[0], &m->ready[1], &m->userns,   &m->image.lower };

        for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
                if (*fds[i] >= 0)
                        close(steal_fd(fds[i]));
        }
        for (size_t i = 0; i < NS_MOUNTS; i++) {
                if (m->mounts[i] >= 0)
                        close(steal_fd(&m->mounts[i]));
        }
        cg_join_close(&m->join);
}

/* boxd's socket: made where only root may write, given to the server, then moved to where it is found. */
static int make_listener(struct host *h, struct making *m, struct err *e)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        char name[BOX_ID_MAX + 8];
        mode_t mask;
        int r;

        snprintf(name, sizeof(name), "%s.sock", m->box->id);
        snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", h->sock_dir, name);
        m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (m->listener < 0)
                return err_sys(e, -errno, "cannot make a socket");
        (void) unlinkat(h->sock_dir, name, 0);
        mask = umask(0177);
        r = bind(m->listener, (struct sockaddr *) &a, sizeof(a)) < 0 ? -errno : 0;
        (void) umask(mask);
        if (r < 0 || listen(m->listener, 128) < 0 ||
            fchownat(h->sock_dir, name, h->options->server_uid, (gid_t) -1, AT_SYMLINK_NOFOLLOW) < 0 ||
            renameat(h->sock_dir, name, h->run_dir, name) < 0)
                return err_sys(e, r < 0 ? r : -errno, "cannot make the box's socket");
        return 0;
}

static int make_folder(struct host *h, struct making *m, struct err *e)
{
        if (mkdirat(h->boxes_dir, m->box->id, 0711) < 0)
                return err_sys(e, -errno, "cannot make the folder of box %s", m->box->id);
        m->dir = openat(h->boxes_dir, m->box->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (m->dir < 0)
                return err_sys(e, -errno, "cannot open the folder of box %s", m->box->id);
        return 0;
}

static int start(struct host *h, struct making *m, const struct box_request *q, struct err *e)
{
        static const char *const base_env[] = {
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "USER=root",
                "LOGNAME=root",
                "SHELL=/bin/bash",
                "TERM=xterm",
                "LANG=C.UTF-8",
#define CA "/etc/ssl/certs/ca-certificates.crt"
                "SSL_CERT_FILE=" CA,
                "SSL_CERT_DIR=/etc/ssl/certs",
                "CURL_CA_BUNDLE=" CA,
                "REQUESTS_CA_BUNDLE=" CA,
                "PIP_CERT=" CA,
                "NODE_EXTRA_CA_CERTS=" CA,
                "GIT_SSL_CAINFO=" CA,
                "NIX_SSL_CERT_FILE=" CA,
                "AWS_CA_BUNDLE=" CA,
                "HTTPLIB2_CA_CERTS=" CA,
                "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" CA,
                "npm_config_cafile=" CA,
        };
        const char *env[ARRAY_LEN(base_env) + BOX_ENV_MAX + 1];
        struct ns_plan plan = { .boxd = h->boxd,
                                .join = &m->join,
                                .hostname = q->hostname,
                                .env = env,
                                .net = h->features.net,
                                .ca = h->ca };
        size_t n = 0;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, m->sync) < 0 || pipe2(m->ready, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "cannot talk to a new process");
        for (size_t i = 0; i < ARRAY_LEN(base_env); i++)
                env[n++] = base_env[i];
        for (size_t i = 0; i < q->env_count; i++)
                env[n++] = q->env[i];
        env[n] = NULL;
        plan.sync = m->sync[1];
        plan.keep = m->sync[0];
        plan.listener = m->listener;
        plan.ready = m->ready[1];
        int r = ns_start(&plan, &m->box->pid, &m->box->pidfd, e);
        /* From now on an end of file on either means that the child is gone. */
        close(steal_fd(&m->sync[1]));
        close(steal_fd(&m->ready[1]));
        close(steal_fd(&m->listener));
        return r;
}

static bool index_used(const struct host *h, unsigned index)
{
        list_for_each (it, &h->boxes)
                if (list_entry(it, struct box, link)->index == index)
                        return true;
        return h->features.net && !net_index_is_free(index);
}

/* The index it had saves a restored box the mapping of its files' owners. */
static bool take_old_index(struct host *h, struct making *m)
{
        if (!m->restore || index_used(h, m->box->owner))
                return false;
        m->box->index = m->box->owner;
        if (!h->features.net || net_make(&h->net, m->box->index, m->box->pid, NULL) == 0)
                return true;
        m->box->index = UINT32_MAX;
        return false;
}

/* The kernel hands out indices: an interface name exists once per machine. */
static int take_index(struct host *h, struct making *m, struct err *e)
{
        if (take_old_index(h, m))
                return 0;
        for (unsigned tries = 0, looked = 0; looked < NET_INDEX_MAX && tries < INDEX_TRIES; looked++) {
                unsigned index = h->next_index;
                int r;
                h->next_index = (h->next_index + 1) % NET_INDEX_MAX;
                if (index_used(h, index))
                        continue;
                m->box->index = index;
                if (!h->features.net)
                        return 0;
                r = net_make(&h->net, index, m->box->pid, e);
                if (r != -EEXIST)
                        return r;
                tries++; /* another instance was quicker */
        }
        return err_set(e, -ENOSPC, "no address is left for a box");
}

static int overlay_part(struct making *m, const char *name, int lower, int *ret, struct err *e)
{
        uid_t base = idmap_base(m->box->index);
        char work_name[16];
        int disk = m->layers >= 0 ? m->layers : m->disk;
        _cleanup_close_ int upper = openat(disk, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), work = -1;

        snprintf(work_name, sizeof(work_name), "%s.work", name);
        work = openat(disk, work_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (upper < 0 || work < 0 || fchown(upper, base, base) < 0)
                return err_sys(e, -errno, "the box's disk is not usable");
        return mount_overlay(lower, upper, work, ret, e);
}

/* /work lies beside the image, not over it: what agents do there, all day, is spared the overlay. */
static int work_part(struct making *m, int *ret, struct err *e)
{
        uid_t base = idmap_base(m->box->index);
        int disk = m->layers >= 0 ? m->layers : m->disk;
        _cleanup_close_ int work = openat(disk, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (work < 0 || fchown(work, base, base) < 0)
                return err_sys(e, -errno, "the box's disk has no usable folder for /work");
        return mount_folder(work, ret, e);
}

/* Layers are attached in our own mount namespace for as long as the overlays are made. */
static int make_overlays(struct host *h, struct making *m, int image, int usr, struct err *e)
{
        int r;

        /* The skeleton is a folder inside a mount: a clone of it is a mount of its own. */
        r = mount_attach(image, "mnt/image", e);
        if (r == 0 && usr >= 0)
                r = mount_attach(usr, "mnt/usr", e);
        if (r == 0 && (m->layers >= 0 || !m->plain))
                r = mount_attach(m->layers >= 0 ? m->layers : m->disk, "mnt/disk", e);
        if (r == 0)
                r = overlay_part(m, "root", image, &m->mounts[NS_ROOT], e);
        if (r == 0 && usr >= 0)
                r = overlay_part(m, "usr", usr, &m->mounts[NS_USR], e);
        if (r == 0)
                r = work_part(m, &m->mounts[NS_WORK], e);
        mount_detach("mnt/disk");
        mount_detach("mnt/usr");
        mount_detach("mnt/image");
        return r;
}

/* The disk of a box that had another index is looked at through a mapping; what lies on it stays as it is. */
static int shift_owners(struct making *m, struct err *e)
{
        _cleanup_close_ int userns = -1;
        int r;

        if (m->box->owner == m->box->index)
                return 0;
        r = idmap_shift(m->box->owner, m->box->index, &userns, e);
        return r < 0 ? r : idmap_clone_rw(m->disk, "", userns, &m->layers, e);
}

static int make_mounts(struct host *h, struct making *m, struct err *e)
{
        _cleanup_close_ int image = -1, usr = -1;
        int r = idmap_clone(m->image.lower, "", m->userns, &image, e);

        if (r == 0)
                r = shift_owners(m, e);
        if (r == 0 && m->image.with_usr)
                r = idmap_clone(AT_FDCWD, "/usr", m->userns, &usr, e);
        if (r == 0)
                r = make_overlays(h, m, image, usr, e);
        if (r == 0)
                r = mount_clone(h->dev, &m->mounts[NS_DEV], e);
        if (r == 0)
                r = mount_clone(h->launch, &m->mounts[NS_LAUNCH], e);
        m->has_usr = usr >= 0;
        return r;
}

static int send_go(struct host *h, struct making *m, struct err *e)
{
        struct ns_go go = { .index = m->box->index, .has_usr = m->has_usr };
        int r = sys_send_fds(m->sync[0], &go, sizeof(go), m->mounts, m->has_usr ? NS_MOUNTS : NS_MOUNTS - 1);

        return r < 0 ? err_sys(e, r, "the new process of box %s is gone", m->box->id) : 0;
}

/* boxd writes a byte when it listens; the sync socket tells what failed before it was executed. */
static int wait_ready(struct making *m, struct err *e)
{
        int64_t until = clock_ms() + READY_TIMEOUT_MS;
        struct ns_failure f;

        for (;;) {
                struct pollfd p[2] = { { .fd = m->ready[0], .events = POLLIN },
                                       { .fd = m->sync[0], .events = POLLIN } };
                int64_t left = until - clock_ms();
                if (left <= 0 || (poll(p, 2, (int) left) < 0 && errno != EINTR))
                        return err_set(e, -ETIMEDOUT, "boxd did not get ready");
                if (p[1].revents) {
                        ssize_t n = recv(m->sync[0], &f, sizeof(f), 0);
                        if (n == (ssize_t) sizeof(f)) {
                                f.step[sizeof(f.step) - 1] = '\0';
                                return err_sys(e, f.code < 0 ? f.code : -EIO, "the box could not %s", f.step);
                        }
                        close(steal_fd(&m->sync[0])); /* executed, or ended: the pipe tells which */
                }
                if (p[0].revents) {
                        char c;
                        return read(m->ready[0], &c, 1) == 1 ? 0 : err_set(e, -EIO, "boxd ended before it was ready");
                }
        }
}

/* A fresh disk in a new folder, over the image asked for. */
static int take_new(struct host *h, struct making *m, const struct box_request *q, struct err *e)
{
        int r = image_open(h->images_dir, q->image, h->skeleton, &m->image, e);

        if (r < 0)
                return r;
        snprintf(m->box->image, sizeof(m->box->image), "%s", q->image);
        image_identity(&m->image, m->box->lower);
        m->plain = !h->disks.limited;
        r = make_folder(h, m, e);
        return r < 0 ? r : disk_take(&h->disks, q->size.disk, m->dir, &m->disk, e);
}

/* The very version that the disk was written over, when it is still there; else the image as it is now. */
static int open_its_image(struct host *h, struct making *m, bool another, struct err *e)
{
        struct box *b = m->box;

        if (!another && image_version_ok(b->skeleton) &&
            image_open_version(h->images_dir, b->image, b->skeleton, &m->image, NULL) == 0)
                return 0;
        return image_open(h->images_dir, b->image, h->skeleton, &m->image, e);
}

/* The disk of an archive, which stays where it is; over another image than it had, only /work is kept of it. */
static int take_archived(struct host *h, struct making *m, const struct box_request *q, struct err *e)
{
        char lower[IMAGE_IDENTITY_MAX];
        int r = spec_read(h->archive_dir, q->id, m->box, e);

        if (r < 0)
                return r == -ENOENT ? err_set(e, r, "there is no archive of box %s", q->id) : r;
        m->box->index = UINT32_MAX;
        m->box->pid = 0;
        if (q->image)
                snprintf(m->box->image, sizeof(m->box->image), "%s", q->image);
        r = open_its_image(h, m, q->image != NULL, e);
        if (r < 0)
                return r;
        m->dir = openat(h->archive_dir, q->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (m->dir < 0)
                return err_sys(e, -errno, "cannot open the archive of box %s", q->id);
        r = disk_open(m->dir, &m->disk, &m->plain, e);
        if (r < 0)
                return err_wrap(e, "the archive of box %s", q->id);
        image_identity(&m->image, lower);
        m->renewed = strcmp(lower, m->box->lower) != 0;
        memcpy(m->box->lower, lower, sizeof(lower));
        return m->renewed ? disk_renew(m->disk, e) : 0;
}

static int take_place(struct host *h, struct making *m, const struct box_request *q, struct err *e)
{
        struct box *b = m->box;
        /* Until the record says so, only the lock tells that somebody needs this version of the image. */
        int r = image_lock(h->images_lock, false, e);

        if (r == 0)
                r = m->restore ? take_archived(h, m, q, e) : take_new(h, m, q, e);
        if (r < 0)
                return r;
        if (!m->plain)
                b->disk = openat(m->disk, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        b->loop = b->disk >= 0 ? disk_loop(b->disk) : -1;
        return 0;
}

/* A box is one once its folder, with its record in it, lies among the boxes. */
static int move_in(struct host *h, struct making *m, struct err *e)
{
        int r = spec_write(m->dir, m->box, e);

        if (r == 0 && renameat(h->archive_dir, m->box->id, h->boxes_dir, m->box->id) < 0)
                r = err_sys(e, -errno, "cannot take box %s out of the archive", m->box->id);
        return r;
}

static int make(struct host *h, struct making *m, const struct box_request *q, struct box_timings *t, struct err *e)
{
        int r = take_place(h, m, q, e);

        t->disk = lap(m);
        if (r == 0) {
                const struct box_size *s = &m->box->size;
                r = cg_make(&h->cgroups, q->id, &(struct cg_limits){ s->cpus, s->memory, s->pids }, &m->join, e);
        }
        t->cgroup = lap(m);
        if (r == 0)
                r = make_listener(h, m, e);
        if (r == 0)
                r = start(h, m, q, e);
        t->clone = lap(m);
        if (r == 0)
                r = take_index(h, m, e);
        if (r == 0 && !m->restore)
                m->box->owner = m->box->index;
        t->net = lap(m);
        if (r == 0)
                r = idmap_give(m->box->pid, m->box->index, &m->userns, e);
        t->idmap = lap(m);
        if (r == 0)
                r = make_mounts(h, m, e);
        t->mounts = lap(m);
        if (r == 0 && sys_start_time(m->box->pid, &m->box->start_time) < 0)
                r = err_set(e, -ESRCH, "the box ended at once");
        if (r == 0)
                r = send_go(h, m, e);
        snprintf(m->box->skeleton, sizeof(m->box->skeleton), "%s", m->image.version);
        /* Told to go, the child needs boxhost no more: from here on the box exists, also when boxhost dies. */
        if (r == 0 && !m->restore)
                r = spec_write(m->dir, m->box, e);
        if (!m->restore)
                image_unlock(h->images_lock);
        t->record = lap(m);
        if (r == 0)
                r = wait_ready(m, e);
        if (r == 0 && m->restore)
                r = move_in(h, m, e);
        image_unlock(h->images_lock);
        t->ready = lap(m);
        return r;
}

static bool wait_end(int pidfd, int64_t until)
{
        struct pollfd p = { .fd = pidfd, .events = POLLIN };

        for (;;) {
                int64_t left = until - clock_ms();
                int n = poll(&p, 1, left > 0 ? (int) left : 0);
                if (n > 0)
                        return true;
                if (n == 0 || errno != EINTR)
                        return false;
        }
}

static void wait_empty(struct host *h, const char *id, int64_t until)
{
        const struct timespec pause = { .tv_nsec = 300000 };

        while (!cg_empty(&h->cgroups, id) && clock_ms() < until) {
                (void) cg_kill(&h->cgroups, id);
                (void) nanosleep(&pause, NULL);
        }
}

/* Everything with this id but its files, in an order that also works when parts are missing. pidfd and index may be
 * unknown (negative). */
static int end_all(struct host *h, const char *id, int pidfd, int disk, int index, struct err *e)
{
        int64_t until = clock_ms() + END_TIMEOUT_MS;
        char name[BOX_ID_MAX + 8];
        int r, failed = 0;

        (void) cg_kill(&h->cgroups, id);
        disk_abandon(disk);
        if (pidfd >= 0) {
                siginfo_t info;
                (void) sys_pidfd_kill(pidfd, SIGKILL);
                if (!wait_end(pidfd, until))
                        return err_set(e, -EBUSY, "the processes of box %s do not end", id);
                (void) waitid(P_PIDFD, (id_t) pidfd, &info, WEXITED | WNOHANG);
        }
        wait_empty(h, id, until);
        if (index >= 0 && h->features.net)
                failed = net_remove(&h->net, (unsigned) index, e);
        r = cg_remove(&h->cgroups, id);
        if (r < 0)
                failed = err_sys(e, r, "cannot remove the cgroup of box %s", id);
        snprintf(name, sizeof(name), "%s.sock", id);
        (void) unlinkat(h->sock_dir, name, 0);
        (void) unlinkat(h->run_dir, name, 0);
        return failed;
}

static int wipe(struct host *h, const char *id, int pidfd, int disk, int index, struct err *e)
{
        int failed = end_all(h, id, pidfd, disk, index, e), r;

        if (failed == -EBUSY) /* with processes left */
                return failed;
        r = remove_tree(h->boxes_dir, id);
        if (r < 0)
                failed = err_sys(e, r, "cannot remove the files of box %s", id);
        return failed;
}

int box_create(struct host *h, const struct box_request *q, struct box **ret, struct box_timings *t, struct err *e)
{
        struct making m = { .dir = -1,
                            .disk = -1,
                            .layers = -1,
                            .listener = -1,
                            .sync = { -1, -1 },
                            .ready = { -1, -1 },
                            .userns = -1,
                            .mounts = { -1, -1, -1, -1, -1 },
                            .join = { .v2_dir = -1 },
                            .image = { .lower = -1 },
                            .restore = q->restore };
        int64_t begin = clock_us();
        struct box *b;
        int r;

        if (host_find(h, q->id) || faccessat(h->boxes_dir, q->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return err_set(e, -EEXIST, "there is a box %s already", q->id);
        b = xcalloc(1, sizeof(*b));
        b->pidfd = b->disk = b->loop = -1;
        b->index = UINT32_MAX;
        b->size = q->size;
        b->created_ms = wall_ms();
        snprintf(b->id, sizeof(b->id), "%s", q->id);
        m.box = b;
        m.mark = begin;
        *t = (struct box_timings){ 0 };
        if (!q->restore && faccessat(h->archive_dir, q->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                r = err_set(e, -EEXIST, "box %s is in the archive", q->id);
        else
                r = make(h, &m, q, t, e);
        t->renewed = m.renewed;
        close_all(&m);
        if (r < 0) {
                struct err undo = { 0 };
                /* What an archive holds is worth writing. */
                if (q->restore)
                        closep(&b->disk);
                if (wipe(h, b->id, b->pidfd, b->disk, b->index < NET_INDEX_MAX ? (int) b->index : -1, &undo) < 0)
                        log_error("after a failed start: %s", err_text(&undo));
                closep(&b->pidfd);
                closep(&b->disk);
                freep(&b);
                return r;
        }
        host_add(h, b);
        t->total = clock_us() - begin;
        *ret = b;
        return 0;
}

int box_destroy(struct host *h, const char *id, struct box_rest *ret_rest, struct err *e)
{
        struct box *b = host_find(h, id);
        int index = b && b->index < NET_INDEX_MAX ? (int) b->index : -1, r;

        spec_withdraw(h->boxes_dir, id); /* from now on a restart finishes the removal */
        r = wipe(h, id, b ? b->pidfd : -1, b ? b->disk : -1, ret_rest ? -1 : index, e);
        if (r < 0 || !b)
                return r;
        if (ret_rest)
                *ret_rest = (struct box_rest){ .disk = steal_fd(&b->disk), .index = index, .watch = -1 };
        image_box_gone(h->images_dir, h->boxes_dir, h->images_lock, b->image, b->skeleton);
        host_forget(h, b);
        return 0;
}

int box_archive(struct host *h, const char *id, struct box_rest *ret_rest, struct err *e)
{
        _cleanup_close_ int dir = openat(h->boxes_dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct box *b = host_find(h, id);
        int index, r;

        if (!b && faccessat(h->archive_dir, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        if (!b || dir < 0)
                return err_set(e, -ENOENT, "there is no box %s", id);
        index = b->index < NET_INDEX_MAX ? (int) b->index : -1;
        r = end_all(h, id, b->pidfd, -1, -1, e);
        if (r < 0)
                return r;
        if (renameat(h->boxes_dir, id, h->archive_dir, id) < 0)
                return err_sys(e, -errno, "cannot move box %s to the archive", id);
        /* The names at least outlive a power cut; the disk itself is written by the kernel in its own time. */
        (void) fsync(h->archive_dir);
        *ret_rest = (struct box_rest){ .disk = steal_fd(&b->disk), .index = index, .watch = disk_watch(dir) };
        host_forget(h, b); /* its image stays: the archive needs it */
        return 0;
}

int box_freeze(struct host *h, struct box *b, bool frozen, struct err *e)
{
        int r;

        if (b->state == BOX_DEAD)
                return err_set(e, -ESRCH, "box %s is dead", b->id);
        r = cg_freeze(&h->cgroups, b->id, frozen, e);
        if (r == 0)
                b->state = frozen ? BOX_FROZEN : BOX_RUNNING;
        return r;
}

void box_ended(struct host *h, struct box *b, char how[32])
{
        siginfo_t info = { .si_pid = 0 };

        snprintf(how, 32, "unknown"); /* the child of an earlier boxhost: its status went to somebody else */
        if (waitid(P_PIDFD, (id_t) b->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid > 0)
                snprintf(how, 32, "%s %d", info.si_code == CLD_EXITED ? "exited" : "killed", info.si_status);
        host_unwatch(h, b);
        b->state = BOX_DEAD;
        (void) cg_kill(&h->cgroups, b->id);
}

void box_disk_usage(const struct box *b, uint64_t *used, uint64_t *limit)
{
        _cleanup_close_ int fd = -1;
        struct statfs s;
        char path[48];

        *used = *limit = 0;
        if (b->state == BOX_DEAD)
                return;
        /* The link leads to the box's root folder itself; nothing in the box is looked up. */
        snprintf(path, sizeof(path), "/proc/%d/root", (int) b->pid);
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstatfs(fd, &s) < 0)
                return;
        *limit = (uint64_t) s.f_blocks * (uint64_t) s.f_bsize;
        *used = (uint64_t) (s.f_blocks - s.f_bfree) * (uint64_t) s.f_bsize;
}
