#include "boxd/beneath.h"
#include "boxd/conn.h"
#include "boxd/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PIECE (64u << 10)
#define FAILED_MAX 100
#define NAME_ROOM (8u << 10) /* one more name, every byte of it escaped */
#define SILENCE_SECONDS 300

struct prune {
        int dest;
        struct dircache dirs;
        uint64_t pruned, n_failed;
        struct buf failed;
        struct jw w;
};

static void fail(struct prune *p, const char *path, const char *why)
{
        if (p->n_failed++ >= FAILED_MAX || p->failed.len > p->failed.max - NAME_ROOM)
                return;
        jw_obj(&p->w);
        jw_kstrn(&p->w, "path", str_n(path, strnlen(path, 512)));
        jw_kstr(&p->w, "why", why);
        jw_end(&p->w);
}

/* Removes folders that became empty, from the innermost outwards; dest itself stays. */
static void remove_empty(struct prune *p, const char *path, size_t dir_len)
{
        char copy[GUEST_PATH_MAX + 1];

        memcpy(copy, path, dir_len);
        while (dir_len) {
                size_t parent_len;

                copy[dir_len] = '\0';
                const char *name = path_split(copy, dir_len, &parent_len);
                int parent = dircache_get(&p->dirs, copy, parent_len);
                if (parent < 0 || unlinkat(parent, name, AT_REMOVEDIR) < 0)
                        return;
                dir_len = parent_len;
        }
}

static void prune_one(struct prune *p, const char *path, size_t n)
{
        size_t dir_len;

        if (n > GUEST_PATH_MAX || !guest_path_ok(path, n)) {
                fail(p, path, "it is no plain path below the destination");
                return;
        }
        const char *name = path_split(path, n, &dir_len);
        int dir = dircache_get(&p->dirs, path, dir_len);
        if (dir >= 0 && unlinkat(dir, name, 0) == 0) {
                p->pruned++;
                remove_empty(p, path, dir_len);
                return;
        }
        int r = dir < 0 ? dir : -errno;
        if (r == -ENOENT)
                return;
        fail(p, path, r == -EISDIR ? "it is a folder" : strerrordesc_np(-r));
}

static int receive(struct prune *p, struct conn *c, struct err *e)
{
        char in[GUEST_PATH_MAX * 2];
        size_t have = 0;

        for (;;) {
                long n = conn_data(c, in + have, sizeof(in) - have);
                size_t at = 0;

                if (n < 0)
                        return err_sys(e, (int) n, "receiving the paths");
                if (n == 0)
                        return have ? err_set(e, -EPROTO, "the list of paths is cut off") : 0;
                have += (size_t) n;
                for (const char *end; (end = memchr(in + at, '\0', have - at));) {
                        size_t len = (size_t) (end - (in + at));

                        prune_one(p, in + at, len);
                        at += len + 1;
                }
                memmove(in, in + at, have - at);
                have -= at;
                if (have == sizeof(in))
                        return err_set(e, -EPROTO, "a path is longer than %u bytes", GUEST_PATH_MAX);
        }
}

void op_prune(int fd, struct json *head)
{
        static struct prune prune;
        struct prune *p = &prune;
        struct conn c = { .fd = fd, .want = GUEST_DATA };
        struct timeval silence = { .tv_sec = SILENCE_SECONDS };
        struct err e = { 0 };
        struct reply r;

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
        p->failed = BUF_MAX(128u << 10);
        jw_init(&p->w, &p->failed);
        jw_arr(&p->w);
        p->dest = dest_open(json_get_str(head, "dest", ""), false, &e);
        int n = p->dest;
        if (n >= 0) {
                dircache_init(&p->dirs, p->dest);
                n = receive(p, &c, &e);
        }
        if (n < 0) {
                conn_error(fd, &e);
                if (n != -ECONNRESET)
                        conn_drain(&c);
                return;
        }
        jw_end_all(&p->w);
        reply_init(&r);
        jw_kint(&r.w, "pruned", (int64_t) p->pruned);
        jw_kint(&r.w, "failedCount", (int64_t) p->n_failed);
        jw_key(&r.w, "failed");
        jw_raw(&r.w, buf_str(&p->failed));
        reply_send(&r, fd);
}
