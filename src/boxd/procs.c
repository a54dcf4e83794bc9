#include "boxd/conn.h"
#include "boxd/output.h"
#include "boxd/pid1.h"
#include "boxd/tree.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LIST_CMD_MAX 512
#define LIST_ROOM (24u << 10) /* one more job, every byte of its texts escaped */

void job_view_of(const struct job *j, struct job_view *v)
{
        *v = (struct job_view){
                .id = j->id,
                .cmd = j->cmd,
                .cwd = j->cwd,
                .note = j->note,
                .background = j->background,
                .running = j->running,
                .leader_done = j->running ? j->slot->leader_done : true,
                .pid = j->running ? j->slot->leader : j->leader,
                .status = j->running ? j->slot->status : j->end->status,
                .flags = j->running ? 0 : j->end->flags,
                .started_ms = j->started_ms,
                .ended_ms = j->running ? j->slot->leader_ended_ms : j->end->ended_ms,
        };
}

static void usage(struct jw *w, const struct proc_table *t, pid_t keeper)
{
        uint64_t cpu = 0, rss = 0;
        int64_t n = 0;

        for (size_t i = 0; i < t->n; i++) {
                const struct proc *p = &t->v[i];

                if (p->state == 'Z' || !proc_below(t, p->pid, keeper))
                        continue;
                n++;
                cpu += p->cpu_ms;
                rss += p->rss;
        }
        jw_kint(w, "processes", n);
        jw_kint(w, "cpuMs", (int64_t) cpu);
        jw_kint(w, "rssBytes", (int64_t) rss);
}

static void list_one(struct jw *w, const struct job *j, const struct proc_table *t)
{
        char cmd[LIST_CMD_MAX + 1];
        struct job_view v;

        job_view_of(j, &v);
        size_t n = strnlen(v.cmd, LIST_CMD_MAX);
        memcpy(cmd, v.cmd, n);
        cmd[n] = '\0';
        v.cmd = cmd;
        jw_obj(w);
        job_fields(w, &v);
        if (j->running)
                usage(w, t, j->keeper);
        jw_end(w);
}

/* A result is one control frame: what does not fit is left out, and that is said. */
static bool room(const struct reply *r, bool *partial)
{
        if (r->b.len < r->b.max - LIST_ROOM)
                return true;
        *partial = true;
        return false;
}

void procs_list(struct pid1 *p, int fd, bool all)
{
        struct proc_table t = { 0 };
        bool partial = false;
        struct reply r;

        proc_scan(&t);
        reply_init(&r);
        jw_karr(&r.w, "jobs");
        list_for_each (it, &p->running)
                if (room(&r, &partial))
                        list_one(&r.w, list_entry(it, struct job, node), &t);
        for (struct list *it = p->ended.prev; all && it != &p->ended && room(&r, &partial);
             it = it->prev) /* newest first */
                list_one(&r.w, list_entry(it, struct job, node), &t);
        jw_end(&r.w);
        if (partial)
                jw_kbool(&r.w, "partial", true);
        reply_send(&r, fd);
        proc_table_done(&t);
}

struct ended_output {
        int fd; /* file or memory file, or -1 */
        const unsigned char *bytes;
        uint64_t len;
};

static long read_ended(void *arg, uint64_t off, void *p, size_t n)
{
        struct ended_output *o = arg;

        if (o->fd >= 0) {
                ssize_t k = pread(o->fd, p, n, (off_t) off);

                return k < 0 ? -errno : k;
        }
        if (off >= o->len)
                return 0;
        n = min_size(n, (size_t) (o->len - off));
        memcpy(p, o->bytes + off, n);
        return (long) n;
}

static void open_ended(const struct job *j, int stream, struct ended_output *o, struct kept_source *s)
{
        const struct job_end *e = j->end;

        *o = (struct ended_output){ .fd = -1 };
        *s = (struct kept_source){ .kept = e->kept[stream], .read = read_ended, .arg = o };
        if (e->store[stream] == STORE_INLINE) {
                o->bytes = e->inline_bytes + (stream && e->store[0] == STORE_INLINE ? e->inline_len[0] : 0);
                o->len = e->inline_len[stream];
        } else if (e->store[stream] == STORE_MEMFD) {
                o->fd = fcntl(j->memfd[stream], F_DUPFD_CLOEXEC, 8);
        } else if (e->store[stream] == STORE_FILE) {
                char name[32];
                int dir = jobs_dir();

                jobs_file_name(j->seq, stream, name);
                o->fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
                closep(&dir);
        }
        if (e->store[stream] >= STORE_FILE && o->fd < 0) /* somebody in the box removed it */
                s->kept = (struct kept){ .total = s->kept.total, .gaps = 1, .gap = { { 0, s->kept.total } } };
}

static void wait_ended(struct job *j, int fd, struct json *head)
{
        struct json *until = json_get(head, "until");
        const char *log = json_get_str(until, "log", NULL);
        struct ended_output o[2];
        struct kept_source s[2];
        struct output_limit limit;
        struct output_cut cut[2];
        struct job_view v;
        struct reply r;
        bool seen = false;

        output_limit_parse(head, &limit);
        for (int i = 0; i < 2; i++) {
                open_ended(j, i, &o[i], &s[i]);
                seen |= log && output_contains(&s[i], str_of(log));
                if (output_send(fd, i ? GUEST_STDERR : GUEST_STDOUT, &s[i], &limit, &cut[i]) < 0)
                        return;
        }
        job_view_of(j, &v);
        reply_init(&r);
        job_fields(&r.w, &v);
        jw_kbool(&r.w, "over", true);
        jw_kbool(&r.w, "ready", seen);
        output_fields(&r.w, "stdout", &s[0].kept, &cut[0]);
        output_fields(&r.w, "stderr", &s[1].kept, &cut[1]);
        reply_send(&r, fd);
        closep(&o[0].fd);
        closep(&o[1].fd);
}

void procs_ended(struct job *j, int fd, struct json *head)
{
        const char *action = json_get_str(head, "action", "");
        struct job_view v;
        struct reply r;

        if (strcmp(action, "wait") == 0) {
                wait_ended(j, fd, head);
        } else if (strcmp(action, "stop") == 0) {
                job_view_of(j, &v);
                reply_init(&r);
                job_fields(&r.w, &v);
                reply_send(&r, fd);
        } else if (strcmp(action, "output") == 0) {
                int stream = strcmp(json_get_str(head, "stream", "stdout"), "stderr") == 0;
                struct ended_output o;
                struct kept_source s;

                open_ended(j, stream, &o, &s);
                output_send_all(fd, stream ? GUEST_STDERR : GUEST_STDOUT, &s);
                closep(&o.fd);
        } else if (strcmp(action, "input") == 0) {
                conn_errorf(fd, -EPIPE, "the job has ended, so it takes no input");
        } else {
                conn_errorf(fd, -EINVAL, "`action` must be list, wait, stop, input or output, got \"%.40s\"", action);
        }
}
