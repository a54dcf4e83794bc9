#include "boxhost/image_store.h"

#include "boxhost/box.h"
#include "boxhost/state.h"
#include "boxhost/sys.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define LOCK_WAIT_MS 2000
#define USERS_WAIT_MS 2000
#define LOCK_FILE ".lock"
#define CHANGED_FILE ".changed"
#define BUILD_LOCK_FILE ".build.lock"
#define GONE ".gone-"
#define BUILD ".build-"
#define NAMES_SHOWN 5

int image_lock_open(int images, int *ret, struct err *e)
{
        *ret = openat(images, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        return *ret < 0 ? err_sys(e, -errno, "cannot open the lock of the images") : 0;
}

/* A record lock, as in host.c: children do not inherit it. */
int image_lock(int lock, bool alone, struct err *e)
{
        struct flock whole = { .l_type = alone ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };
        const struct timespec pause = { .tv_nsec = 2 * 1000000L };

        for (int64_t until = clock_ms() + LOCK_WAIT_MS; fcntl(lock, F_SETLK, &whole) < 0;) {
                if (errno != EAGAIN && errno != EACCES)
                        return err_sys(e, -errno, "cannot lock the images");
                if (clock_ms() >= until)
                        return err_set(e, -EBUSY, "the images are being changed by another command: try again");
                (void) nanosleep(&pause, NULL);
        }
        return 0;
}

void image_unlock(int lock)
{
        struct flock whole = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

        (void) fcntl(lock, F_SETLK, &whole);
}

int image_store_open(const char *state, struct image_store *s, struct err *e)
{
        _cleanup_free_ char *absolute = realpath(state, NULL);
        _cleanup_close_ int dir = -1, own = -1;
        int r = 0;

        *s = (struct image_store){ .images = -1, .boxes = -1, .lock = -1, .build_lock = -1 };
        if (!absolute)
                return err_sys(e, -errno, "the state folder %s", state);
        if (snprintf(s->folder, sizeof(s->folder), "%s/boxhost/images", absolute) >= (int) sizeof(s->folder))
                return err_set(e, -ENAMETOOLONG, "the path of the state folder is too long");
        dir = open(absolute, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return err_sys(e, -errno, "cannot open the state folder %s", state);
        r = host_open_made(dir, "boxhost", 0711, &own, e);
        if (r == 0)
                r = host_check_ours(own, "boxhost", e);
        if (r == 0)
                r = host_open_made(own, "boxes", 0711, &s->boxes, e);
        if (r == 0)
                r = host_open_made(own, "images", 0711, &s->images, e);
        return r < 0 ? r : image_lock_open(s->images, &s->lock, e);
}

void image_store_close(struct image_store *s)
{
        closep(&s->images);
        closep(&s->boxes);
        closep(&s->lock);
        closep(&s->build_lock);
}

static int take_build_lock(int images, int *ret)
{
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        _cleanup_close_ int fd = openat(images, BUILD_LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0 || fcntl(fd, F_SETLK, &whole) < 0)
                return -errno;
        *ret = steal_fd(&fd);
        return 0;
}

int image_store_begin_build(struct image_store *s, struct err *e)
{
        int r = take_build_lock(s->images, &s->build_lock);

        if (r == -EAGAIN || r == -EACCES)
                return err_set(e, -EBUSY, "another image is being built in this state folder: wait until it is done");
        return r < 0 ? err_sys(e, r, "cannot lock the building of images") : 0;
}

/* ---- who needs what ---- */

struct users {
        const char *name, *version; /* version NULL: any */
        size_t n;
        bool unreadable;
        char ids[NAMES_SHOWN][BOX_ID_MAX + 1];
};

static void look_at(int boxes, const char *id, struct users *u)
{
        struct box b = { 0 };
        int r = box_id_ok(id) ? spec_read(boxes, id, &b, NULL) : -ENOENT;

        if (r < 0) {
                u->unreadable |= r != -ENOENT; /* whatever it needs must stay */
                return;
        }
        if (!cstr_eq(b.image, u->name) || (u->version && !cstr_eq(b.skeleton, u->version)))
                return;
        if (u->n < NAMES_SHOWN)
                snprintf(u->ids[u->n], sizeof(u->ids[0]), "%s", id);
        u->n++;
}

/* Calls fn for every name in a folder, from a list made before: fn may change it. */
static void each_entry(int at, const char *path, void (*fn)(const char *name, void *arg), void *arg)
{
        struct dirent **list = NULL;
        int n = scandirat(at, path, &list, NULL, alphasort);

        for (int i = 0; i < n; i++) {
                if (!cstr_eq(list[i]->d_name, ".") && !cstr_eq(list[i]->d_name, ".."))
                        fn(list[i]->d_name, arg);
                freep(&list[i]);
        }
        freep(&list);
}

struct looking {
        int boxes;
        struct users *u;
};

static void look_at_entry(const char *name, void *arg)
{
        struct looking *l = arg;

        look_at(l->boxes, name, l->u);
}

static struct users find_users(int boxes, const char *name, const char *version)
{
        _cleanup_close_ int archive = openat(boxes, "../archive", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct users u = { .name = name, .version = version };
        struct looking running = { boxes, &u }, kept = { archive, &u };

        each_entry(boxes, ".", look_at_entry, &running);
        if (archive >= 0) /* boxes of which only the disk is kept lie over the same tree */
                each_entry(archive, ".", look_at_entry, &kept);
        return u;
}

size_t image_users(int boxes, const char *name)
{
        return find_users(boxes, name, NULL).n;
}

struct versions {
        int images, boxes;
        const char *image;
        char current[IMAGE_SKELETON_MAX];
        size_t old;
        bool sweep, moved;
};

static int move_away(int images, const char *path)
{
        char gone[32] = GONE;

        random_id(gone + strlen(GONE), 12);
        return renameat(images, path, images, gone) < 0 ? -errno : 0;
}

static void visit_version(const char *version, void *arg)
{
        struct versions *v = arg;
        char path[IMAGE_NAME_MAX + IMAGE_SKELETON_MAX + 2];
        struct users u;

        if (!image_version_ok(version) || cstr_eq(version, v->current))
                return;
        v->old++;
        if (!v->sweep)
                return;
        u = find_users(v->boxes, v->image, version);
        snprintf(path, sizeof(path), "%s/%s", v->image, version);
        if (u.n == 0 && !u.unreadable)
                v->moved |= move_away(v->images, path) == 0;
}

static void visit_image(const char *name, void *arg)
{
        struct versions *v = arg;

        if (!image_name_ok(name) || cstr_eq(name, IMAGE_HOST))
                return;
        v->image = name;
        if (image_current(v->images, name, v->current) < 0)
                v->current[0] = '\0';
        each_entry(v->images, name, visit_version, v);
        if (v->sweep)
                (void) unlinkat(v->images, name, AT_REMOVEDIR); /* when nothing is left in it */
}

size_t image_old_versions(int images, const char *name)
{
        struct versions v = { .images = images, .boxes = -1 };

        visit_image(name, &v);
        return v.old;
}

bool image_sweep(int images, int boxes, int lock)
{
        struct versions v = { .images = images, .boxes = boxes, .sweep = true };
        struct err e = { 0 };

        if (image_lock(lock, true, &e) < 0) {
                log_warning("old images stay for now: %s", err_text(&e));
                return false;
        }
        each_entry(images, ".", visit_image, &v);
        image_unlock(lock);
        return v.moved;
}

void image_box_gone(int images, int boxes, int lock, const char *name, const char *version)
{
        char current[IMAGE_SKELETON_MAX];

        if (!image_version_ok(version) || (image_current(images, name, current) == 0 && cstr_eq(current, version)))
                return;
        if (image_sweep(images, boxes, lock))
                image_clean_later(images);
}

/* ---- removing trees ---- */

struct cleaning {
        int images;
        const char *prefix;
};

static void remove_entry(const char *name, void *arg)
{
        struct cleaning *c = arg;

        if (str_starts(str_of(name), str_of(c->prefix)) && remove_tree(c->images, name) < 0)
                log_warning("cannot remove %s, what is left of an image", name);
}

void image_clean(int images, bool building)
{
        _cleanup_close_ int build_lock = -1;
        struct cleaning gone = { images, GONE }, half = { images, BUILD };

        each_entry(images, ".", remove_entry, &gone);
        if (building || take_build_lock(images, &build_lock) == 0) {
                /* the lock's own name begins differently: with a dot behind `build` */
                each_entry(images, ".", remove_entry, &half);
        }
}

void image_clean_later(int images)
{
        pid_t pid = fork();

        if (pid < 0) {
                log_warning("old images stay until the next start: %s", strerror(errno));
                return;
        }
        if (pid == 0) {
                int dir = fcntl(images, F_DUPFD_CLOEXEC, 64);
                /* Nothing of the boxes may live on in here, and nobody waits for the one that does the work. */
                if (dir < 0 || dup3(dir, 3, O_CLOEXEC) < 0 || close_range(4, ~0U, 0) < 0)
                        _exit(1);
                if (fork() != 0)
                        _exit(0);
                (void) setsid();
                sys_reset_signals();
                (void) setpriority(PRIO_PROCESS, 0, 10);
                image_clean(3, false);
                _exit(0);
        }
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

/* ---- who wants to know ---- */

int image_watch(int images)
{
        _cleanup_close_ int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", images);
        if (fd < 0 || inotify_add_watch(fd, path, IN_MOVED_TO | IN_ONLYDIR) < 0) {
                log_warning("changes of images will be noticed late: %s", strerror(errno));
                return -1;
        }
        return steal_fd(&fd);
}

bool image_changed(int watch)
{
        char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
        bool changed = false;
        ssize_t n;

        while ((n = read(watch, events, sizeof(events))) > 0) {
                for (ssize_t at = 0; at < n;) {
                        const struct inotify_event *ev = (const struct inotify_event *) (const void *) (events + at);
                        changed |= ev->len > 0 && cstr_eq(ev->name, CHANGED_FILE);
                        at += (ssize_t) sizeof(*ev) + ev->len;
                }
        }
        return changed;
}

static void tell_change(int images)
{
        (void) file_write_atomic(images, CHANGED_FILE, "", 0, 0600, NULL);
}

int image_choose_default(struct image_store *s, const char *name, struct err *e)
{
        int r = image_set_default(s->images, name, e);

        if (r == 0)
                tell_change(s->images);
        return r;
}

/* ---- changes ---- */

static int put_current(struct image_store *s, const char *made, const char *name, const char *version, struct err *e)
{
        _cleanup_close_ int dir = -1;
        int r = host_open_made(s->images, name, 0711, &dir, e);

        if (r < 0)
                return r;
        (void) unlinkat(dir, "current.new", 0);
        if (renameat(s->images, made, dir, version) < 0 || symlinkat(version, dir, "current.new") < 0 ||
            renameat(dir, "current.new", dir, "current") < 0 || fsync(dir) < 0 || fsync(s->images) < 0)
                return err_sys(e, -errno, "cannot keep the image %s", name);
        return 0;
}

int image_commit(struct image_store *s, const char *made, const char *name, const char *version, struct err *e)
{
        int r;

        if (syncfs(s->images) < 0)
                return err_sys(e, -errno, "cannot write the image to the disk");
        /* alone: nobody may take the new version for an old one before the link to it is there */
        r = image_lock(s->lock, true, e);
        if (r < 0)
                return r;
        r = put_current(s, made, name, version, e);
        image_unlock(s->lock);
        tell_change(s->images);
        return r;
}

static int refuse_users(const struct users *u, struct err *e)
{
        char names[NAMES_SHOWN * (BOX_ID_MAX + 2) + 8] = "";
        size_t shown = min_size(u->n, NAMES_SHOWN), at = 0;

        for (size_t i = 0; i < shown; i++)
                at += (size_t) snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "", u->ids[i]);
        if (u->n > shown)
                snprintf(names + at, sizeof(names) - at, ", …");
        return err_set(e, -EBUSY, "the image `%s` is in use by %zu box%s (%s): stop and delete %s first", u->name, u->n,
                       u->n == 1 ? "" : "es", names, u->n == 1 ? "it" : "them");
}

static int check_removable(struct image_store *s, const char *name, struct err *e)
{
        char usual[IMAGE_NAME_MAX + 1];
        struct users u;

        image_default(s->images, usual);
        if (cstr_eq(name, usual))
                return err_set(e, -EPERM,
                               "the image `%s` is the default: choose another first, for instance with "
                               "`parallelsandbox image default host`",
                               name);
        u = find_users(s->boxes, name, NULL);
        if (u.n > 0)
                return refuse_users(&u, e);
        if (u.unreadable)
                return err_set(e, -EPERM, "the record of a box cannot be read, so nobody knows which image it needs");
        return 0;
}

static int try_remove(struct image_store *s, const char *name, struct err *e)
{
        int r = image_lock(s->lock, true, e);

        if (r < 0)
                return r;
        r = check_removable(s, name, e);
        if (r == 0) {
                r = move_away(s->images, name);
                if (r < 0)
                        (void) err_sys(e, r, "cannot remove the image %s", name);
        }
        image_unlock(s->lock);
        return r;
}

int image_remove(struct image_store *s, const char *name, struct err *e)
{
        const struct timespec pause = { .tv_nsec = 50 * 1000000L };
        struct image there = { .lower = -1 };
        int r;

        if (cstr_eq(name, IMAGE_HOST))
                return err_set(e, -EPERM, "the image `host` is made from this machine and takes no room: it stays");
        r = image_open(s->images, name, "", &there, e); /* says which there are */
        closep(&there.lower);
        if (r < 0)
                return r;
        /* A server lets go of what it kept ready a moment after the default has changed. */
        for (int64_t until = clock_ms() + USERS_WAIT_MS;;) {
                r = try_remove(s, name, e);
                if (r != -EBUSY || clock_ms() >= until)
                        break;
                (void) nanosleep(&pause, NULL);
        }
        if (r < 0)
                return r;
        tell_change(s->images);
        image_clean(s->images, false);
        return 0;
}
