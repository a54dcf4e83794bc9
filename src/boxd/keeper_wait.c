#include "boxd/keeper.h"
#include "boxd/launch.h"
#include "boxd/output.h"
#include "boxd/ports.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PORT_EVERY_MS 40
#define SEND_SECONDS 10
#define STOP_GRACE_MS 500
#define STOP_GRACE_MAX_MS 10000

void waiter_free(struct keeper *k, struct waiter *w)
{
        list_remove(&w->node);
        k->n_waiters--;
        close(w->fd);
        json_unref(w->head);
        free(w->carry[0]);
        free(w->carry[1]);
        free(w);
}

static struct kept_source source_of(struct keeper *k, int stream)
{
        struct kept_source s = { .read = spool_read, .arg = &k->out[stream].spool };

        spool_kept(&k->out[stream].spool, &s.kept);
        return s;
}

static void answer_wait(struct keeper *k, struct waiter *w, bool ready)
{
        struct output_limit limit;
        struct output_cut cut[2];
        struct kept_source s[2];
        struct job_view v;
        struct reply r;

        output_limit_parse(w->head, &limit);
        for (int i = 0; i < 2; i++) {
                s[i] = source_of(k, i);
                if (output_send(w->fd, i ? GUEST_STDERR : GUEST_STDOUT, &s[i], &limit, &cut[i]) < 0)
                        return;
        }
        keeper_view(k, &v);
        reply_init(&r);
        job_fields(&r.w, &v);
        jw_kbool(&r.w, "over", k->over);
        jw_kbool(&r.w, "ready", ready);
        output_fields(&r.w, "stdout", &s[0].kept, &cut[0]);
        output_fields(&r.w, "stderr", &s[1].kept, &cut[1]);
        reply_send(&r, w->fd);
}

static void answer_stop(struct keeper *k, struct waiter *w)
{
        size_t left = k->all_gone ? 0 : keeper_signal(k, 0);
        struct job_view v;
        struct reply r;

        if (left) {
                conn_errorf(w->fd, -EBUSY, "%zu processes of the job could not be ended: the kernel holds them", left);
                return;
        }
        keeper_view(k, &v);
        v.running = false;
        reply_init(&r);
        job_fields(&r.w, &v);
        reply_send(&r, w->fd);
}

static void answer_input(struct waiter *w)
{
        struct reply r;

        reply_init(&r);
        jw_kint(&r.w, "bytes", (int64_t) w->feed.taken);
        reply_send(&r, w->fd);
}

/* True when the waiter was answered. */
static bool check_one(struct keeper *k, struct waiter *w, int64_t now)
{
        bool until = w->port || w->log;

        switch (w->kind) {
        case WAITER_STOP:
                if (!k->ended && (k->all_gone || k->stop_at || !k->killing))
                        return false;
                answer_stop(k, w);
                return true;
        case WAITER_INPUT:
                if (!(w->feed.ended && (k->in_off >= k->in_len)) && !k->over)
                        return false;
                answer_input(w);
                return true;
        default:
                break;
        }
        bool ready = w->log_seen || (w->port && port_listens(w->port));
        if (!ready && !(k->over && (!until || k->ended)) && now < w->deadline)
                return false;
        answer_wait(k, w, ready);
        return true;
}

void wait_check(struct keeper *k)
{
        int64_t now = clock_ms();

        list_for_each_safe (it, &k->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);

                if (check_one(k, w, now))
                        waiter_free(k, w);
        }
}

int64_t wait_timeout(const struct keeper *k, int64_t now_ms)
{
        int64_t first = INT64_MAX;

        list_for_each (it, &k->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);
                int64_t at = w->port && now_ms + PORT_EVERY_MS < w->deadline ? now_ms + PORT_EVERY_MS : w->deadline;

                if (at < first)
                        first = at;
        }
        return first;
}

struct waiter *wait_feeder(const struct keeper *k)
{
        list_for_each (it, &k->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);

                if (w->kind == WAITER_INPUT && !w->feed.ended)
                        return w;
        }
        return NULL;
}

/* Looks for the text in the new bytes and across the seam to the old ones; keeps the last bytes for the next seam. */
static void look_for_log(struct waiter *w, int stream, const char *p, size_t n)
{
        size_t need = strlen(w->log), keep = need - 1, have = w->carry_len[stream];
        char seam[2 * 1024];

        size_t front = min_size(n, keep);
        memcpy(seam, w->carry[stream], have);
        memcpy(seam + have, p, front);
        if (memmem(seam, have + front, w->log, need) || memmem(p, n, w->log, need))
                w->log_seen = true;
        if (n >= keep) {
                memcpy(w->carry[stream], p + n - keep, keep);
                w->carry_len[stream] = keep;
                return;
        }
        size_t total = have + n, cut = total > keep ? total - keep : 0;
        memmove(w->carry[stream], seam + cut, total - cut);
        w->carry_len[stream] = total - cut;
}

void wait_output(struct keeper *k, int stream, const char *p, size_t n)
{
        list_for_each (it, &k->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);

                if (w->log && !w->log_seen)
                        look_for_log(w, stream, p, n);
        }
}

/* Answers with an error; false, so that the caller forgets the waiter. */
#define refuse(w, code, ...) (conn_errorf((w)->fd, code, __VA_ARGS__), false)

static bool start_log(struct keeper *k, struct waiter *w)
{
        size_t n = strlen(w->log);

        if (n == 0 || n > 1024)
                return refuse(w, -EINVAL, "`until.log` must be 1 to 1024 bytes, got %zu", n);
        for (int i = 0; i < 2; i++) {
                struct kept_source s = source_of(k, i);

                if (output_contains(&s, str_of(w->log)))
                        w->log_seen = true;
                w->carry[i] = xmalloc(n);
                size_t tail = s.kept.len < n - 1 ? (size_t) s.kept.len : n - 1;
                long got = tail ? s.read(s.arg, s.kept.len - tail, w->carry[i], tail) : 0;
                w->carry_len[i] = got > 0 ? (size_t) got : 0;
        }
        return true;
}

static bool start_wait(struct keeper *k, struct waiter *w)
{
        struct json *until = json_get(w->head, "until");
        int64_t timeout = json_get_int(w->head, "timeoutMs", 0), port = json_get_int(until, "port", 0);

        w->deadline = timeout > 0                                       ? clock_ms() + timeout
                      : timeout == 0 && !json_has(w->head, "timeoutMs") ? INT64_MAX
                                                                        : 0;
        if (port < 0 || port > 65535)
                return refuse(w, -EINVAL, "`until.port` must be 1 to 65535, got %lld", (long long) port);
        w->port = (int) port;
        w->log = json_get_str(until, "log", NULL);
        return !w->log || start_log(k, w);
}

static bool start_stop(struct keeper *k, struct waiter *w)
{
        int64_t grace = json_get_int(w->head, "graceMs", STOP_GRACE_MS);

        if (grace < 0 || grace > STOP_GRACE_MAX_MS)
                grace = STOP_GRACE_MAX_MS;
        if (k->all_gone || k->stop_at)
                return true;
        k->flags |= JOB_STOPPED;
        k->killing = true;
        if (grace)
                keeper_signal(k, SIGTERM);
        k->stop_at = clock_ms() + grace;
        return true;
}

static bool start_input(struct keeper *k, struct waiter *w)
{
        w->feed.closes = json_get_bool(w->head, "close", false);
        if (!k->args.wants_stdin)
                return refuse(w, -EPIPE, "the job was started without stdin, so it takes no input");
        if (k->in < 0 || k->over)
                return refuse(w, -EPIPE, "the job reads no more input: its stdin is closed");
        return true;
}

/* A child of ours sends a whole stream, so that a slow reader holds nobody up. Without a child we do it ourselves. */
static void send_output(struct keeper *k, struct json *head, int fd)
{
        const char *name = json_get_str(head, "stream", "stdout");
        int stream = strcmp(name, "stderr") == 0;
        struct kept_source s = source_of(k, stream);
        size_t free_helper = 0;

        while (free_helper < HELPERS_MAX && k->helpers[free_helper])
                free_helper++;
        pid_t pid = free_helper < HELPERS_MAX ? fork() : -1;
        if (pid == 0) {
                close(k->ctl);
                closep(&k->conn);
                output_send_all(fd, stream ? GUEST_STDERR : GUEST_STDOUT, &s);
                _exit(0);
        }
        if (pid > 0)
                k->helpers[free_helper] = pid;
        else
                output_send_all(fd, stream ? GUEST_STDERR : GUEST_STDOUT, &s);
        close(fd);
}

void wait_message(struct keeper *k, struct json *head, int fd)
{
        static const struct timeval limit = { .tv_sec = SEND_SECONDS };
        const char *action = json_get_str(head, "action", "");
        bool stays;

        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (strcmp(action, "output") == 0) {
                send_output(k, head, fd);
                json_unref(head);
                return;
        }
        if (strcmp(action, "launch") == 0) {
                launch_fork(fd); /* below us like everything of the job: it ends with the job */
                json_unref(head);
                return;
        }
        struct waiter *w = xcalloc(1, sizeof(*w));
        w->fd = fd;
        w->head = head;
        w->deadline = INT64_MAX;
        list_append(&k->waiters, &w->node);
        if (++k->n_waiters > WAITERS_MAX) {
                stays = refuse(w, -EAGAIN, "%u calls wait for this job already", WAITERS_MAX);
        } else if (strcmp(action, "wait") == 0) {
                stays = start_wait(k, w);
        } else if (strcmp(action, "stop") == 0) {
                w->kind = WAITER_STOP;
                stays = start_stop(k, w);
        } else if (strcmp(action, "input") == 0) {
                w->kind = WAITER_INPUT;
                stays = start_input(k, w);
        } else {
                stays = refuse(w, -EINVAL, "`action` must be list, wait, stop, input or output, got \"%.40s\"", action);
        }
        if (!stays)
                waiter_free(k, w);
}
