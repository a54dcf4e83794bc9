#include "boxd/beneath.h"
#include "boxd/conn.h"
#include "boxd/ops.h"
#include "boxd/tree.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define UNLIMITED ((uint64_t) 1 << 60) /* what cgroup v1 says instead of "max" is about 2^63 */

static const char *type_name(mode_t mode)
{
        return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "symlink" : "other";
}

void op_stat(int fd, struct json *head)
{
        const char *path = json_get_str(head, "path", ".");
        bool self = !*path || strcmp(path, ".") == 0;
        struct err e = { 0 };
        struct reply r;
        struct stat st;

        _cleanup_close_ int root = root_open(json_get_str(head, "root", "work"), &e);
        if (root < 0) {
                conn_error(fd, &e);
                return;
        }
        if (!self && !guest_path_ok(path, strlen(path))) {
                conn_errorf(fd, -EINVAL, "`path` must be a plain path below the folder, got \"%s\"", path);
                return;
        }
        _cleanup_close_ int at = beneath_open(root, path, O_PATH | O_NOFOLLOW, 0, BENEATH_FOLLOW);
        if (at < 0 || fstat(at, &st) < 0) {
                err_sys(&e, at < 0 ? at : -errno, "%s", path);
                conn_error(fd, &e);
                return;
        }
        reply_init(&r);
        jw_kstr(&r.w, "type", type_name(st.st_mode));
        jw_kint(&r.w, "size", st.st_size);
        jw_kint(&r.w, "mode", st.st_mode & 07777);
        jw_kint(&r.w, "mtime", st.st_mtim.tv_sec);
        reply_send(&r, fd);
}

static int64_t number_in(const char *path)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);
        uint64_t v;

        if (file_read(AT_FDCWD, path, &b) < 0 || parse_u64(str_trim(buf_str(&b), "\n"), INT64_MAX, &v) < 0 ||
            v > UNLIMITED)
                return -1; /* missing, or "max" */
        return (int64_t) v;
}

static void pair(struct jw *w, const char *key, int64_t used, int64_t limit)
{
        jw_kobj(w, key);
        jw_kint(w, "used", used);
        if (limit >= 0)
                jw_kint(w, "limit", limit);
        jw_end(w);
}

/* What can be seen from inside: whoever made the box has the cgroup's own numbers and prefers them. */
void op_stats(int fd, struct json *head)
{
        struct proc_table t = { 0 };
        struct statvfs v = { 0 };
        uint64_t cpu = 0, rss = 0;
        struct reply r;

        (void) head;
        proc_scan(&t);
        for (size_t i = 0; i < t.n; i++) {
                cpu += t.v[i].cpu_ms;
                rss += t.v[i].rss;
        }
        int64_t used = number_in("/sys/fs/cgroup/memory.current"), limit = number_in("/sys/fs/cgroup/memory.max");
        if (used < 0) {
                used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
                limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        }
        statvfs("/", &v);
        reply_init(&r);
        jw_kint(&r.w, "cpuUsec", (int64_t) cpu * 1000);
        pair(&r.w, "memory", used >= 0 ? used : (int64_t) rss, limit);
        pair(&r.w, "pids", (int64_t) t.n, number_in("/sys/fs/cgroup/pids.max"));
        pair(&r.w, "disk", (int64_t) ((v.f_blocks - v.f_bfree) * v.f_frsize), (int64_t) (v.f_blocks * v.f_frsize));
        reply_send(&r, fd);
        proc_table_done(&t);
}
