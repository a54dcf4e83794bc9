#include "adapter/tokenfile.h"
#include "base/b64.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTENT_MAX ((size_t) 256 << 10)
#define VERSION 1
#define NAME_DIGITS 32
#define POLL_FROM_MS 10
#define POLL_TO_MS 50

static const char *home(void)
{
        const char *h = getenv("HOME");
        const struct passwd *pw = h && *h ? NULL : getpwuid(getuid());

        return h && *h ? h : pw ? pw->pw_dir : NULL;
}

int tokenfile_init(struct tokenfile *f, const char *dir, const char *endpoint, struct err *e)
{
        unsigned char digest[HASH_LEN];
        char hex[2 * HASH_LEN + 1];

        if (!dir && !home())
                return err_set(e, -ENOENT, "there is no home folder: set PARALLELSANDBOX_AUTH_DIR");
        sha256_of(endpoint, strlen(endpoint), digest);
        hex_encode(digest, sizeof digest, hex);
        f->dir = dir ? xstrdup(dir) : xasprintf("%s/.parallelsandbox", home());
        f->path = xasprintf("%s/oauth-%.*s.json", f->dir, NAME_DIGITS, hex);
        f->lock = xasprintf("%s/oauth-%.*s.lock", f->dir, NAME_DIGITS, hex);
        f->endpoint = endpoint;
        return 0;
}

/* Others must not even see which servers are in use. */
static int make_dir(const struct tokenfile *f)
{
        struct stat st;
        int r = mkdir_all(f->dir, 0700);

        if (r < 0)
                return r;
        if (stat(f->dir, &st) < 0)
                return -errno;
        if (st.st_uid == geteuid() && (st.st_mode & 077) && chmod(f->dir, 0700) < 0)
                return -errno;
        return 0;
}

struct read_job {
        const struct tokenfile *f;
        bool locked;
        struct json *ret;
};

static int do_read(void *arg)
{
        struct read_job *j = arg;
        _cleanup_buf_ struct buf text = BUF_MAX(CONTENT_MAX);
        int r = file_read(AT_FDCWD, j->f->path, &text);

        if (r == -ENOENT)
                return 0;
        if (r == 0 && json_parse(text.p ? text.p : "", text.len, &j->ret, NULL) == 0 &&
            json_get_int(j->ret, "version", 0) == VERSION)
                return 0;
        json_unrefp(&j->ret);
        /* Without the lock the file may be a new one by now, so it is only passed over. */
        if (j->locked && (r == 0 || r == -ENOBUFS)) {
                _cleanup_free_ char *aside = xasprintf("%s.broken-%lld", j->f->path, (long long) wall_ms());

                if (rename(j->f->path, aside) == 0)
                        return 1;
        }
        return 0;
}

struct json *coroutine_fn tokenfile_read(const struct tokenfile *f, bool locked)
{
        struct read_job j = { .f = f, .locked = locked };

        if (offload(do_read, &j) == 1)
                log_warning("%s could not be understood and was set aside", f->path);
        return j.ret;
}

struct write_job {
        const struct tokenfile *f;
        char *text;
        struct err e;
};

static int do_write(void *arg)
{
        struct write_job *j = arg;

        return file_write_atomic(AT_FDCWD, j->f->path, j->text, strlen(j->text), 0600, &j->e);
}

int coroutine_fn tokenfile_write(const struct tokenfile *f, const struct json *content, struct err *e)
{
        struct write_job j = { .f = f, .text = json_text(content) };
        int r;

        if (!j.text)
                return err_set(e, -ENOMEM, "out of memory");
        r = offload(do_write, &j);
        free(j.text);
        return r < 0 ? err_set(e, r, "%s", err_text(&j.e)) : 0;
}

static int do_open(void *arg)
{
        const struct tokenfile *f = arg;
        int r = make_dir(f), fd;

        if (r < 0)
                return r;
        fd = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        return fd < 0 ? -errno : fd;
}

int coroutine_fn tokenfile_lock(const struct tokenfile *f, int64_t timeout_ms, struct err *e)
{
        int64_t until = loop_now() + timeout_ms;
        _cleanup_close_ int fd = offload(do_open, (void *) (uintptr_t) f);

        if (fd < 0)
                return err_sys(e, fd, "%s cannot be used", f->dir);
        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                unsigned char dice;

                if (errno != EWOULDBLOCK && errno != EINTR)
                        return err_sys(e, -errno, "%s cannot be locked", f->lock);
                if (loop_now() >= until)
                        return err_set(e, -ETIMEDOUT, "another process is using %s", f->lock);
                random_bytes(&dice, 1);
                /* Not in the kernel: a wait there would hold a thread of the pool, and could not be cancelled. */
                if (coro_sleep(POLL_FROM_MS + dice % (POLL_TO_MS - POLL_FROM_MS)) < 0)
                        return -ECANCELED;
        }
        return steal_fd(&fd);
}

uint64_t tokenfile_stamp(const struct tokenfile *f)
{
        struct stat st;
        uint64_t parts[4];

        if (stat(f->path, &st) < 0)
                return 0;
        parts[0] = (uint64_t) st.st_ino;
        parts[1] = (uint64_t) st.st_size;
        parts[2] = (uint64_t) st.st_mtime;
        parts[3] = (uint64_t) st.st_ctime;
        return hash_bytes(parts, sizeof parts) | 1;
}
