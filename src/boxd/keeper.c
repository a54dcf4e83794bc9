#include "boxd/keeper.h"
#include "boxd/output.h"
#include "boxd/tree.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_LIMIT_MS 5000
#define BYE_LIMIT_MS 5000

static bool is_helper(pid_t pid, void *arg)
{
        struct keeper *k = arg;

        for (size_t i = 0; i < HELPERS_MAX; i++)
                if (k->helpers[i] == pid)
                        return true;
        return false;
}

static void leader_exited(struct keeper *k, int status)
{
        k->leader_done = true;
        k->status = status;
        k->leader_ended_us = clock_us();
        k->leader_ended_wall = wall_ms();
        k->slot->status = status;
        k->slot->leader_ended_ms = k->leader_ended_wall;
        k->slot->leader_done = 1;
        for (int i = 0; i < 2; i++) {
                int n = 0;

                if (k->out[i].fd >= 0 && ioctl(k->out[i].fd, FIONREAD, &n) == 0)
                        k->out[i].drain = n;
        }
}

/* 128+9 from a shell says that its child died so; anything else that dies so is seen here itself. */
static bool died_by_kill(int status)
{
        return (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
               (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
}

void keeper_reap(void *arg)
{
        struct keeper *k = arg;
        int status;

        for (;;) {
                pid_t pid = waitpid(-1, &status, WNOHANG);

                if (pid < 0 && errno == EINTR)
                        continue;
                if (pid < 0)
                        k->all_gone = true;
                if (pid <= 0)
                        return;
                bool helper = false;
                for (size_t i = 0; i < HELPERS_MAX; i++)
                        if (k->helpers[i] == pid) {
                                k->helpers[i] = 0;
                                helper = true;
                        }
                if (helper)
                        continue;
                if (!k->killing && died_by_kill(status))
                        k->flags |= JOB_SIGKILLED;
                if (pid == k->leader)
                        leader_exited(k, status);
        }
}

static struct tree tree_of(struct keeper *k)
{
        return (struct tree){ .root = getpid(), .outside = is_helper, .reap = keeper_reap, .arg = k };
}

size_t keeper_signal(struct keeper *k, int sig)
{
        struct tree t = tree_of(k);

        return tree_signal(&t, sig);
}

void keeper_kill(struct keeper *k)
{
        struct tree t = tree_of(k);

        k->killing = true;
        k->stop_at = 0;
        k->deadline = INT64_MAX;
        tree_kill(&t, KILL_LIMIT_MS);
        keeper_reap(k);
}

void keeper_view(const struct keeper *k, struct job_view *v)
{
        *v = (struct job_view){
                .id = k->args.id,
                .cmd = k->args.cmd,
                .cwd = k->args.cwd,
                .note = k->args.note,
                .background = k->args.background,
                .running = !k->all_gone,
                .leader_done = k->leader_done,
                .pid = k->leader,
                .status = k->status,
                .flags = k->flags,
                .started_ms = k->started_ms,
                .ended_ms = k->leader_ended_wall,
        };
}

static void take_message(struct keeper *k, bool *bye)
{
        static char data[MSG_HEAD_MAX + 1];
        union {
                char raw[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } c;
        struct iovec iov = { data, sizeof(data) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.raw, .msg_controllen = sizeof(c.raw) };
        struct json *head = NULL;
        int fd = -1;

        ssize_t n = recvmsg(k->ctl, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0 || data[0] == MSG_BYE) { /* without PID 1 there is nothing left of us anyway */
                *bye = true;
                return;
        }
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        if (h && h->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(h), sizeof(fd));
        if (fd < 0)
                return;
        if (data[0] != MSG_CONNECTION || json_parse(data + 1, (size_t) n - 1, &head, NULL) < 0) {
                close(fd);
                return;
        }
        wait_message(k, head, fd);
}

static void send_end(struct keeper *k, bool never)
{
        struct job_end end = { .type = MSG_ENDED, .status = k->status, .ended_ms = k->leader_ended_wall };
        union {
                char raw[CMSG_SPACE(2 * sizeof(int))];
                struct cmsghdr align;
        } c = { 0 };
        struct iovec iov = { &end, sizeof(end) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        int fds[2], n = 0, dir = -1;
        size_t used = 0;

        end.flags = k->flags | (never ? JOB_NEVER : 0);
        if (k->out[0].spool.total + k->out[1].spool.total > INLINE_MAX)
                dir = jobs_dir();
        for (int i = 0; i < 2; i++) {
                char name[32];
                int fd;

                closep(&k->out[i].fd); /* somebody else's process may hold the other end: not our job's output any more
                                        */
                k->out[i].fd = -1;
                jobs_file_name(k->seq, i, name);
                end.store[i] = (unsigned char) spool_finish(&k->out[i].spool, dir, name, &end.kept[i],
                                                            end.inline_bytes + used, INLINE_MAX - used, &fd);
                if (end.store[i] == STORE_INLINE) {
                        end.inline_len[i] = (unsigned) end.kept[i].len;
                        used += end.inline_len[i];
                }
                if (fd >= 0)
                        fds[n++] = fd;
        }
        closep(&dir);
        k->ended = true;
        if (n) {
                m.msg_control = c.raw;
                m.msg_controllen = CMSG_SPACE((size_t) n * sizeof(int));
                struct cmsghdr *h = CMSG_FIRSTHDR(&m);
                h->cmsg_level = SOL_SOCKET;
                h->cmsg_type = SCM_RIGHTS;
                h->cmsg_len = CMSG_LEN((size_t) n * sizeof(int));
                memcpy(CMSG_DATA(h), fds, (size_t) n * sizeof(int));
        }
        sendmsg(k->ctl, &m, MSG_NOSIGNAL);
}

static void update(struct keeper *k)
{
        int64_t now = clock_ms();

        if (!k->leader_done && now >= k->deadline) {
                k->flags |= JOB_TIMED_OUT;
                keeper_kill(k);
        }
        if (k->stop_at && (now >= k->stop_at || k->all_gone))
                keeper_kill(k);
        if (k->leader_done && !k->over && io_drained(k, clock_us())) {
                k->over = true;
                k->deadline = INT64_MAX;
        }
        /* PID 1 hears of the end before anybody else does: whoever asks it next gets the same answer. */
        if (k->over && k->all_gone && !k->ended)
                send_end(k, false);
        if (k->over && k->conn >= 0 && !k->result_queued)
                io_queue_result(k);
        wait_check(k);
}

static int poll_timeout(const struct keeper *k)
{
        int64_t now = clock_ms(), first = k->leader_done ? INT64_MAX : k->deadline;
        int64_t waiters = wait_timeout(k, now);

        if (waiters < first)
                first = waiters;
        if (k->stop_at && k->stop_at < first)
                first = k->stop_at;
        if (k->leader_done && !k->over) {
                int64_t over = k->leader_ended_us / 1000 + OVER_GRACE_MS + 1;

                first = over < first ? over : first;
        }
        if (first == INT64_MAX)
                return -1;
        if (first <= now)
                return 0;
        return first - now > 3600000 ? 3600000 : (int) (first - now);
}

struct polled {
        struct pollfd v[8 + WAITERS_MAX];
        struct waiter *waiter[8 + WAITERS_MAX];
        int n;
        int sig, ctl, conn, in, out[2];
};

static int poll_add(struct polled *p, int fd, short events)
{
        p->v[p->n] = (struct pollfd){ .fd = fd, .events = events };
        p->waiter[p->n] = NULL;
        return p->n++;
}

static void poll_build(struct keeper *k, struct polled *p)
{
        bool room = k->in_off >= k->in_len; /* stdin is read one piece ahead, never more */
        bool want_stdin = room && !k->conn_closed_read;
        struct waiter *feeder = wait_feeder(k);

        p->n = 0;
        p->sig = poll_add(p, k->sigfd, POLLIN);
        p->ctl = poll_add(p, k->ctl, POLLIN);
        p->conn = k->conn < 0 ? -1
                              : poll_add(p, k->conn, (short) ((k->pend.len ? POLLOUT : 0) | (want_stdin ? POLLIN : 0)));
        p->in = k->in >= 0 && !room ? poll_add(p, k->in, POLLOUT) : -1;
        for (int i = 0; i < 2; i++) /* one frame at a time on its way: the kernel's back-pressure reaches the job */
                p->out[i] =
                        k->out[i].fd >= 0 && !(k->conn >= 0 && k->pend.len) ? poll_add(p, k->out[i].fd, POLLIN) : -1;
        list_for_each (it, &k->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);
                int i = poll_add(p, w->fd, w == feeder && room && k->conn < 0 ? POLLIN : 0);

                p->waiter[i] = w;
        }
}

static void serve_waiters(struct keeper *k, struct polled *p)
{
        for (int i = 0; i < p->n; i++) {
                struct waiter *w = p->waiter[i];
                bool gone = false;

                if (!w || !p->v[i].revents)
                        continue;
                if (w->kind == WAITER_INPUT && (p->v[i].revents & POLLIN))
                        io_read_feed(k, &w->feed, w->fd, &gone);
                if (gone || (p->v[i].revents & (POLLHUP | POLLERR) && !(p->v[i].revents & POLLIN)))
                        waiter_free(k, w);
        }
}

static void step(struct keeper *k, bool *bye)
{
        static struct polled p;

        poll_build(k, &p);
        if (poll(p.v, (nfds_t) p.n, poll_timeout(k)) < 0)
                return;
        if (p.v[p.sig].revents) {
                struct signalfd_siginfo si;

                while (read(k->sigfd, &si, sizeof(si)) == sizeof(si)) {
                }
                keeper_reap(k);
        }
        serve_waiters(k, &p);
        if (p.v[p.ctl].revents)
                take_message(k, bye);
        if (p.conn >= 0) {
                short got = p.v[p.conn].revents;

                if (got & POLLIN)
                        io_read_conn(k);
                if (k->conn >= 0 && got & (POLLHUP | POLLERR))
                        io_detach(k);
                if (got & POLLOUT)
                        io_flush(k);
        }
        if (p.in >= 0 && p.v[p.in].revents)
                io_write_stdin(k);
        for (int i = 0; i < 2; i++)
                if (p.out[i] >= 0 && p.v[p.out[i]].revents && !(k->conn >= 0 && k->pend.len))
                        io_read_output(k, i);
}

/* PID 1 may have passed us a connection while we were ending: those are served until it says good-bye. */
static void say_goodbye(struct keeper *k)
{
        int64_t limit = clock_ms() + BYE_LIMIT_MS;
        bool bye = false;

        while (!bye && clock_ms() < limit) {
                struct pollfd p = { .fd = k->ctl, .events = POLLIN };

                if (poll(&p, 1, 100) > 0)
                        take_message(k, &bye);
                wait_check(k);
        }
}

static void setup(struct keeper *k, const struct keeper_start *s)
{
        struct sockaddr_storage a = { 0 };
        socklen_t n = sizeof(a);
        sigset_t chld;

        memset(k, 0, sizeof(*k));
        k->slot = s->slot;
        k->seq = s->seq;
        k->conn = s->conn;
        k->ctl = s->ctl;
        k->head = s->head;
        k->in = -1;
        k->deadline = INT64_MAX;
        k->started_ms = wall_ms();
        k->started_us = clock_us();
        k->pend = BUF_MAX(GUEST_CONTROL_MAX);
        list_init(&k->waiters);
        for (int i = 0; i < 2; i++) {
                k->out[i].fd = -1;
                spool_init(&k->out[i].spool);
        }
        k->feed.closes = true;
        k->conn_unix = getsockname(k->conn, (struct sockaddr *) &a, &n) == 0 && a.ss_family == AF_UNIX;
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        k->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void announce(struct keeper *k)
{
        struct reply r;

        reply_init(&r);
        if (k->args.background)
                jw_kstr(&r.w, "bgId", k->args.id);
        else
                jw_kstr(&r.w, "event", "started");
        jw_kint(&r.w, "pid", k->leader);
        if (!k->args.background) {
                reply_event(&r, k->conn);
                return;
        }
        reply_send(&r, k->conn);
        io_detach(k);
}

_Noreturn void keeper_run(const struct keeper_start *s)
{
        static struct keeper keeper;
        struct keeper *k = &keeper;
        struct err e = { 0 };
        bool bye = false;

        setup(k, s);
        int r = exec_args_parse(k->head, &k->args, &e);
        if (r >= 0)
                r = keeper_spawn(k, s->env, &e);
        if (r < 0) {
                conn_error(k->conn, &e);
                shutdown(k->conn, SHUT_RDWR);
                send_end(k, true);
                say_goodbye(k);
                _exit(0);
        }
        k->slot->leader = k->leader;
        if (k->args.timeout_ms)
                k->deadline = clock_ms() + k->args.timeout_ms;
        announce(k);
        while (!k->ended || k->conn >= 0 || k->n_waiters) {
                step(k, &bye);
                if (bye && !k->ended) /* PID 1 is gone, and so are we in a moment */
                        break;
                update(k);
        }
        if (!bye)
                say_goodbye(k);
        _exit(0);
}
