#include "boxhost/sys.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

int sys_open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
        struct open_how how = {
                .flags = (uint64_t) (flags | O_CLOEXEC),
                .mode = (flags & O_CREAT) ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        int fd = (int) syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

        return fd < 0 ? -errno : fd;
}

int sys_write(int dirfd, const char *path, const char *text, struct err *e)
{
        _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        size_t n = strlen(text);

        if (fd < 0)
                return err_sys(e, -errno, "cannot open %s", path);
        if (write(fd, text, n) != (ssize_t) n)
                return err_sys(e, -errno, "cannot write \"%s\" to %s", text, path);
        return 0;
}

ssize_t sys_read(int dirfd, const char *path, char *out, size_t n)
{
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
        size_t len = 0;

        if (fd < 0)
                return -errno;
        while (len + 1 < n) {
                ssize_t r = read(fd, out + len, n - 1 - len);
                if (r < 0 && errno == EINTR)
                        continue;
                if (r < 0)
                        return -errno;
                if (r == 0)
                        break;
                len += (size_t) r;
        }
        out[len] = '\0';
        return (ssize_t) len;
}

int sys_read_u64(int dirfd, const char *path, uint64_t *ret)
{
        char text[64];
        ssize_t n = sys_read(dirfd, path, text, sizeof(text));
        struct str s;

        if (n < 0)
                return (int) n;
        s = str_trim(str_n(text, (size_t) n), " \n");
        if (str_eq(s, STR("max"))) {
                *ret = UINT64_MAX;
                return 0;
        }
        return parse_u64(s, UINT64_MAX, ret);
}

int sys_find_key(const char *text, const char *key, uint64_t *ret)
{
        size_t n = strlen(key);

        for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
                if (strncmp(p, key, n) != 0 || p[n] != ' ')
                        continue;
                return parse_u64(str_n(p + n + 1, strcspn(p + n + 1, "\n")), UINT64_MAX, ret);
        }
        return -ENOENT;
}

int sys_send_fds(int sock, const void *p, size_t n, const int *fds, size_t count)
{
        union {
                struct cmsghdr align;
                char space[CMSG_SPACE(sizeof(int) * SYS_FDS_MAX)];
        } control = { 0 };
        struct iovec iov = { .iov_base = (void *) (uintptr_t) p, .iov_len = n };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

        if (count > SYS_FDS_MAX)
                return -EINVAL;
        if (count > 0) {
                struct cmsghdr *c;
                msg.msg_control = control.space;
                msg.msg_controllen = CMSG_SPACE(sizeof(int) * count);
                c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * count);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
        }
        return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t sys_recv_fds(int sock, void *p, size_t n, int *fds, size_t max, size_t *ret_count)
{
        union {
                struct cmsghdr align;
                char space[CMSG_SPACE(sizeof(int) * SYS_FDS_MAX)];
        } control;
        struct iovec iov = { .iov_base = p, .iov_len = n };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)
        };
        ssize_t r;

        do
                r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return -errno;
        *ret_count = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
                size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                int got[SYS_FDS_MAX];
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || count > SYS_FDS_MAX)
                        continue;
                memcpy(got, CMSG_DATA(c), count * sizeof(int));
                for (size_t i = 0; i < count; i++) {
                        if (*ret_count < max)
                                fds[(*ret_count)++] = got[i];
                        else
                                close(got[i]);
                }
        }
        return r;
}

int sys_start_time(pid_t pid, uint64_t *ret)
{
        char path[64], text[1024];
        const char *p;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        if (sys_read(AT_FDCWD, path, text, sizeof(text)) < 0)
                return -ESRCH;
        p = strrchr(text, ')'); /* the name may hold anything, also ')' */
        if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
                return -ESRCH;
        p++;
        for (int field = 3; field < 22 && p; field++)
                p = strchr(p + 1, ' ');
        if (!p)
                return -ESRCH;
        return parse_u64(str_n(p + 1, strcspn(p + 1, " ")), UINT64_MAX, ret);
}

const char *sys_program(const char *name)
{
        static const char *const folders[] = { "/usr/sbin", "/usr/bin",        "/sbin",
                                               "/bin",      "/usr/local/sbin", "/usr/local/bin" };
        static char path[128];

        for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
                snprintf(path, sizeof(path), "%s/%s", folders[i], name);
                if (access(path, X_OK) == 0)
                        return path;
        }
        return NULL;
}

void sys_reset_signals(void)
{
        sigset_t none;

        for (int s = 1; s < NSIG; s++)
                (void) signal(s, SIG_DFL);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static void run_child(const char *program, const char *const argv[], int in, int out, int err)
        __attribute__((noreturn));
static void run_child(const char *program, const char *const argv[], int in, int out, int err)
{
        static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL };

        if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
                _exit(126);
        (void) close_range(3, ~0U, 0);
        sys_reset_signals();
        execve(program, (char *const *) (uintptr_t) argv, (char *const *) (uintptr_t) env);
        _exit(127);
}

/* Reads what the helper says until it ends or the time is over; keeps the first bytes. */
static int run_listen(int fd, char *text, size_t n, int64_t deadline)
{
        size_t len = 0;

        for (;;) {
                char drop[512];
                struct pollfd p = { .fd = fd, .events = POLLIN };
                int64_t left = deadline - clock_ms();
                ssize_t r;
                if (left <= 0 || poll(&p, 1, (int) left) == 0)
                        return -ETIMEDOUT;
                r = read(fd, drop, sizeof(drop));
                if (r == 0)
                        break;
                if (r > 0 && len + 1 < n) {
                        size_t take = min_size((size_t) r, n - 1 - len);
                        memcpy(text + len, drop, take);
                        len += take;
                }
        }
        text[len] = '\0';
        return 0;
}

static int pipe_text(const char *text, int *ret)
{
        int fd = memfd_create("text", MFD_CLOEXEC);

        if (fd < 0)
                return -errno;
        if (text && (fd_write_all(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)) {
                close(fd);
                return -EIO;
        }
        *ret = fd;
        return 0;
}

/* What the helper writes to stdout goes to the descriptor out. */
static int run_to(const char *const argv[], const char *text, int out, unsigned timeout_ms, struct err *e)
{
        _cleanup_close_ int in = -1, from = -1, to = -1;
        const char *program = sys_program(argv[0]);
        char said[ERR_MSG_MAX / 2] = "";
        int p[2], status = 0, r;
        pid_t pid;

        if (!program)
                return err_set(e, -ENOENT, "the program %s is not installed", argv[0]);
        r = pipe_text(text, &in);
        if (r < 0 || pipe2(p, O_CLOEXEC) < 0)
                return err_sys(e, r < 0 ? r : -errno, "cannot prepare to run %s", argv[0]);
        from = p[0];
        to = p[1];
        pid = fork();
        if (pid < 0)
                return err_sys(e, -errno, "cannot fork for %s", argv[0]);
        if (pid == 0)
                run_child(program, argv, in, out, to);
        close(steal_fd(&to));
        r = run_listen(from, said, sizeof(said), clock_ms() + timeout_ms);
        if (r < 0)
                kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (r < 0)
                return err_sys(e, r, "%s did not end", argv[0]);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        said[strcspn(said, "\n")] = '\0';
        return err_set(e, -EIO, "%s failed (%d): %s", argv[0], status, said);
}

int sys_run(const char *const argv[], const char *text, unsigned timeout_ms, struct err *e)
{
        _cleanup_close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        return null < 0 ? err_sys(e, -errno, "cannot open /dev/null") : run_to(argv, text, null, timeout_ms, e);
}

int sys_capture(const char *const argv[], struct buf *out, unsigned timeout_ms, struct err *e)
{
        _cleanup_close_ int file = memfd_create("output", MFD_CLOEXEC);
        ssize_t n = 1;
        off_t at = 0;
        int r;

        if (file < 0)
                return err_sys(e, -errno, "cannot prepare to run %s", argv[0]);
        r = run_to(argv, NULL, file, timeout_ms, e);
        while (r == 0 && n > 0) {
                char piece[4096];
                n = pread(file, piece, sizeof(piece), at);
                if (n > 0) {
                        at += n;
                        r = buf_add(out, piece, (size_t) n);
                }
        }
        return n < 0 ? err_sys(e, -errno, "cannot read what %s said", argv[0]) : r;
}
