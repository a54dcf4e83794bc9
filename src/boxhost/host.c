#include "boxhost/host.h"

#include "boxhost/image_store.h"
#include "boxhost/mount.h"
#include "boxhost/state.h"
#include "boxhost/sys.h"
#include "boxhost/wire.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_WAIT_MS 1000
#define FDS_FROM 16 /* our own descriptors stay clear of the numbers a child fills */

int host_open_made(int at, const char *name, mode_t mode, int *ret, struct err *e)
{
        int fd;

        if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
                return err_sys(e, -errno, "cannot make the folder %s", name);
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_sys(e, -errno, "cannot open the folder %s", name);
        *ret = fd;
        return 0;
}

/* The server owns the state folder and could have put its own folder in our place. */
int host_check_ours(int fd, const char *name, struct err *e)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return err_sys(e, -errno, "cannot look at the folder %s", name);
        if (st.st_uid != geteuid() || (st.st_mode & 022))
                return err_set(e, -EPERM, "the folder %s must belong to root and be writable by nobody else", name);
        return 0;
}

/* A record lock: unlike flock it is not inherited, so a child that outlives a killed boxhost for a moment does not hold
 * it. */
static int take_lock(struct host *h, struct err *e)
{
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        const struct timespec pause = { .tv_nsec = 20 * 1000000L };

        h->lock = openat(h->own, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (h->lock < 0)
                return err_sys(e, -errno, "cannot open the lock");
        for (int64_t until = clock_ms() + LOCK_WAIT_MS; fcntl(h->lock, F_SETLK, &whole) < 0;) {
                if (clock_ms() >= until)
                        return err_set(e, -EBUSY, "another boxhost uses %s", h->folder);
                (void) nanosleep(&pause, NULL); /* one that is ending */
        }
        return 0;
}

static bool instance_ok(const char *s)
{
        for (size_t i = 0; i < INSTANCE_LEN; i++) {
                if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9')))
                        return false;
        }
        return s[INSTANCE_LEN] == '\0';
}

static int read_instance(struct host *h, struct err *e)
{
        char text[32];
        ssize_t n = sys_read(h->own, "instance", text, sizeof(text));

        if (n >= INSTANCE_LEN) {
                memcpy(h->instance, text, INSTANCE_LEN);
                return instance_ok(h->instance) ? 0 : err_set(e, -EINVAL, "the instance file is damaged");
        }
        if (n < 0 && n != -ENOENT)
                return err_sys(e, (int) n, "cannot read the instance file");
        random_id(h->instance, INSTANCE_LEN);
        return file_write_atomic(h->own, "instance", h->instance, INSTANCE_LEN, 0644, e);
}

/* Other users may look for images and sockets beneath, not list. */
static int open_run(struct host *h, int state, struct err *e)
{
        bool made = mkdirat(state, "run", 0711) == 0;
        int r = host_open_made(state, "run", 0711, &h->run_dir, e);

        if (r == 0 && made && fchown(h->run_dir, h->options->server_uid, (gid_t) -1) < 0)
                return err_sys(e, -errno, "cannot give the folder run to the server");
        return r;
}

int host_open_state(struct host *h, const struct host_options *options, struct err *e)
{
        _cleanup_free_ char *absolute = NULL;
        _cleanup_close_ int state = -1;
        int r;

        *h = (struct host){ .options = options,
                            .poll = -1,
                            .own = -1,
                            .boxes_dir = -1,
                            .archive_dir = -1,
                            .pool_dir = -1,
                            .images_dir = -1,
                            .sock_dir = -1,
                            .run_dir = -1,
                            .lock = -1,
                            .images_lock = -1,
                            .boxd = -1,
                            .dev = -1,
                            .launch = -1,
                            .ca = -1,
                            .wire = -1,
                            .scarce = true, /* what an earlier boxhost told the boxes is not known */
                            .net = { .nl = -1 } };
        list_init(&h->boxes);
        h->disks.filler_sock = h->disks.dir = -1;
        h->dns.pidfd = h->dns.names = -1;
        h->closer.to = h->closer.from = -1;
        /* Before any folder is opened: mounts can be cloned only in the namespace they were found in. */
        r = mount_private(e);
        if (r < 0)
                return r;
        r = mkdir_all(options->state, 0755);
        if (r < 0)
                return err_sys(e, r, "cannot make %s", options->state);
        state = open(options->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (state < 0)
                return err_sys(e, -errno, "cannot open %s", options->state);
        absolute = realpath(options->state, NULL);
        if (!absolute || strlen(absolute) >= sizeof(h->folder))
                return err_sys(e, absolute ? -ENAMETOOLONG : -errno, "cannot resolve %s", options->state);
        memcpy(h->folder, absolute, strlen(absolute) + 1);
        r = host_open_made(state, "boxhost", 0711, &h->own, e);
        if (r == 0)
                r = host_check_ours(h->own, "boxhost", e);
        if (r == 0)
                r = take_lock(h, e);
        if (r == 0)
                r = read_instance(h, e);
        if (r == 0)
                r = host_open_made(h->own, "boxes", 0711, &h->boxes_dir, e);
        if (r == 0)
                r = host_open_made(h->own, "archive", 0700, &h->archive_dir, e);
        if (r == 0)
                r = host_open_made(h->own, "pool", 0700, &h->pool_dir, e);
        if (r == 0)
                r = host_open_made(h->own, "images", 0711, &h->images_dir, e);
        if (r == 0)
                r = image_lock_open(h->images_dir, &h->images_lock, e);
        if (r == 0)
                r = host_open_made(h->own, "sock", 0700, &h->sock_dir, e);
        return r < 0 ? r : open_run(h, state, e);
}

static int open_boxd(struct host *h, struct err *e)
{
        int fd = open(h->options->boxd, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return err_sys(e, -errno, "cannot open boxd at %s", h->options->boxd);
        h->boxd = fcntl(fd, F_DUPFD_CLOEXEC, FDS_FROM);
        close(fd);
        return h->boxd < 0 ? err_sys(e, -errno, "cannot keep boxd open") : 0;
}

static void open_ca(struct host *h)
{
        const char *path = image_ca_bundle();

        if (path)
                h->ca = open(path, O_RDONLY | O_CLOEXEC);
}

static int prepare_mounts(struct host *h, struct err *e)
{
        static const char *const places[] = { "mnt", "mnt/image", "mnt/usr", "mnt/disk" };

        if (fchdir(h->own) < 0) /* children reach their new root by the working folder */
                return err_sys(e, -errno, "cannot enter the state folder");
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
                if (mkdir(places[i], 0755) < 0 && errno != EEXIST)
                        return err_sys(e, -errno, "cannot make the folder %s", places[i]);
        }
        int r = mount_dev_template("mnt/disk", &h->dev, e);
        return r < 0 ? r : mount_file_template("mnt/disk", h->boxd, &h->launch, e);
}

static void prepare_net(struct host *h)
{
        struct net_config *c = &h->net_config;
        char text[16];
        uint64_t port = 0;
        struct err e = { 0 };

        c->instance = h->instance;
        c->subnet = h->options->subnet;
        c->allow_count = h->options->allow_count;
        memcpy(c->allow, h->options->allow, sizeof(c->allow));
        net_box_subnet(&c->subnet);
        if (net_open(&h->net, c, &e) < 0) {
                features_lack(&h->features, "network", "boxes have no network", err_text(&e));
                return;
        }
        if (sys_read_u64(h->own, "dns.port", &port) < 0 || port > 65535)
                port = 0;
        h->features.dns = dns_start(&h->dns, &c->subnet, (uint16_t) port, h->options->resolver, &e) == 0;
        if (!h->features.dns)
                features_lack(&h->features, "name forwarder", "boxes cannot look up names", err_text(&e));
        c->dns_port = h->features.dns ? h->dns.port : 0;
        snprintf(text, sizeof(text), "%u", c->dns_port);
        (void) file_write_atomic(h->own, "dns.port", text, strlen(text), 0600, NULL);
        h->wire = wire_listen(&c->subnet, &c->wire_port, &e);
        if (h->wire < 0)
                features_lack(&h->features, "wires", "declared names reach nothing but the box itself", err_text(&e));
        h->features.net = net_rules_load(c, &e) == 0;
        if (!h->features.net)
                features_lack(&h->features, "network", "boxes have no network", err_text(&e));
        else
                net_pass_docker(true);
}

int host_prepare(struct host *h, struct err *e)
{
        struct err why = { 0 };
        uint32_t start;
        int r;

        features_kernel(&h->features);
        if (!h->features.root || !h->features.idmap || !h->features.seccomp)
                return err_set(e, -EPERM, "boxes cannot be made on this machine: %s: %s", h->features.missing[0].what,
                               h->features.missing[0].why);
        r = open_boxd(h, e);
        if (r == 0)
                r = cgroups_open(&h->cgroups, h->instance, e);
        if (r < 0)
                return r;
        features_cgroups(&h->features, &h->cgroups);
        sysctl_raise(h->instance);
        r = prepare_mounts(h, e);
        if (r == 0)
                r = image_host_prepare(h->images_dir, h->skeleton, e);
        if (r < 0)
                return r;
        open_ca(h);
        prepare_net(h);
        r = closer_start(&h->closer, h->features.net ? &h->net : NULL, e);
        if (r < 0)
                return r;
        disk_pool_open(&h->disks, h->pool_dir, h->options->pool, &why);
        h->features.disk = h->disks.limited;
        if (!h->features.disk)
                features_lack(&h->features, "disk limit", "no disk limit: a box can fill the machine's disk",
                              err_text(&why));
        random_bytes(&start, sizeof(start));
        h->next_index = start % NET_INDEX_MAX; /* instances that start apart rarely try the same index */
        return 0;
}

void host_close(struct host *h)
{
        int *const fds[] = { &h->own,      &h->boxes_dir, &h->archive_dir, &h->pool_dir, &h->images_dir,
                             &h->sock_dir, &h->run_dir,   &h->lock,        &h->boxd,     &h->dev,
                             &h->launch,   &h->ca,        &h->images_lock, &h->wire };

        dns_stop(&h->dns);
        closer_stop(&h->closer);
        disk_pool_close(&h->disks);
        while (!list_empty(&h->boxes))
                host_forget(h, list_entry(h->boxes.next, struct box, link));
        cgroups_close(&h->cgroups);
        net_close(&h->net);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
                if (*fds[i] >= 0)
                        close(steal_fd(fds[i]));
        }
}

struct box *host_find(struct host *h, const char *id)
{
        list_for_each (it, &h->boxes) {
                struct box *b = list_entry(it, struct box, link);
                if (strcmp(b->id, id) == 0)
                        return b;
        }
        return NULL;
}

void host_add(struct host *h, struct box *b)
{
        struct list *at = h->boxes.next;

        while (at != &h->boxes && strcmp(list_entry(at, struct box, link)->id, b->id) < 0)
                at = at->next;
        list_append(at, &b->link); /* before at */
        b->source = (struct source){ .kind = SOURCE_BOX, .of = b };
        h->count++;
}

void host_unwatch(struct host *h, struct box *b)
{
        if (b->pidfd < 0)
                return;
        /* Closing is not enough: a child that was forked meanwhile may hold a copy for a moment. */
        if (h->poll >= 0)
                (void) epoll_ctl(h->poll, EPOLL_CTL_DEL, b->pidfd, NULL);
        close(steal_fd(&b->pidfd));
}

void host_forget(struct host *h, struct box *b)
{
        list_remove(&b->link);
        h->count--;
        host_unwatch(h, b);
        wire_names_forget(h, b);
        closep(&b->disk);
        freep(&b);
}
