#include "store/objects.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOOK_EVERY ((int64_t) 4 << 20)

struct objects {
        struct db *db;
        int dir;
        int64_t keep_free;
};

/* Files without a row are what a crash left behind: a row is written before a file is told to anyone. */
static void remove_leftovers(struct objects *o)
{
        int fd = dup(o->dir);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

        for (struct dirent *ent; d && (ent = readdir(d));) {
                struct object_row row;

                if (ent->d_name[0] == '.' && (ent->d_name[1] == '\0' || ent->d_name[1] == '.'))
                        continue;
                int r = object_read(o, ent->d_name, &row, NULL);
                if (r >= 0)
                        (void) close(r);
                else if (r == -ENOENT)
                        (void) unlinkat(o->dir, ent->d_name, 0);
        }
        if (d)
                (void) closedir(d);
}

int objects_open(const char *folder, struct db *db, struct objects **ret, struct err *e)
{
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
                return err_sys(e, -errno, "%s", folder);
        int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return err_sys(e, -errno, "%s", folder);
        struct objects *o = xcalloc(1, sizeof *o);
        o->db = db;
        o->dir = dir;
        remove_leftovers(o);
        *ret = o;
        return 0;
}

void objects_free(struct objects *o)
{
        if (!o)
                return;
        (void) close(o->dir);
        free(o);
}

static void temporary_name(const struct object_writer *w, char out[32])
{
        (void) snprintf(out, 32, "%s.part", w->id);
}

int object_begin(struct objects *o, struct object_writer *w, struct err *e)
{
        char name[32];

        *w = (struct object_writer){ .o = o, .fd = -1 };
        random_id(w->id, sizeof w->id - 1);
        temporary_name(w, name);
        w->fd = openat(o->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        return w->fd < 0 ? err_sys(e, -errno, "object store") : 0;
}

void objects_keep_free(struct objects *o, int64_t bytes)
{
        o->keep_free = bytes;
}

/* Looked at when a writer begins and every some MiB. */
static int check_free(struct object_writer *w)
{
        struct statvfs s;

        if (!w->o->keep_free || (w->looked && w->bytes - w->looked < LOOK_EVERY))
                return 0;
        w->looked = w->bytes + 1;
        if (fstatvfs(w->o->dir, &s) < 0)
                return 0;
        return (int64_t) s.f_bavail * (int64_t) s.f_frsize < w->o->keep_free ? -ENOSPC : 0;
}

int object_write(struct object_writer *w, const void *p, size_t n)
{
        if (w->r == 0)
                w->r = check_free(w);
        if (w->r == 0)
                w->r = fd_write_all(w->fd, p, n);
        if (w->r == 0)
                w->bytes += (int64_t) n;
        return w->r;
}

void object_abort(struct object_writer *w)
{
        char name[32];

        if (w->fd < 0)
                return;
        temporary_name(w, name);
        (void) close(steal_fd(&w->fd));
        (void) unlinkat(w->o->dir, name, 0);
}

int object_commit(struct object_writer *w, const char *account, const char *box, const char *name, const char *type,
                  int64_t keep_ms, struct err *e)
{
        char temporary[32];
        struct query q;
        int64_t now = wall_ms();

        if (w->r < 0) {
                int r = err_sys(e, w->r, "object store");

                object_abort(w);
                return r;
        }
        temporary_name(w, temporary);
        query(w->o->db, &q,
              "INSERT INTO blobs (id, account_id, box_id, name, type, bytes, created_at, expires_at) VALUES "
              "(?,?,?,?,?,?,?,?)");
        query_str(&q, w->id);
        query_str(&q, account);
        query_str(&q, box);
        query_str(&q, name);
        query_str(&q, type);
        query_int(&q, w->bytes);
        query_int(&q, now);
        query_int(&q, now + keep_ms);
        int r = query_run(&q, e);
        if (r < 0) {
                object_abort(w);
                return r;
        }
        (void) close(steal_fd(&w->fd));
        if (renameat(w->o->dir, temporary, w->o->dir, w->id) < 0)
                return err_sys(e, -errno, "object store");
        return 0;
}

int object_read(struct objects *o, const char *id, struct object_row *ret, struct err *e)
{
        struct query q;
        int r = -ENOENT;

        query(o->db, &q, "SELECT name, type, bytes, expires_at FROM blobs WHERE id = ?");
        query_str(&q, id);
        if (query_row(&q)) {
                (void) snprintf(ret->name, sizeof ret->name, "%s", col_str(&q, 0));
                (void) snprintf(ret->type, sizeof ret->type, "%s", col_str(&q, 1));
                ret->bytes = col_int(&q, 2);
                ret->expires_at = col_int(&q, 3);
                r = 0;
        }
        int end = query_end(&q, e);
        if (end < 0)
                return end;
        if (r < 0)
                return err_set(e, r, "this file is no longer kept");
        int fd = openat(o->dir, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 ? err_sys(e, -errno, "object store") : fd;
}

int objects_expire(struct objects *o, int64_t now_ms)
{
        struct query q;
        char gone[256][25];
        int n = 0;

        query(o->db, &q, "SELECT id FROM blobs WHERE expires_at < ? LIMIT 256");
        query_int(&q, now_ms);
        while (n < 256 && query_row(&q)) {
                (void) snprintf(gone[n], sizeof gone[n], "%s", col_str(&q, 0));
                n++;
        }
        if (query_end(&q, NULL) < 0)
                return 0;
        for (int i = 0; i < n; i++) {
                (void) unlinkat(o->dir, gone[i], 0);
                query(o->db, &q, "DELETE FROM blobs WHERE id = ?");
                query_str(&q, gone[i]);
                (void) query_run(&q, NULL);
        }
        return n;
}

int64_t objects_bytes(struct objects *o)
{
        struct query q;
        int64_t n = 0;

        query(o->db, &q, "SELECT coalesce(sum(bytes), 0) FROM blobs");
        if (query_row(&q))
                n = col_int(&q, 0);
        return query_end(&q, NULL) < 0 ? 0 : n;
}
