#include "boxd/pid1.h"
#include "boxd/beneath.h"
#include "boxd/conn.h"
#include "boxd/launch.h"
#include "boxd/ops.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PENDING_MAX 64
#define HEAD_LIMIT_MS 10000
#define SWEEP_EVERY_MS 20
#define ENV_BYTES_MAX (128u << 10)

extern char **environ;

/* A connection whose head has not arrived in full. */
struct pending {
        int fd; /* -1: free */
        int64_t deadline;
        unsigned char header[GUEST_HEADER_LEN];
        size_t have; /* of header and text together */
        size_t length;
        char *text;
};

static struct pending pending[PENDING_MAX];
static struct pid1 self;

static const struct {
        const char *name;
        op_fn fn; /* NULL: PID 1 itself */
} ops[] = {
        { "hello", NULL },     { "exec", NULL },    { "procs", NULL },       { "env", NULL },     { "put", op_put },
        { "get", op_get },     { "diff", op_diff }, { "prune", op_prune },   { "stat", op_stat }, { "stats", op_stats },
        { "hosts", op_hosts }, { "dial", op_dial }, { "screen", op_screen },
};

static void close_from(int first)
{
        if (syscall(SYS_close_range, first, ~0u, 0) == 0)
                return;
        for (int fd = first; fd < 4096; fd++) /* a kernel before 5.9 */
                close(fd);
}

pid_t pid1_fork(const int *keep, size_t n)
{
        int high[FD_KEEP_MAX];
        pid_t pid = fork();

        if (pid)
                return pid < 0 ? -errno : pid;
        /* Everything else (other connections, the listener, other keepers' sockets) is not the child's business. */
        for (size_t i = 0; i < n; i++)
                high[i] = fcntl(keep[i], F_DUPFD_CLOEXEC, FD_FIRST + FD_KEEP_MAX);
        for (size_t i = 0; i < n; i++)
                dup3(high[i], FD_FIRST + (int) i, O_CLOEXEC);
        close_from(FD_FIRST + (int) n);
        return 0;
}

pid_t pid1_worker(struct pid1 *p, const int *keep, size_t n)
{
        sigset_t none;
        size_t i = 0;

        while (i < WORKERS_MAX && p->workers[i])
                i++;
        if (i == WORKERS_MAX)
                return -EAGAIN;
        pid_t pid = pid1_fork(keep, n);
        if (pid > 0)
                p->workers[i] = pid;
        if (pid == 0) {
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
        }
        return pid;
}

static void hello(struct pid1 *p, int fd)
{
        char when[RFC3339_LEN];
        struct reply r;

        reply_init(&r);
        jw_kint(&r.w, "version", GUEST_VERSION);
        jw_kstr(&r.w, "boxd", PSBX_VERSION);
        jw_karr(&r.w, "ops");
        for (size_t i = 0; i < ARRAY_LEN(ops); i++)
                jw_str(&r.w, ops[i].name);
        jw_end(&r.w);
        jw_kstr(&r.w, "pid1StartedAt", rfc3339(p->started_ms, when));
        reply_send(&r, fd);
}

static void env_remove(struct pid1 *p, const char *key, size_t n)
{
        for (size_t i = 0; i < p->env_n; i++) {
                if (strncmp(p->env[i], key, n) != 0 || p->env[i][n] != '=')
                        continue;
                free(p->env[i]);
                memmove(&p->env[i], &p->env[i + 1], (p->env_n - i) * sizeof(*p->env));
                p->env_n--;
                return;
        }
}

static void env_add(struct pid1 *p, const char *key, const char *value)
{
        env_remove(p, key, strlen(key));
        p->env = xrealloc(p->env, (p->env_n + 2) * sizeof(*p->env));
        p->env[p->env_n++] = xasprintf("%s=%s", key, value);
        p->env[p->env_n] = NULL;
}

static int env_check(const char *key, struct json *value, void *arg)
{
        struct str s = json_strn(value);

        if (!*key || strchr(key, '=') || json_type(value) != JSON_STRING || (s.n && memchr(s.p, '\0', s.n)))
                return err_set(arg, -EINVAL, "`set` must map names to strings; \"%s\" does not", key);
        return 0;
}

static int env_set(const char *key, struct json *value, void *arg)
{
        env_add(arg, key, json_str(value));
        return 0;
}

static void op_env(struct pid1 *p, int fd, struct json *head, size_t n)
{
        struct json *set = json_get(head, "set"), *unset = json_get(head, "unset");
        struct err e = { 0 };
        struct reply r;
        size_t bytes = 0;

        for (size_t i = 0; i < p->env_n; i++)
                bytes += strlen(p->env[i]) + 1;
        if (set && json_each(set, env_check, &e) < 0) {
                conn_error(fd, &e);
                return;
        }
        if (bytes + n > ENV_BYTES_MAX) {
                conn_errorf(fd, -E2BIG, "the box's environment has reached %u bytes", ENV_BYTES_MAX);
                return;
        }
        for (size_t i = 0; i < json_len(unset); i++) {
                const char *key = json_str(json_at(unset, i));

                if (key)
                        env_remove(p, key, strlen(key));
        }
        if (set)
                json_each(set, env_set, p);
        reply_init(&r);
        jw_kint(&r.w, "variables", (int64_t) p->env_n);
        reply_send(&r, fd);
}

static void work(struct pid1 *p, int fd, struct json *head, op_fn fn)
{
        pid_t pid = pid1_worker(p, &fd, 1);

        if (pid == 0) {
                fn(FD_FIRST, head);
                _exit(0);
        }
        if (pid < 0)
                conn_errorf(fd, pid, "no process could be started: the box's process or memory limit is reached");
        close(fd);
}

/* Takes over fd. */
static void dispatch(struct pid1 *p, int fd, const char *text, size_t n)
{
        _cleanup_json_ struct json *head = NULL;
        struct err e = { 0 };

        if (json_parse(text, n, &head, &e) < 0 || json_type(head) != JSON_OBJECT) {
                conn_errorf(fd, -EPROTO, "the head is no JSON object: %s", err_text(&e));
                close(fd);
                return;
        }
        const char *op = json_get_str(head, "op", "");
        if (json_get_int(head, "v", 0) != GUEST_VERSION) {
                conn_errorf(fd, -EPROTO, "`v` must be %d", GUEST_VERSION);
                close(fd);
                return;
        }
        for (size_t i = 0; i < ARRAY_LEN(ops); i++)
                if (ops[i].fn && strcmp(op, ops[i].name) == 0) {
                        work(p, fd, head, ops[i].fn);
                        return;
                }
        if (strcmp(op, "exec") == 0) {
                jobs_exec(p, fd, head);
                return;
        }
        if (strcmp(op, "procs") == 0) {
                jobs_procs(p, fd, head, text, n);
                return;
        }
        if (strcmp(op, "hello") == 0)
                hello(p, fd);
        else if (strcmp(op, "env") == 0)
                op_env(p, fd, head, n);
        else
                conn_errorf(fd, -EOPNOTSUPP, "unknown operation \"%.40s\"", op);
        close(fd);
}

static void drop(struct pending *c)
{
        free(c->text);
        memset(c, 0, sizeof(*c));
        c->fd = -1;
}

static bool header_done(struct pending *c)
{
        struct guest_header h;

        if (guest_decode(c->header, &h) < 0 || h.stream != GUEST_CONTROL || h.length == 0)
                return false;
        c->length = h.length;
        c->text = try_malloc(c->length);
        return c->text;
}

/* Reads what is there of the head, never a byte more: what follows belongs to whoever serves the operation. */
static void read_pending(struct pid1 *p, struct pending *c)
{
        for (;;) {
                bool header = c->have < GUEST_HEADER_LEN;
                char *to = header ? (char *) c->header + c->have : c->text + (c->have - GUEST_HEADER_LEN);
                size_t want = header ? GUEST_HEADER_LEN - c->have : c->length - (c->have - GUEST_HEADER_LEN);
                ssize_t k = recv(c->fd, to, want, MSG_DONTWAIT);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0 && errno == EAGAIN)
                        return;
                if (k <= 0)
                        break;
                c->have += (size_t) k;
                if (c->have < GUEST_HEADER_LEN)
                        continue;
                if (c->have == GUEST_HEADER_LEN) {
                        if (header_done(c))
                                continue;
                        conn_errorf(c->fd, -EPROTO, "the first frame must be a control frame with the head");
                        break;
                }
                if (c->have == GUEST_HEADER_LEN + c->length) {
                        int fd = c->fd;

                        dispatch(p, fd, c->text, c->length);
                        drop(c);
                        return;
                }
        }
        close(c->fd);
        drop(c);
}

static void accept_all(struct pid1 *p)
{
        for (size_t i = 0; i < PENDING_MAX; i++) {
                struct pending *c = &pending[i];

                if (c->fd >= 0)
                        continue;
                int fd = accept4(p->listen, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0)
                        return;
                c->fd = fd;
                c->deadline = clock_ms() + HEAD_LIMIT_MS;
                read_pending(p, c); /* the server speaks first: mostly it has spoken already */
        }
}

static void expire(int64_t now)
{
        for (size_t i = 0; i < PENDING_MAX; i++) {
                struct pending *c = &pending[i];

                if (c->fd < 0 || c->deadline > now)
                        continue;
                conn_errorf(c->fd, -ETIMEDOUT, "no head came within %d s", HEAD_LIMIT_MS / 1000);
                close(c->fd);
                drop(c);
        }
}

static void reap(struct pid1 *p)
{
        int status;

        for (;;) {
                pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);

                if (pid < 0 && errno == EINTR)
                        continue;
                if (pid <= 0)
                        return;
                if (WIFSTOPPED(status)) { /* kill -STOP -1 in the box must not hang those who answer for it */
                        if (jobs_is_own(p, pid))
                                kill(pid, SIGCONT);
                        continue;
                }
                for (size_t i = 0; i < WORKERS_MAX; i++)
                        if (p->workers[i] == pid)
                                p->workers[i] = 0;
                screen_reaped(&p->screen, pid, status);
                struct job *j = jobs_by_keeper(p, pid);
                if (j)
                        jobs_lost(p, j);
        }
}

static void on_signal(struct pid1 *p)
{
        struct signalfd_siginfo si;

        while (read(p->sigfd, &si, sizeof(si)) == sizeof(si)) {
                /* From outside the box SIGTERM means the end; from inside (pid > 0) it means nothing. */
                if (si.ssi_signo == SIGTERM && si.ssi_pid == 0)
                        _exit(0);
        }
        reap(p);
}

static int64_t next_deadline(void)
{
        int64_t first = INT64_MAX;

        for (size_t i = 0; i < PENDING_MAX; i++)
                if (pending[i].fd >= 0 && pending[i].deadline < first)
                        first = pending[i].deadline;
        return first;
}

#define FIXED (3 + SCREEN_LISTENERS) /* polled always: signals, the listener, launches, the display's listeners */

static void step(struct pid1 *p)
{
        static struct pollfd v[FIXED + PENDING_MAX + JOB_RUNNING_MAX];
        static struct pending *who[FIXED + PENDING_MAX];
        static unsigned seqs[FIXED + PENDING_MAX + JOB_RUNNING_MAX];
        int64_t now = clock_ms(), first = next_deadline();
        int n = FIXED, timeout = -1;
        bool room = false;

        for (size_t i = 0; i < PENDING_MAX; i++) {
                room |= pending[i].fd < 0;
                if (pending[i].fd < 0)
                        continue;
                who[n] = &pending[i];
                v[n++] = (struct pollfd){ .fd = pending[i].fd, .events = POLLIN };
        }
        int jobs_from = n;
        list_for_each (it, &p->running) {
                struct job *j = list_entry(it, struct job, node);

                seqs[n] = j->seq;
                v[n++] = (struct pollfd){ .fd = j->ctl, .events = POLLIN };
        }
        v[0] = (struct pollfd){ .fd = p->sigfd, .events = POLLIN };
        v[1] = (struct pollfd){ .fd = room ? p->listen : -1, .events = POLLIN };
        v[2] = (struct pollfd){ .fd = p->launch, .events = POLLIN };
        screen_poll(&p->screen, &v[3]);
        if (first != INT64_MAX)
                timeout = first <= now ? 0 : (int) (first - now);
        if (p->leftovers && (timeout < 0 || timeout > SWEEP_EVERY_MS))
                timeout = SWEEP_EVERY_MS;
        if (poll(v, (nfds_t) n, timeout) < 0)
                return;
        for (int i = jobs_from; i < n; i++) {
                if (!v[i].revents)
                        continue;
                list_for_each_safe (it, &p->running) { /* a job may be gone by now: it is looked up, not remembered */
                        struct job *j = list_entry(it, struct job, node);

                        if (j->seq == seqs[i])
                                jobs_message(p, j);
                }
        }
        if (v[0].revents)
                on_signal(p);
        for (int i = FIXED; i < jobs_from; i++)
                if (v[i].revents)
                        read_pending(p, who[i]);
        if (v[2].revents)
                launch_accept(p);
        for (int i = 3; i < FIXED; i++)
                if (v[i].revents && screen_start(&p->screen) > 0)
                        break;
        if (v[1].revents)
                accept_all(p);
        expire(clock_ms());
        if (p->leftovers)
                jobs_sweep(p);
}

static void default_env(struct pid1 *p)
{
        static const char *const defaults[][2] = {
                { "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
                { "HOME", "/root" },
                { "USER", "root" },
                { "LOGNAME", "root" },
                { "SHELL", "/bin/bash" },
                { "LANG", "C.UTF-8" },
                { "TERM", "dumb" },
                { "DISPLAY", SCREEN_DISPLAY },
        };

        for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
                env_add(p, defaults[i][0], defaults[i][1]);
        for (char **v = environ; v && *v; v++) {
                char *eq = strchr(*v, '=');

                if (!eq || eq == *v)
                        continue;
                _cleanup_free_ char *key = xstrndup(*v, (size_t) (eq - *v));
                env_add(p, key, eq + 1);
        }
}

_Noreturn void pid1_main(int listen_fd, int ready_fd)
{
        struct pid1 *p = &self;
        sigset_t all, chosen;

        prctl(PR_SET_DUMPABLE, 0);
        umask(022);
        syscall(SYS_close_range, ready_fd >= 0 ? ready_fd + 1 : listen_fd + 1, ~0u,
                0); /* whatever else was left open */
        fcntl(listen_fd, F_SETFD, FD_CLOEXEC);
        fcntl(listen_fd, F_SETFL, O_NONBLOCK);
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        signal(SIGPIPE, SIG_IGN);
        sigemptyset(&chosen);
        sigaddset(&chosen, SIGCHLD);
        sigaddset(&chosen, SIGTERM);
        p->sigfd = signalfd(-1, &chosen, SFD_CLOEXEC | SFD_NONBLOCK);
        p->listen = listen_fd;
        p->started_ms = wall_ms();
        for (size_t i = 0; i < PENDING_MAX; i++)
                pending[i].fd = -1;
        default_env(p);
        jobs_init(p);
        screen_init(&p->screen);
        p->launch = launch_listen();
        if (ready_fd >= 0) {
                (void) !write(ready_fd, "R", 1);
                close(ready_fd);
        }
        for (;;)
                step(p);
}
