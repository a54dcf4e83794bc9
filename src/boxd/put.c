#include "boxd/put.h"
#include "boxd/put_ahead.h"
#include "boxd/conn.h"
#include "boxd/ops.h"

#include "base/b64.h"
#include "base/file.h"
#include "base/map.h"
#include "guest/gz.h"
#include "guest/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PIECE (256u << 10)
#define ENTRIES_MAX 2000000
#define DEPTH_MAX 256
#define REFUSED_MAX 100
#define NAME_ROOM (8u << 10) /* one more name, every byte of it escaped */
#define SILENCE_SECONDS 300

struct put {
        int fd, dest;
        const char *single; /* the name that the one file gets, or NULL */
        bool compare, replace_dirs;
        struct dircache dirs;
        struct map *links; /* paths that this archive made symlinks */
        struct cache *cache;
        struct tar_reader tar;
        struct sink sink;
        struct ahead *ahead; /* files under way, or NULL */
        bool in_file;
        int failed; /* of a file under way: ends everything */
        uint64_t entries, files, changed, bytes;
        size_t n_refused;
        struct buf refused; /* a JSON array under construction */
        struct jw w;
        const char *hostile; /* why the archive as a whole is an error, or NULL */
        struct err *e;
};

/* Names a member that is left out. The archive goes on; hostile ones make the result an error. */
static void refuse_path(struct put *p, struct str path, const char *why, bool hostile)
{
        if (hostile)
                p->hostile = why;
        if (p->n_refused++ >= REFUSED_MAX || p->refused.len > p->refused.max - NAME_ROOM)
                return;
        jw_obj(&p->w);
        jw_kstrn(&p->w, "path", str_n(path.p, min_size(path.n, 512)));
        jw_kstr(&p->w, "why", why);
        jw_end(&p->w);
}

static void refuse(struct put *p, const char *why, bool hostile)
{
        refuse_path(p, str_n(p->tar.entry.path, p->tar.entry.path_len), why, hostile);
}

/* Whether an error concerns this member only, and what to say. */
static const char *member_fault(int r)
{
        switch (-r) {
        case EISDIR:
                return "a folder is in the way";
        case EXDEV:
                return "it leads out of the destination";
        case ELOOP:
                return "a symlink is in the way";
        case ENAMETOOLONG:
                return "a part of its name is longer than 255 bytes";
        case EPERM:
        case EACCES:
        case ETXTBSY:
        case EBUSY:
                return "the file system refuses to replace what is there";
        default:
                return NULL;
        }
}

static int made_link(struct put *p, const char *path, size_t n)
{
        return map_get(p->links, str_n(path, n)) != NULL;
}

/* One folder below cur; what is in its way is replaced, except a symlink that this very archive brought. */
static int enter(struct put *p, int cur, const char *path, size_t n, const char *name)
{
        for (int i = 0; i < 3; i++) {
                int fd = openat(cur, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

                if (fd >= 0)
                        return fd;
                if (errno == ENOTDIR || errno == ELOOP) {
                        if (made_link(p, path, n))
                                return -EXDEV;
                        if (unlinkat(cur, name, 0) < 0 && errno != ENOENT)
                                return -errno;
                } else if (errno != ENOENT) {
                        return -errno;
                }
                if (mkdirat(cur, name, 0755) < 0 && errno != EEXIST)
                        return -errno;
        }
        return -EBUSY;
}

/* The folder (first n bytes of path), made where missing. Borrowed: it belongs to the cache. */
static int folder(struct put *p, const char *path, size_t n)
{
        char copy[TAR_NAME_MAX + 1];
        int fd = dircache_get(&p->dirs, path, n);

        if (fd >= 0 || (fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP))
                return fd;
        memcpy(copy, path, n);
        copy[n] = '\0';
        int cur = p->dest;
        size_t start = 0;
        for (size_t i = 0; i <= n; i++) {
                if (i < n && copy[i] != '/')
                        continue;
                copy[i] = '\0';
                int next = enter(p, cur, path, i, copy + start);
                if (cur != p->dest)
                        close(cur);
                if (next < 0)
                        return next;
                cur = next;
                start = i + 1;
        }
        dircache_put(&p->dirs, path, n, cur);
        return cur;
}

/* Makes room for something that is no folder. */
static int clear_way(struct put *p, int dir, const char *name)
{
        dircache_drop(&p->dirs); /* what it remembers may lie in there; dir itself is the caller's duplicate */
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
                return 0;
        if (!p->replace_dirs || (errno != ENOTEMPTY && errno != EEXIST))
                return -EISDIR;
        return remove_tree(dir, name);
}

struct file {
        const char *path, *name; /* clean; name is the end of path, or that of the single file */
        size_t path_len;
        uint64_t size;
        unsigned mode;
};

static int begin_file(struct put *p, int dir, const struct file *f, bool whole)
{
        int r = sink_begin(&p->sink, dir, f->name, f->size, f->mode, p->compare, whole);

        if (r == -EISDIR) {
                _cleanup_close_ int own = fcntl(dir, F_DUPFD_CLOEXEC, 3);
                size_t dir_len;

                if (own < 0 || (r = clear_way(p, own, f->name)) < 0)
                        return r < 0 ? r : -errno;
                path_split(f->path, f->path_len, &dir_len);
                dir = p->single ? p->dest : folder(p, f->path, dir_len);
                if (dir < 0)
                        return dir;
                r = sink_begin(&p->sink, dir, f->name, f->size, f->mode, p->compare, whole);
        }
        return r;
}

/* A regular file whose whole content lies at data goes to the writers; any other is written as its content comes. */
static int put_file(struct put *p, int dir, const struct file *f, const char *data, bool whole)
{
        if (whole && !p->single && ahead_take(p->ahead, dir, f->path, f->path_len, f->mode, data, f->size))
                return 0;
        int r = begin_file(p, dir, f, whole);
        p->in_file = r >= 0;
        return r;
}

static int put_symlink(struct put *p, int dir, const char *name, const char *clean, size_t clean_len)
{
        const char *target = p->tar.entry.link;
        char old[TAR_NAME_MAX + 1], temp[TEMP_NAME_LEN];

        if (!*target)
                return -EINVAL;
        if (symlinkat(target, dir, name) < 0) {
                if (errno != EEXIST)
                        return -errno;
                ssize_t n = readlinkat(dir, name, old, sizeof(old) - 1);
                if (n >= 0 && (size_t) n == p->tar.entry.link_len && memcmp(old, target, (size_t) n) == 0)
                        goto same;
                temp_name(temp);
                if (symlinkat(target, dir, temp) < 0)
                        return -errno;
                if (renameat(dir, temp, dir, name) < 0) {
                        int r = -errno;

                        if (r == -EISDIR) {
                                _cleanup_close_ int own = fcntl(dir, F_DUPFD_CLOEXEC, 3);

                                r = own < 0 ? -errno : clear_way(p, own, name);
                                if (r >= 0 && renameat(own, temp, own, name) < 0)
                                        r = -errno;
                                if (r < 0)
                                        unlinkat(own, temp, 0);
                        } else {
                                unlinkat(dir, temp, 0);
                        }
                        if (r < 0)
                                return r;
                }
        }
        p->changed++;
same:
        p->files++;
        map_put(p->links, str_n(clean, clean_len), p);
        return 0;
}

/* Hard links lead to regular files beneath dest only, and no symlink takes part in finding them. */
static int put_hardlink(struct put *p, int dir, const char *name)
{
        const struct tar_entry *m = &p->tar.entry;
        char clean[TAR_NAME_MAX + 1], temp[TEMP_NAME_LEN], folder_path[TAR_NAME_MAX + 1];
        struct stat from, old;
        size_t dir_len;
        long n = tar_clean_path(m->link, m->link_len, clean);

        if (n <= 0)
                return -EXDEV;
        const char *base = path_split(clean, (size_t) n, &dir_len);
        memcpy(folder_path, clean, dir_len);
        folder_path[dir_len] = '\0';
        _cleanup_close_ int src = beneath_open(p->dest, folder_path, O_PATH | O_DIRECTORY, 0, BENEATH_STRICT);
        if (src < 0)
                return src == -ENOTDIR || src == -ELOOP
                               ? -EXDEV
                               : src; /* a symlink on the way: where it leads is not looked at */
        if (fstatat(src, base, &from, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISREG(from.st_mode))
                return -EXDEV;
        if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0) {
                if (old.st_dev == from.st_dev && old.st_ino == from.st_ino) {
                        p->files++;
                        return 0;
                }
                if (S_ISDIR(old.st_mode))
                        return -EISDIR;
        }
        temp_name(temp);
        if (linkat(src, base, dir, temp, 0) < 0)
                return -errno;
        if (renameat(dir, temp, dir, name) < 0) {
                int r = -errno;

                unlinkat(dir, temp, 0);
                return r;
        }
        p->files++;
        p->changed++;
        return 0;
}

static int put_dir(struct put *p, int parent, const char *path, size_t n, const char *name)
{
        struct stat st;

        if (mkdirat(parent, name, (p->tar.entry.mode & 0777) | 0700) == 0)
                return 0;
        if (errno != EEXIST)
                return -errno;
        if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                return 0;
        int fd = folder(p, path, n);
        return fd < 0 ? fd : 0;
}

static bool too_deep(const char *p, size_t n)
{
        unsigned depth = 0;

        for (size_t i = 0; i < n; i++)
                if (p[i] == '/' && ++depth > DEPTH_MAX)
                        return true;
        return false;
}

static int member_here(struct put *p, int dir, const char *clean, size_t n, const char *name, struct str content)
{
        const struct tar_entry *m = &p->tar.entry;

        if (strlen(name) > 255)
                return -ENAMETOOLONG;
        switch (m->type) {
        case TAR_DIR:
                return p->single ? 0 : put_dir(p, dir, clean, n, name);
        case TAR_FILE:
                return put_file(p, dir, &(struct file){ clean, name, n, m->size, m->mode }, content.p,
                                m->size <= content.n);
        case TAR_SYMLINK:
                return put_symlink(p, dir, name, clean, n);
        default:
                return put_hardlink(p, dir, name);
        }
}

/* A new member; content: what is in memory of it and of what follows. Only errors that end everything are returned. */
static int member(struct put *p, struct str content)
{
        const struct tar_entry *m = &p->tar.entry;
        char clean[TAR_NAME_MAX + 1];
        size_t dir_len = 0;

        if (++p->entries > ENTRIES_MAX)
                return err_set(p->e, -E2BIG, "the archive has more than %d members", ENTRIES_MAX);
        if (m->bad || m->type == TAR_OTHER) {
                refuse(p, m->bad ? m->bad : "it is a device, a FIFO or something else that is no file, folder or link",
                       false);
                return 0;
        }
        long n = tar_clean_path(m->path, m->path_len, clean);
        if (n < 0) {
                refuse(p, m->path[0] == '/' ? "its path is absolute" : "its path leads out of the destination", true);
                return 0;
        }
        if (n == 0) /* the top folder itself */
                return 0;
        if (too_deep(clean, (size_t) n)) {
                refuse(p, "it lies deeper than 256 folders", false);
                return 0;
        }
        const char *name = path_split(clean, (size_t) n, &dir_len);
        if (p->single) {
                if (m->type == TAR_FILE && p->files + p->in_file == 0)
                        name = p->single;
                else if (m->type != TAR_DIR) {
                        refuse(p, "the archive was to hold one file", false);
                        return 0;
                }
        }
        /* What a link leads to may be under way under any name. */
        ahead_settle(p->ahead, m->type == TAR_HARDLINK ? NULL : clean, (size_t) n);
        int dir = p->single ? p->dest : folder(p, clean, dir_len);
        int r = dir < 0 ? dir : member_here(p, dir, clean, (size_t) n, name, content);
        if (r >= 0)
                return 0;
        const char *fault =
                m->type == TAR_HARDLINK && r == -ENOENT ? "the file it links to does not exist" : member_fault(r);
        if (!fault)
                return err_sys(p->e, r, "%.200s", clean);
        refuse(p, fault, r == -EXDEV);
        return 0;
}

/* A file is complete, or failed with r. */
static int file_ended(struct put *p, const struct sink *s, struct str path, int r)
{
        if (r < 0) {
                const char *fault = member_fault(r);

                if (!fault && p->failed < 0) /* what failed first is told */
                        return r;
                if (!fault)
                        return err_sys(p->e, r, "%.*s", (int) min_size(path.n, 200), path.p);
                refuse_path(p, path, fault, r == -EXDEV);
                return 0;
        }
        sink_remember(s, p->cache);
        p->files++;
        p->changed += s->changed;
        p->bytes += s->size;
        return 0;
}

static int end_member(struct put *p)
{
        if (!p->in_file)
                return 0;
        p->in_file = false;
        int r = sink_end(&p->sink);
        return file_ended(p, &p->sink, str_n(p->tar.entry.path, p->tar.entry.path_len), r);
}

/* Of a file that the writers had. A folder in its way is for us to judge. */
static void written_ahead(struct ahead_file *f, void *arg)
{
        struct put *p = arg;

        if (f->r == -EISDIR) {
                size_t dir_len;

                path_split(f->path, f->path_len, &dir_len);
                int dir = folder(p, f->path, dir_len);
                f->r = dir < 0 ? dir
                               : begin_file(p, dir, &(struct file){ f->path, f->name, f->path_len, f->size, f->mode },
                                            true);
                if (f->r >= 0 && f->size)
                        f->r = sink_data(&p->sink, f->data, f->size);
                if (f->r >= 0)
                        f->r = sink_end(&p->sink);
                sink_abort(&p->sink);
                f->sink = p->sink;
        }
        int r = file_ended(p, &f->sink, str_n(f->path, f->path_len), f->r);
        if (r < 0 && p->failed == 0)
                p->failed = r;
}

/* Feeds plain tar bytes. */
static int feed(struct put *p, struct str in, bool *eof)
{
        struct str data;

        for (;;) {
                int ev = tar_read(&p->tar, &in, &data), r = 0;

                switch (ev) {
                case TAR_MORE:
                        return 0;
                case TAR_EOF:
                        *eof = true;
                        return 0;
                case TAR_HEADER:
                        r = member(p, in);
                        break;
                case TAR_DATA:
                        if (p->in_file)
                                r = sink_data(&p->sink, data.p, data.n);
                        if (r < 0)
                                err_sys(p->e, r, "%s", p->sink.name);
                        break;
                case TAR_END:
                        r = end_member(p);
                        break;
                default:
                        return err_set(p->e, -EPROTO, "%s", p->tar.why);
                }
                if (r < 0 || p->failed < 0)
                        return r < 0 ? r : p->failed;
        }
}

struct input {
        struct conn c;
        struct gz_in *gz;
        bool started;
        char first[2];
        size_t first_len;
};

static int feed_gzip(struct put *p, struct input *in, struct str raw, bool *eof)
{
        static char plain[PIECE];

        for (;;) {
                long n = gz_inflate(in->gz, &raw, plain, sizeof(plain));
                if (n < 0)
                        return err_set(p->e, -EPROTO, "the gzip data is damaged");
                int r = feed(p, str_n(plain, (size_t) n), eof);
                if (r < 0)
                        return r;
                if (n == 0 && raw.n == 0)
                        return 0;
                if (*eof && raw.n == 0)
                        return 0;
        }
}

static int feed_any(struct put *p, struct input *in, struct str raw, bool *eof)
{
        if (!in->started) {
                /* Two bytes tell gzip from tar; they may come one by one. */
                if (in->first_len + raw.n < 2) {
                        in->first[in->first_len++] = raw.p[0];
                        return 0;
                }
                unsigned char magic[2] = { (unsigned char) (in->first_len ? in->first[0] : raw.p[0]),
                                           (unsigned char) raw.p[in->first_len ? 0 : 1] };
                in->started = true;
                if (gz_magic(magic, 2) && !(in->gz = gz_in_new()))
                        return err_set(p->e, -ENOMEM, "no memory for decompressing");
                if (in->first_len) {
                        int r = feed_any(p, in, str_n(in->first, 1), eof);

                        if (r < 0)
                                return r;
                }
        }
        return in->gz ? feed_gzip(p, in, raw, eof) : feed(p, raw, eof);
}

static int receive_all(struct put *p, struct input *in)
{
        static char raw[PIECE];
        bool eof = false;

        for (;;) {
                long n = conn_data(&in->c, raw, sizeof(raw));
                if (n == -ECONNRESET)
                        return err_set(p->e, (int) n, "the upload was cut off");
                if (n < 0)
                        return err_sys(p->e, (int) n, "receiving the archive");
                if (n == 0)
                        break;
                int r = feed_any(p, in, str_n(raw, (size_t) n), &eof);
                if (r < 0)
                        return r;
        }
        if (!in->started)
                return in->first_len ? err_set(p->e, -EPROTO, "the archive is cut off") : 0;
        if (in->gz && !gz_in_complete(in->gz))
                return err_set(p->e, -EPROTO, "the gzip data is cut off");
        if (tar_read_finish(&p->tar) < 0)
                return err_set(p->e, -EPROTO, "%s", p->tar.why);
        return 0;
}

static void finish(struct put *p, int r)
{
        struct reply out;

        jw_end_all(&p->w);
        reply_init(&out);
        jw_kint(&out.w, "changed", (int64_t) p->changed);
        jw_kint(&out.w, "files", (int64_t) p->files);
        jw_kint(&out.w, "bytes", (int64_t) p->bytes);
        jw_key(&out.w, "refused");
        jw_raw(&out.w, buf_str(&p->refused));
        jw_kint(&out.w, "refusedCount", (int64_t) p->n_refused);
        if (r < 0) {
                jw_kstr(&out.w, "error", err_text(p->e));
                jw_kstr(&out.w, "code", code_name(r));
                if (r == -ENOSPC || r == -EDQUOT)
                        jw_kstr(&out.w, "deniedWhy", "the box's disk is full");
        } else if (p->hostile) {
                jw_kstr(&out.w, "error",
                        "the archive has members that lead out of the destination; they were left out");
                jw_kstr(&out.w, "code", "EXDEV");
        }
        reply_send(&out, p->fd);
}

/* Splits dest into its folder and the file's own name. */
static int open_single(struct put *p, const char *dest, struct err *e)
{
        size_t dir_len;

        if (!guest_path_ok(dest, strlen(dest)))
                return err_set(e, -EINVAL, "`dest` must be a plain path below /work, got \"%s\"", dest);
        p->single = path_split(dest, strlen(dest), &dir_len);
        if (strlen(p->single) > 255)
                return err_set(e, -ENAMETOOLONG, "`dest`: its name is longer than 255 bytes");
        _cleanup_free_ char *dir = xstrndup(dest, dir_len);
        return dest_open(dir_len ? dir : ".", true, e);
}

void op_put(int fd, struct json *head)
{
        static struct put put;
        struct put *p = &put;
        struct err e = { 0 };
        struct input in = { .c = { .fd = fd, .want = GUEST_DATA } };
        struct timeval silence = { .tv_sec = SILENCE_SECONDS };
        const char *dest = json_get_str(head, "dest", "");

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
        umask(0);
        p->fd = fd;
        p->e = &e;
        p->compare = json_get_bool(head, "compare", true);
        p->replace_dirs = json_get_bool(head, "replaceDirs", false);
        p->refused = BUF_MAX(128u << 10);
        jw_init(&p->w, &p->refused);
        jw_arr(&p->w);
        sink_init(&p->sink);
        tar_reader_init(&p->tar);
        p->dest = json_get_bool(head, "single", false) ? open_single(p, dest, &e) : dest_open(dest, true, &e);
        int r = p->dest;
        if (r >= 0) {
                p->links = map_new();
                p->cache = cache_open(CACHE_FILE);
                dircache_init(&p->dirs, p->dest);
                p->ahead = ahead_new(p->compare, written_ahead, p);
                r = receive_all(p, &in);
                sink_abort(&p->sink);
                if (r < 0)
                        p->failed = r;
                ahead_free(p->ahead);
                r = p->failed;
                if (p->cache)
                        cache_save(p->cache);
        }
        finish(p, r);
        if (r < 0 && r != -ECONNRESET)
                conn_drain(&in.c);
}
