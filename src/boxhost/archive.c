#include "boxhost/archive.h"

#include "boxhost/box.h"
#include "boxhost/image_store.h"
#include "boxhost/state.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ids {
        char (*id)[BOX_ID_MAX + 1];
        size_t n;
};

static int by_name(const void *a, const void *b)
{
        return strcmp(a, b);
}

static int read_ids(struct host *h, struct ids *ret, struct err *e)
{
        int fd = openat(h->archive_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        size_t room = 0;

        if (!d) {
                int r = err_sys(e, -errno, "cannot read the archive");
                closep(&fd);
                return r;
        }
        for (struct dirent *it; (it = readdir(d));) {
                if (!box_id_ok(it->d_name))
                        continue;
                if (ret->n == room) {
                        room = room ? 2 * room : 64;
                        ret->id = xrealloc(ret->id, room * sizeof(*ret->id));
                }
                snprintf(ret->id[ret->n++], sizeof(*ret->id), "%.*s", BOX_ID_MAX, it->d_name);
        }
        closedir(d);
        if (ret->n)
                qsort(ret->id, ret->n, sizeof(*ret->id), by_name);
        return 0;
}

static bool is_whole(struct host *h, const char *id)
{
        char path[BOX_ID_MAX + 16];

        snprintf(path, sizeof(path), "%s/spec.json", id);
        return faccessat(h->archive_dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int64_t bytes_of(struct host *h, const char *id)
{
        char path[BOX_ID_MAX + 16];
        struct stat st;

        snprintf(path, sizeof(path), "%s/" DISK_FILE, id);
        return fstatat(h->archive_dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t) st.st_blocks * 512 : 0;
}

int archive_each(struct host *h, const char *after, size_t max, void (*fn)(const struct archive *a, void *arg),
                 void *arg, char next[static BOX_ID_MAX + 1], struct err *e)
{
        struct ids all = { 0 };
        struct archive a;
        size_t told = 0;
        int r = read_ids(h, &all, e);

        next[0] = '\0';
        a.id[0] = '\0';
        for (size_t i = 0; i < all.n && r == 0; i++) {
                if (strcmp(all.id[i], after) <= 0 || !is_whole(h, all.id[i]))
                        continue;
                if (told++ == max) {
                        memcpy(next, a.id, sizeof(a.id));
                        break;
                }
                memcpy(a.id, all.id[i], sizeof(a.id));
                a.bytes = bytes_of(h, a.id);
                fn(&a, arg);
        }
        freep(&all.id);
        return r;
}

int archive_delete(struct host *h, const char *id, struct err *e)
{
        struct box was = { 0 };
        bool whole = spec_read(h->archive_dir, id, &was, NULL) == 0;

        spec_withdraw(h->archive_dir, id); /* from now on the next start finishes the removal */
        int r = remove_tree(h->archive_dir, id);
        if (r < 0)
                return err_sys(e, r, "cannot remove the archive of box %s", id);
        if (whole) /* it may have been the last that needed its version */
                image_box_gone(h->images_dir, h->boxes_dir, h->images_lock, was.image, was.skeleton);
        return 0;
}

void archive_sweep(struct host *h, bool all)
{
        struct ids found = { 0 };
        struct err e = { 0 };

        if (read_ids(h, &found, &e) < 0)
                log_error("%s", err_text(&e));
        for (size_t i = 0; i < found.n; i++) {
                if (!all && is_whole(h, found.id[i]))
                        continue;
                if (archive_delete(h, found.id[i], &e) < 0)
                        log_error("%s", err_text(&e));
        }
        freep(&found.id);
        if (all)
                (void) unlinkat(h->own, "archive", AT_REMOVEDIR);
}
