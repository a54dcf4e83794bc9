/*
 * pid1: the init process of a box: accepts connections, hands each operation to a child, reaps everything.
 *
 * pid1.c is the loop, the connections and the dispatch, jobs.c the records of running and ended jobs, screen.c the
 * display. One thread; nothing here blocks. What a box's root can do to it: nothing (it cannot be signalled, traced or
 * opened from inside).
 */
#pragma once

#include "base/list.h"
#include "boxd/job.h"
#include "boxd/screen.h"

#include <poll.h>
#include <sys/types.h>

#define WORKERS_MAX 512

struct job {
        struct list node;
        char *id, *cmd, *cwd, *note;
        unsigned seq;
        bool background, running;
        int64_t started_ms;
        pid_t keeper;
        struct slot *slot; /* while running */
        int ctl;           /* while running */
        int conn;          /* a duplicate of the foreground connection, or -1 */
        pid_t leader;
        struct job_end *end; /* once ended; cut to what is used */
        int memfd[2];
};

struct pid1 {
        int listen, sigfd, launch;
        int64_t started_ms;
        char **env; /* base environment of jobs */
        size_t env_n;
        struct list running, ended; /* struct job; oldest first */
        size_t n_running, n_ended;
        struct slot *slots; /* JOB_RUNNING_MAX, shared */
        unsigned next_seq;
        pid_t workers[WORKERS_MAX];
        struct screen screen;
        bool leftovers; /* a keeper was killed: what it leaves behind is being ended */
};

#define FD_FIRST 3 /* a child's first descriptor: its connection */
#define FD_KEEP_MAX 4

/* Forks a child that keeps only the n descriptors of keep, as FD_FIRST, FD_FIRST + 1 … */
pid_t pid1_fork(const int *keep, size_t n);
/* The same for a worker, with signals as usual: remembered as one of ours. -EAGAIN when there are too many. */
pid_t pid1_worker(struct pid1 *p, const int *keep, size_t n);

/* jobs.c */
void jobs_init(struct pid1 *p);
void jobs_exec(struct pid1 *p, int fd, struct json *head);                              /* takes over fd */
void jobs_procs(struct pid1 *p, int fd, struct json *head, const char *text, size_t n); /* takes over fd */
int jobs_launch(struct job *j, int fd); /* its keeper starts a program for the client at fd */
struct job *jobs_by_keeper(struct pid1 *p, pid_t pid);
bool jobs_is_own(struct pid1 *p, pid_t pid);
struct job *jobs_find(struct pid1 *p, const char *id);
void jobs_message(struct pid1 *p, struct job *j); /* its keeper sent something */
void jobs_lost(struct pid1 *p, struct job *j);    /* its keeper died without a word */
void jobs_sweep(struct pid1 *p);                  /* one round of ending leftovers */

/* procs.c, in a worker (or, when no process can be started, in PID 1 itself) */
void procs_list(struct pid1 *p, int fd, bool all);
void procs_ended(struct job *j, int fd, struct json *head);
void job_view_of(const struct job *j, struct job_view *v);

_Noreturn void pid1_main(int listen_fd, int ready_fd);
