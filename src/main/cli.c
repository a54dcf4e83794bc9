#include "cli.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DYNAMIC_UID_MIN 61184u
#define DYNAMIC_UID_MAX 65519u

int complain(const char *command, int code, const char *fmt, ...)
{
        va_list ap;

        (void) fprintf(stderr, "parallelsandbox %s: ", command);
        va_start(ap, fmt);
        (void) vfprintf(stderr, fmt, ap);
        va_end(ap);
        (void) fputc('\n', stderr);
        return code;
}

char *default_state_dir(void)
{
        const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

        if (geteuid() == 0)
                return xstrdup("/var/lib/parallelsandbox");
        if (data && data[0] == '/')
                return xasprintf("%s/parallelsandbox", data);
        return xasprintf("%s/.local/share/parallelsandbox", home ? home : "");
}

int sibling_program(const char *name, char **ret, struct err *e)
{
        char self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

        if (n < 0)
                return err_sys(e, -errno, "/proc/self/exe");
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash)
                *slash = '\0';
        _cleanup_free_ char *path = xasprintf("%s/%s", self, name);
        if (access(path, X_OK) < 0)
                return err_set(e, -ENOENT, "%s is missing: build it with make", path);
        *ret = steal_ptr(path);
        return 0;
}

int parse_listen(const char *s, char **ret_host, unsigned *ret_port, struct err *e)
{
        const char *colon = strrchr(s, ':');
        uint64_t port = 0;

        if (!colon || parse_u64(str_of(colon + 1), 65535, &port) < 0)
                return err_set(e, -EINVAL, "an address is HOST:PORT, such as %s, got \"%.100s\"", DEFAULT_LISTEN, s);
        struct str host = str_trim(str_n(s, (size_t) (colon - s)), "[]");
        *ret_host = host.n ? xstrndup(host.p, host.n) : xstrdup("127.0.0.1");
        *ret_port = (unsigned) port;
        return 0;
}

uid_t state_uid(const char *dir)
{
        char real[PATH_MAX];
        struct stat st;
        uint32_t h = 2166136261u;

        if (geteuid() != 0)
                return geteuid();
        if (stat(dir, &st) == 0 && st.st_uid != 0)
                return st.st_uid;
        const char *p = realpath(dir, real) ? real : dir;
        for (; *p; p++)
                h = (h ^ (unsigned char) *p) * 16777619u;
        return DYNAMIC_UID_MIN + h % (DYNAMIC_UID_MAX - DYNAMIC_UID_MIN + 1);
}

int state_prepare(const char *dir, struct err *e)
{
        int r = mkdir_all(dir, 0755);

        if (r < 0)
                return err_sys(e, r, "the state folder %s", dir);
        if (geteuid() != 0)
                return 0;
        uid_t uid = state_uid(dir);
        /* Others may pass through to what they own (boxd's socket folder), and see nothing. */
        if (chown(dir, uid, uid) < 0 || chmod(dir, 0711) < 0)
                return err_sys(e, -errno, "the state folder %s", dir);
        _cleanup_free_ char *run = xasprintf("%s/run", dir);
        if (mkdir(run, 0711) < 0 && errno != EEXIST)
                return err_sys(e, -errno, "%s", run);
        return 0;
}

static int reach_state(const char *dir, struct err *e)
{
        char real[PATH_MAX];

        if (!realpath(dir, real))
                return err_sys(e, -errno, "the state folder %s", dir);
        /* A parent of mode 0700 must not keep the unprivileged server from its own files. */
        if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount("state", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=16k") == 0 &&
            mkdir("/mnt/state", 0755) == 0 && mount(real, "/mnt/state", NULL, MS_BIND, NULL) == 0)
                (void) snprintf(real, sizeof real, "/mnt/state");
        return chdir(real) < 0 ? err_sys(e, -errno, "the state folder %s", dir) : 0;
}

int state_enter(const char *dir, struct err *e)
{
        uid_t uid = state_uid(dir);

        if (geteuid() != 0)
                return chdir(dir) < 0 ? err_sys(e, -errno, "the state folder %s", dir) : 0;
        int r = reach_state(dir, e);
        if (r < 0)
                return r;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
            setresuid(uid, uid, uid) < 0)
                return err_sys(e, -errno, "giving up privileges");
        if (setuid(0) == 0)
                return err_set(e, -EPERM, "privileges could not be given up");
        (void) umask(077);
        return 0;
}

int server_info_read(const char *dir, struct server_info *ret, struct err *e)
{
        _cleanup_free_ char *lock = xasprintf("%s/lock", dir), *info = xasprintf("%s/server.json", dir);
        _cleanup_close_ int fd = open(lock, O_RDWR | O_CLOEXEC);
        _cleanup_buf_ struct buf text = BUF_MAX(4096);
        _cleanup_json_ struct json *j = NULL;

        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
                return err_set(e, -ENOENT, "no server runs in %s", dir);
        int r = file_read(AT_FDCWD, info, &text);
        if (r == 0)
                r = json_parse(text.p, text.len, &j, e);
        if (r < 0)
                return err_set(e, -EAGAIN, "a server in %s is starting", dir);
        (void) snprintf(ret->url, sizeof ret->url, "%s", json_get_str(j, "listening", ""));
        ret->pid = (pid_t) json_get_int(j, "pid", 0);
        return 0;
}
