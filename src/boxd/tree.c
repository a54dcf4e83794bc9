#include "boxd/tree.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 100000
#define FREEZE_ROUNDS 50

bool proc_parse(const char *line, size_t n, struct proc *p)
{
        /* The name in parentheses may hold anything, ")" included: the fields begin after the last one. */
        const char *end = memrchr(line, ')', n);
        struct str rest, field;
        uint64_t v[25] = { 0 };

        if (!end || (size_t) (end - line) + 4 > n)
                return false;
        p->state = end[2];
        rest = str_n(end + 4, n - (size_t) (end + 4 - line));
        for (unsigned i = 4; i <= 24; i++) { /* numbered as in proc(5): 4 is ppid */
                field = str_cut(&rest, ' ');
                if (field.n && field.p[0] == '-') /* tpgid, priority … none of ours */
                        continue;
                if (parse_u64(str_trim(field, "\n"), UINT64_MAX, &v[i]) < 0)
                        return false;
        }
        static long tick, page;
        if (!tick) {
                tick = sysconf(_SC_CLK_TCK);
                page = sysconf(_SC_PAGESIZE);
        }
        p->ppid = (pid_t) v[4];
        p->pgrp = (pid_t) v[5];
        p->cpu_ms = (v[14] + v[15]) * 1000 / (uint64_t) tick;
        p->start = v[22];
        p->rss = v[24] * (uint64_t) page;
        return true;
}

static bool read_proc(int dirfd, const char *name, struct proc *p)
{
        char path[32], line[1024];

        snprintf(path, sizeof(path), "%s/stat", name);
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        ssize_t n = read(fd, line, sizeof(line));
        return n > 0 && proc_parse(line, (size_t) n, p);
}

static int by_pid(const void *a, const void *b)
{
        const struct proc *x = a, *y = b;

        return (x->pid > y->pid) - (x->pid < y->pid);
}

int proc_scan(struct proc_table *t)
{
        DIR *d = opendir("/proc");

        if (!d)
                return -errno;
        t->n = 0;
        for (struct dirent *e; (e = readdir(d));) {
                struct proc p = { 0 };
                uint64_t pid;

                if (parse_u64(str_of(e->d_name), INT32_MAX, &pid) < 0 || !read_proc(dirfd(d), e->d_name, &p))
                        continue;
                p.pid = (pid_t) pid;
                if (t->n == t->cap) {
                        t->cap = t->cap ? t->cap * 2 : 64;
                        t->v = xrealloc(t->v, t->cap * sizeof(*t->v));
                }
                t->v[t->n++] = p;
        }
        closedir(d);
        if (t->n)
                qsort(t->v, t->n, sizeof(*t->v), by_pid);
        return 0;
}

void proc_table_done(struct proc_table *t)
{
        free(t->v);
        memset(t, 0, sizeof(*t));
}

const struct proc *proc_find(const struct proc_table *t, pid_t pid)
{
        struct proc key = { .pid = pid };

        return t->n ? bsearch(&key, t->v, t->n, sizeof(key), by_pid) : NULL;
}

bool proc_below(const struct proc_table *t, pid_t pid, pid_t root)
{
        const struct proc *p = proc_find(t, pid);

        for (unsigned i = 0; p && i < DEPTH_MAX; i++) {
                if (p->ppid == root)
                        return true;
                p = p->ppid > 0 ? proc_find(t, p->ppid) : NULL;
        }
        return false;
}

/* Below t->root, and not through one of its children that do not count. */
static bool in_tree(const struct tree *t, const struct proc_table *table, const struct proc *p)
{
        for (unsigned i = 0; p && i < DEPTH_MAX; i++) {
                if (p->ppid == t->root)
                        return !t->outside || !t->outside(p->pid, t->arg);
                p = p->ppid > 0 ? proc_find(table, p->ppid) : NULL;
        }
        return false;
}

static bool alive(const struct proc *p)
{
        return p->state != 'Z' && p->state != 'X';
}

static bool still_the_same(const struct proc *p)
{
        _cleanup_close_ int dir = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct proc now = { 0 };
        char name[16];

        snprintf(name, sizeof(name), "%d", p->pid);
        return dir >= 0 && read_proc(dir, name, &now) && now.start == p->start;
}

/* The pid may belong to another process by now: hold it, look again, then signal what is held. */
static void signal_one(const struct proc *p, int sig)
{
        _cleanup_close_ int fd = (int) syscall(SYS_pidfd_open, p->pid, 0);

        if (fd >= 0) {
                if (still_the_same(p))
                        syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
        } else if ((errno == ENOSYS || errno == EPERM) && still_the_same(p)) {
                kill(p->pid, sig); /* a kernel without pidfds, or a filter that refuses them */
        }
}

/*
 * The process groups of the tree at once: a fork bomb gets no time between two of its processes. A group never leaves
 * its session, and sessions begin below the root, so no member lies outside the tree.
 */
static void signal_groups(const struct tree *t, const struct proc_table *table, int sig)
{
        pid_t own = getpgrp(), last = 0;

        for (size_t i = 0; i < table->n; i++) {
                const struct proc *p = &table->v[i];

                if (p->pgrp <= 1 || p->pgrp == own || p->pgrp == last || !in_tree(t, table, p))
                        continue;
                kill(-p->pgrp, sig);
                last = p->pgrp; /* neighbours mostly share one; twice does no harm */
        }
}

static size_t each(const struct tree *t, struct proc_table *table, int sig)
{
        size_t n = 0;

        if (proc_scan(table) < 0)
                return 0;
        for (size_t i = 0; i < table->n; i++) {
                const struct proc *p = &table->v[i];

                if (!alive(p) || !in_tree(t, table, p))
                        continue;
                n++;
                if (sig)
                        signal_one(p, sig);
        }
        return n;
}

size_t tree_signal(const struct tree *t, int sig)
{
        struct proc_table table = { 0 };
        size_t n = each(t, &table, sig);

        proc_table_done(&table);
        return n;
}

size_t tree_count(const struct tree *t)
{
        return tree_signal(t, 0);
}

static uint64_t mix(uint64_t sum, const struct proc *p)
{
        return sum + ((uint64_t) p->pid * 0x9e3779b97f4a7c15u ^ p->start);
}

/* Stops everything, so that a fork bomb cannot outrun the killing, until two looks see the same processes. */
static void freeze(const struct tree *t, struct proc_table *table)
{
        uint64_t before = 0;

        for (unsigned round = 0; round < FREEZE_ROUNDS; round++) {
                uint64_t sum = 0;
                bool moving = false;

                if (proc_scan(table) < 0)
                        return;
                signal_groups(t, table, SIGSTOP);
                for (size_t i = 0; i < table->n; i++) {
                        const struct proc *p = &table->v[i];

                        if (!alive(p) || !in_tree(t, table, p))
                                continue;
                        sum = mix(sum, p);
                        if (p->state != 'T' && p->state != 't') {
                                moving = true;
                                signal_one(p, SIGSTOP);
                        }
                }
                if (sum == before && (!moving || round > 3))
                        return;
                before = sum;
        }
}

size_t tree_kill(const struct tree *t, int64_t limit_ms)
{
        int64_t end = clock_ms() + limit_ms;
        struct proc_table table = { 0 };
        size_t left = each(t, &table, 0);

        if (left > 1)
                freeze(t, &table);
        for (unsigned round = 0;; round++) {
                left = each(t, &table, SIGKILL);
                if (t->reap)
                        t->reap(t->arg);
                if (!left || clock_ms() >= end)
                        break;
                struct timespec pause = { .tv_nsec = round < 10 ? 300000 : 3000000 };
                nanosleep(&pause, NULL);
        }
        proc_table_done(&table);
        return left;
}
