#include "boxd/conn.h"
#include "boxd/keeper.h"
#include "boxd/pid1.h"
#include "boxd/tree.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX 1024 /* of a command in a record: lists show its beginning */

void jobs_init(struct pid1 *p)
{
        list_init(&p->running);
        list_init(&p->ended);
        p->slots = mmap(NULL, JOB_RUNNING_MAX * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
        if (p->slots == MAP_FAILED)
                _exit(1);
        /* Output files of a former life of this disk belong to nobody. */
        if (access(JOBS_DIR, F_OK) == 0)
                remove_tree(AT_FDCWD, JOBS_DIR);
}

struct job *jobs_by_keeper(struct pid1 *p, pid_t pid)
{
        list_for_each (it, &p->running) {
                struct job *j = list_entry(it, struct job, node);

                if (j->keeper == pid)
                        return j;
        }
        return NULL;
}

struct job *jobs_find(struct pid1 *p, const char *id)
{
        struct list *const lists[] = { &p->running, &p->ended };

        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                list_for_each (it, lists[i]) {
                        struct job *j = list_entry(it, struct job, node);

                        if (strcmp(j->id, id) == 0)
                                return j;
                }
        return NULL;
}

static char *cut_text(const char *s)
{
        return s ? xstrndup(s, strnlen(s, TEXT_MAX)) : NULL;
}

static void forget_output(struct job *j)
{
        int dir = -1;

        for (int i = 0; i < 2; i++) {
                char name[32];

                if (j->memfd[i] >= 0)
                        close(j->memfd[i]);
                j->memfd[i] = -1;
                if (!j->end || (j->end->store[i] != STORE_FILE && !(j->end->flags & JOB_LOST)))
                        continue;
                if (dir < 0)
                        dir = open(JOBS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                jobs_file_name(j->seq, i, name);
                if (dir >= 0)
                        unlinkat(dir, name, 0);
                j->end->store[i] = STORE_NONE;
                j->end->kept[i].len = 0;
                j->end->kept[i].gaps = 1;
                j->end->kept[i].gap[0] = (struct gap){ 0, j->end->kept[i].total };
        }
        closep(&dir);
}

static void job_free(struct job *j)
{
        list_remove(&j->node);
        closep(&j->ctl);
        closep(&j->conn);
        if (j->slot)
                memset(j->slot, 0, sizeof(*j->slot));
        free(j->id);
        free(j->cmd);
        free(j->cwd);
        free(j->note);
        free(j->end);
        free(j);
}

/* Old records go; so does old output when there is too much of it. */
static void trim(struct pid1 *p)
{
        uint64_t sum = 0;

        while (p->n_ended > JOB_ENDED_MAX) {
                struct job *j = list_entry(p->ended.next, struct job, node);

                forget_output(j);
                job_free(j);
                p->n_ended--;
        }
        for (struct list *it = p->ended.prev; it != &p->ended; it = it->prev) {
                struct job *j = list_entry(it, struct job, node);
                uint64_t mine = j->end->kept[0].len + j->end->kept[1].len;

                if (j->end->store[0] < STORE_FILE && j->end->store[1] < STORE_FILE)
                        continue;
                /* Memory files weigh 64 times as much: they are the box's memory, and there because its disk is full.
                 */
                sum += mine * (j->memfd[0] >= 0 || j->memfd[1] >= 0 ? 64 : 1);
                if (sum > SPOOLS_MAX && it != p->ended.prev)
                        forget_output(j);
        }
}

/* The job is over for good: from here on its record answers. */
static void set_ended(struct pid1 *p, struct job *j, const struct job_end *end)
{
        size_t used = offsetof(struct job_end, inline_bytes) + end->inline_len[0] + end->inline_len[1];

        if (end->store[0] != STORE_INLINE && end->store[1] != STORE_INLINE)
                used = offsetof(struct job_end, inline_bytes);
        j->end = xmemdup(end, used);
        j->leader = j->slot->leader;
        memset(j->slot, 0, sizeof(*j->slot));
        j->slot = NULL;
        closep(&j->ctl);
        closep(&j->conn);
        j->ctl = j->conn = -1;
        j->running = false;
        list_remove(&j->node);
        p->n_running--;
        if (end->flags & JOB_NEVER) {
                list_init(&j->node);
                job_free(j);
                return;
        }
        list_append(&p->ended, &j->node);
        p->n_ended++;
        trim(p);
}

static long receive(struct job *j, struct job_end *end, int fds[2])
{
        union {
                char raw[CMSG_SPACE(2 * sizeof(int))];
                struct cmsghdr align;
        } c;
        struct iovec iov = { end, sizeof(*end) };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.raw, .msg_controllen = sizeof(c.raw) };
        ssize_t n = recvmsg(j->ctl, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        fds[0] = fds[1] = -1;
        struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
        if (h && h->cmsg_type == SCM_RIGHTS)
                memcpy(fds, CMSG_DATA(h), min_size(h->cmsg_len - CMSG_LEN(0), 2 * sizeof(int)));
        return n;
}

/* A keeper is ours, but box root may have got at it: nothing it says is trusted further than this. */
static bool end_ok(const struct job_end *e)
{
        for (int i = 0; i < 2; i++)
                if (e->store[i] > STORE_MEMFD || e->kept[i].gaps > 2 ||
                    (e->store[i] == STORE_INLINE && e->kept[i].len != e->inline_len[i]))
                        return false;
        return e->inline_len[0] <= INLINE_MAX && e->inline_len[1] <= INLINE_MAX - e->inline_len[0];
}

void jobs_message(struct pid1 *p, struct job *j)
{
        static struct job_end end;
        int fds[2], next = 0;
        const char bye = MSG_BYE;
        long n = receive(j, &end, fds);

        if (n >= 1 && end.type == MSG_FOREGROUND_OVER) {
                closep(&j->conn);
                j->conn = -1;
        }
        if (n == (long) sizeof(end) && end.type == MSG_ENDED && end_ok(&end)) {
                for (int i = 0; i < 2; i++) {
                        if (end.store[i] != STORE_MEMFD)
                                continue;
                        j->memfd[i] = fds[next];
                        fds[next++] = -1;
                }
                send(j->ctl, &bye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
                set_ended(p, j, &end);
        }
        closep(&fds[0]);
        closep(&fds[1]);
}

static void answer_lost(struct job *j, const struct job_end *end)
{
        struct reply r;

        if (j->conn < 0 || j->slot->partial) /* in the middle of a frame only the end of the connection is true */
                return;
        fcntl(j->conn, F_SETFL, O_NONBLOCK); /* PID 1 waits for nobody */
        reply_init(&r);
        job_status_fields(&r.w, end->status, end->flags);
        jw_kint(&r.w, "durationMs", end->ended_ms - j->started_ms);
        for (int i = 0; i < 2; i++)
                jw_kint(&r.w, i ? "stderrBytes" : "stdoutBytes", (int64_t) end->kept[i].total);
        jw_kstr(&r.w, "endReason", "killed together with its keeper (kill -9 -1, or no memory was left)");
        reply_send(&r, j->conn);
        shutdown(j->conn, SHUT_RDWR);
}

/* What a spool file of a killed keeper holds: it was written as the output came. */
static void kept_of_lost(const struct job *j, int stream, struct job_end *end)
{
        struct kept *k = &end->kept[stream];
        int dir = open(JOBS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        char name[32];

        k->total = j->slot->total[stream];
        jobs_file_name(j->seq, stream, name);
        if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size) {
                end->store[stream] = STORE_FILE;
                k->len = (uint64_t) st.st_size;
        }
        closep(&dir);
        if (k->total > k->len) {
                k->gaps = 1;
                k->gap[0] = (struct gap){ k->len, k->total - k->len };
        }
}

void jobs_lost(struct pid1 *p, struct job *j)
{
        struct job_end end = { .type = MSG_ENDED, .flags = JOB_LOST | JOB_SIGKILLED, .ended_ms = wall_ms() };
        pid_t keeper = j->keeper;

        /* It may have said everything before it died; then there is no such running job any more. */
        for (int i = 0; i < 4; i++) {
                jobs_message(p, j);
                j = jobs_by_keeper(p, keeper);
                if (!j)
                        return;
        }
        p->leftovers = true;
        jobs_sweep(p);
        end.status = j->slot->leader_done ? j->slot->status : SIGKILL;
        for (int i = 0; i < 2; i++)
                kept_of_lost(j, i, &end);
        answer_lost(j, &end);
        set_ended(p, j, &end);
}

/* Keepers, workers and the display's server are the only children PID 1 has of its own. */
bool jobs_is_own(struct pid1 *p, pid_t pid)
{
        if (pid == p->screen.pid)
                return true;
        for (size_t i = 0; i < WORKERS_MAX; i++)
                if (p->workers[i] == pid)
                        return true;
        return jobs_by_keeper(p, pid) != NULL;
}

static bool is_own(pid_t pid, void *arg)
{
        return jobs_is_own(arg, pid);
}

/*
 * A keeper is the reaper of all its job's descendants, so nothing but the rest of a killed keeper's tree can become a
 * child of PID 1: whatever hangs there and is none of its own is ended.
 */
void jobs_sweep(struct pid1 *p)
{
        struct tree t = { .root = getpid(), .outside = is_own, .arg = p };

        if (tree_signal(&t, SIGKILL) == 0)
                p->leftovers = false;
}

static struct slot *free_slot(struct pid1 *p)
{
        for (size_t i = 0; i < JOB_RUNNING_MAX; i++)
                if (!p->slots[i].used)
                        return &p->slots[i];
        return NULL;
}

static int start(struct pid1 *p, int fd, struct json *head, const struct exec_args *a, struct err *e)
{
        _cleanup_close_ int mine = -1, theirs = -1;
        struct slot *slot = free_slot(p);
        int pair[2];

        if (!slot)
                return err_set(e, -EAGAIN, "%d jobs run already, more are not possible: stop one", JOB_RUNNING_MAX);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return err_sys(e, -errno, "starting the command");
        mine = pair[0];
        theirs = pair[1];
        unsigned seq = ++p->next_seq;
        slot->used = 1;
        const int keep[] = { fd, theirs };
        pid_t pid = pid1_fork(keep, ARRAY_LEN(keep));
        if (pid == 0)
                keeper_run(&(struct keeper_start){
                        .conn = FD_FIRST, .ctl = FD_FIRST + 1, .slot = slot, .seq = seq, .head = head, .env = p->env });
        if (pid < 0) {
                slot->used = 0;
                return err_set(e, -EAGAIN, "no process could be started: the box's process or memory limit is reached");
        }
        struct job *j = xcalloc(1, sizeof(*j));
        *j = (struct job){ .id = xstrdup(a->id),
                           .cmd = cut_text(a->cmd),
                           .cwd = cut_text(a->cwd),
                           .note = cut_text(a->note),
                           .seq = seq,
                           .background = a->background,
                           .running = true,
                           .started_ms = wall_ms(),
                           .keeper = pid,
                           .slot = slot,
                           .ctl = steal_fd(&mine),
                           .conn = fd,
                           .memfd = { -1, -1 } };
        list_append(&p->running, &j->node);
        p->n_running++;
        return 0;
}

void jobs_exec(struct pid1 *p, int fd, struct json *head)
{
        struct exec_args a;
        struct err e = { 0 };
        int r = exec_args_parse(head, &a, &e);

        if (r >= 0 && jobs_find(p, a.id))
                r = err_set(&e, -EEXIST, "a job with the id \"%s\" exists already", a.id);
        if (r >= 0)
                r = start(p, fd, head, &a, &e);
        if (r >= 0)
                return; /* the record owns fd now */
        conn_error(fd, &e);
        close(fd);
}

static int hand_over(struct job *j, int fd, const char *text, size_t n)
{
        union {
                char raw[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } c = { 0 };
        char type = MSG_CONNECTION;
        struct iovec iov[2] = { { &type, 1 }, { (void *) (uintptr_t) text, n } };
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = c.raw, .msg_controllen = sizeof(c.raw) };
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &fd, sizeof(int));
        return sendmsg(j->ctl, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int jobs_launch(struct job *j, int fd)
{
        static const char head[] = "{\"action\":\"launch\"}";

        return hand_over(j, fd, head, sizeof(head) - 1);
}

/* In a worker when one can be had, else right here: seeing and stopping must work when no process can be started. */
static void serve(struct pid1 *p, int fd, struct job *j, struct json *head)
{
        int keep[FD_KEEP_MAX] = { fd }, n = 1;

        for (int i = 0; j && i < 2; i++)
                if (j->memfd[i] >= 0)
                        keep[n++] = j->memfd[i];
        pid_t pid = pid1_worker(p, keep, (size_t) n);
        if (pid == 0) {
                fd = n = FD_FIRST;
                for (int i = 0; j && i < 2; i++)
                        if (j->memfd[i] >= 0)
                                j->memfd[i] = ++n;
        } else if (pid < 0) {
                fcntl(fd, F_SETFL, O_NONBLOCK); /* PID 1 waits for nobody */
        }
        if (pid <= 0 && j)
                procs_ended(j, fd, head);
        else if (pid <= 0)
                procs_list(p, fd, json_get_bool(head, "all", false));
        if (pid == 0)
                _exit(0);
        close(fd);
}

void jobs_procs(struct pid1 *p, int fd, struct json *head, const char *text, size_t n)
{
        const char *action = json_get_str(head, "action", ""), *id = json_get_str(head, "id", "");

        if (strcmp(action, "list") == 0) {
                serve(p, fd, NULL, head);
                return;
        }
        struct job *j = jobs_find(p, id);
        int r = 0;
        if (!j)
                r = conn_errorf(fd, -ENOENT, "no job has the id \"%.80s\"", id);
        else if (n > MSG_HEAD_MAX - 1)
                r = conn_errorf(fd, -E2BIG, "the head is longer than %u bytes", MSG_HEAD_MAX);
        else if (!j->running) {
                serve(p, fd, j, head);
                return;
        } else if ((r = hand_over(j, fd, text, n)) < 0) {
                r = conn_errorf(fd, r, "too many calls wait for this job");
        }
        (void) r;
        close(fd);
}
