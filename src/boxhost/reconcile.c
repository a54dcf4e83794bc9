#include "boxhost/reconcile.h"

#include "boxhost/archive.h"
#include "boxhost/box.h"
#include "boxhost/image_store.h"
#include "boxhost/state.h"
#include "boxhost/sys.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Calls fn for the names in a folder, from a list made before: fn may remove them. */
static void each_name(int dir, void (*fn)(struct host *h, const char *name), struct host *h)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        char **names = NULL;
        size_t n = 0;

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        for (struct dirent *it; (it = readdir(d));) {
                if (it->d_name[0] == '.')
                        continue;
                names = xrealloc(names, (n + 1) * sizeof(*names));
                names[n++] = xstrdup(it->d_name);
        }
        closedir(d);
        for (size_t i = 0; i < n; i++) {
                fn(h, names[i]);
                freep(&names[i]);
        }
        freep(&names);
}

/* The recorded process lives when a process of that number has the recorded start time, looked at while it is held. */
static bool hold_process(struct box *b)
{
        uint64_t started;
        struct pollfd p;

        b->pidfd = b->pid > 0 ? sys_pidfd_open(b->pid) : -1;
        if (b->pidfd < 0)
                return false;
        p = (struct pollfd){ .fd = b->pidfd, .events = POLLIN };
        if (sys_start_time(b->pid, &started) == 0 && started == b->start_time && poll(&p, 1, 0) == 0)
                return true;
        close(steal_fd(&b->pidfd));
        return false;
}

static void remove_leftover(struct host *h, const char *id)
{
        struct err e = { 0 };

        log_info("removing what is left of %s", id);
        if (box_destroy(h, id, NULL, &e) < 0)
                log_error("%s", err_text(&e));
}

static void adopt(struct host *h, const char *name)
{
        struct err e = { 0 };
        struct box *b;
        int r;

        if (!box_id_ok(name)) {
                log_warning("ignoring the strange name %s among the boxes", name);
                return;
        }
        b = xcalloc(1, sizeof(*b));
        b->pidfd = b->disk = b->loop = -1;
        r = spec_read(h->boxes_dir, name, b, &e);
        if (r == -ENOENT) {
                freep(&b);
                remove_leftover(h, name);
                return;
        }
        if (r < 0) { /* rather kept as a dead one than lost */
                log_error("%s", err_text(&e));
                snprintf(b->id, sizeof(b->id), "%s", name);
                b->pid = 0;
                b->index = NET_INDEX_MAX;
        }
        if (hold_process(b)) {
                b->state = cg_is_frozen(&h->cgroups, name) ? BOX_FROZEN : BOX_RUNNING;
        } else {
                b->state = BOX_DEAD;
                (void) cg_kill(&h->cgroups, name);
        }
        host_add(h, b);
}

struct names {
        struct host *h;
        char (*id)[BOX_ID_MAX + 1];
        size_t n;
};

static void note_unknown(const char *id, void *arg)
{
        struct names *list = arg;

        if (strlen(id) > BOX_ID_MAX || host_find(list->h, id))
                return;
        list->id = xrealloc(list->id, (list->n + 1) * sizeof(*list->id));
        snprintf(list->id[list->n++], sizeof(*list->id), "%s", id);
}

static void sweep_cgroups(struct host *h)
{
        struct names list = { .h = h };

        cg_each(&h->cgroups, note_unknown, &list);
        for (size_t i = 0; i < list.n; i++)
                remove_leftover(h, list.id[i]);
        freep(&list.id);
}

struct indices {
        struct host *h;
        unsigned list[NET_INDEX_MAX];
        size_t n;
};

static void note_index(unsigned index, void *arg)
{
        struct indices *all = arg;

        list_for_each (it, &all->h->boxes) {
                const struct box *b = list_entry(it, struct box, link);
                if (b->index == index && b->state != BOX_DEAD)
                        return;
        }
        if (all->n < NET_INDEX_MAX)
                all->list[all->n++] = index;
}

static void sweep_interfaces(struct host *h)
{
        struct indices all = { .h = h };
        struct err e = { 0 };

        if (h->net.nl < 0)
                return;
        if (net_each(&h->net, note_index, &all, &e) < 0)
                log_warning("%s", err_text(&e));
        for (size_t i = 0; i < all.n; i++) {
                if (net_remove(&h->net, all.list[i], &e) < 0)
                        log_warning("interface psb%u stays: %s", all.list[i], err_text(&e));
        }
}

static void drop_socket(struct host *h, const char *name)
{
        size_t n = strlen(name);
        char id[BOX_ID_MAX + 1];

        /* The folder is the server's too: only names of our kind, and never one of a box we know. */
        if (n <= 5 || n - 5 > BOX_ID_MAX || strcmp(name + n - 5, ".sock") != 0)
                return;
        snprintf(id, sizeof(id), "%.*s", (int) (n - 5), name);
        if (box_id_ok(id) && !host_find(h, id))
                (void) unlinkat(h->sock_dir, name, 0);
}

static bool skeleton_used(const char *version, void *arg)
{
        struct host *h = arg;

        if (strcmp(version, h->skeleton) == 0)
                return true;
        list_for_each (it, &h->boxes) {
                const struct box *b = list_entry(it, struct box, link);
                if (b->state != BOX_DEAD && strcmp(b->skeleton, version) == 0)
                        return true;
        }
        return false;
}

int reconcile(struct host *h, struct err *e)
{
        (void) e;
        each_name(h->boxes_dir, adopt, h);
        archive_sweep(h, false);
        sweep_cgroups(h);
        sweep_interfaces(h);
        each_name(h->sock_dir, drop_socket, h);
        image_host_sweep(h->images_dir, skeleton_used, h);
        (void) image_sweep(h->images_dir, h->boxes_dir, h->images_lock);
        image_clean_later(h->images_dir);
        return 0;
}

int reconcile_cleanup(struct host *h, struct err *e)
{
        int failed = 0;

        each_name(h->boxes_dir, adopt, h);
        while (!list_empty(&h->boxes)) {
                struct box *b = list_entry(h->boxes.next, struct box, link);
                int r = box_destroy(h, b->id, NULL, e);
                if (r < 0) {
                        failed = r;
                        host_forget(h, b);
                }
        }
        sweep_cgroups(h);
        sweep_interfaces(h);
        archive_sweep(h, true);
        net_rules_remove(h->instance);
        cgroups_destroy(&h->cgroups);
        sysctl_restore(h->instance);
        (void) remove_tree(h->own, "pool");
        (void) remove_tree(h->own, "sock");
        (void) remove_tree(h->own, "mnt");
        (void) remove_tree(h->images_dir, IMAGE_HOST);
        (void) image_sweep(h->images_dir, h->boxes_dir, h->images_lock);
        image_clean(h->images_dir, false);
        return failed;
}
