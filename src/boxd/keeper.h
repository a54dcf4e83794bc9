/*
 * keeper: the process that looks after one job. PID 1 forks it; it is the subreaper of everything the job starts, moves
 * its output to the connection (or keeps it), enforces its timeout, answers waits, and ends its tree.
 *
 * The struct is shared by keeper.c (life), keeper_io.c (bytes) and keeper_wait.c (other connections). One thread, one
 * poll loop; nothing here blocks for long but tree_kill.
 */
#pragma once

#include "base/list.h"
#include "boxd/conn.h"
#include "boxd/job.h"
#include "boxd/spool.h"

#define CHUNK (32u << 10) /* a frame with its header; one skb, so a Unix socket takes it whole or not at all */
#define WAITERS_MAX 64
#define HELPERS_MAX 8

/* Where stdin comes from: frames on a connection. */
struct feed {
        unsigned char header[GUEST_HEADER_LEN];
        size_t have;
        uint32_t left;
        bool last, ended;
        bool closes; /* its end is the end of the job's stdin */
        uint64_t taken;
};

enum waiter_kind { WAITER_WAIT, WAITER_STOP, WAITER_INPUT };

struct waiter {
        struct list node;
        enum waiter_kind kind;
        int fd;
        int64_t deadline; /* monotonic ms; INT64_MAX: none */
        struct json *head;
        int port;        /* until it listens; 0: no such condition */
        const char *log; /* until this text was written */
        bool log_seen;
        char *carry[2]; /* the last bytes of each stream, for a text that arrives in two pieces */
        size_t carry_len[2];
        struct feed feed;
};

struct stream {
        int fd; /* the pipe's read end, -1 after its end */
        struct spool spool;
        int64_t drain; /* bytes that were in the pipe when the leader exited and are not read yet */
};

struct keeper {
        struct slot *slot;
        unsigned seq;
        int ctl, conn, sigfd, in; /* conn: -1 once the job is in the background; in: the stdin pipe's write end or -1 */
        bool conn_unix, conn_closed_read;
        struct json *head;
        struct exec_args args;
        int64_t started_ms, started_us;
        int64_t deadline; /* of the timeout, INT64_MAX: none */
        int64_t stop_at;  /* when a stop that asked politely turns to force */

        pid_t leader;
        bool leader_done, all_gone, over, killing;
        bool ended; /* PID 1 was told: nothing of the job is left and nothing more will be kept */
        int status;
        int64_t leader_ended_us;
        int64_t leader_ended_wall;
        unsigned flags;

        struct stream out[2];
        struct buf pend; /* bytes on their way to the connection */
        size_t pend_off;
        bool result_queued;

        struct feed feed;
        char *in_buf; /* stdin bytes on their way to the pipe */
        size_t in_len, in_off;
        bool in_close; /* close the pipe when in_buf is empty */

        struct list waiters;
        size_t n_waiters;
        pid_t helpers[HELPERS_MAX];
};

struct keeper_start {
        int conn, ctl;
        struct slot *slot;
        unsigned seq;
        struct json *head;
        char *const *env; /* base environment, "K=V", NULL terminated */
};

_Noreturn void keeper_run(const struct keeper_start *s);

/* keeper_spawn.c */
int keeper_spawn(struct keeper *k, char *const *base_env, struct err *e);
void keeper_oom_score_of_jobs(void); /* the calling process goes when memory runs out, as what jobs start */

/* keeper_io.c */
void io_read_output(struct keeper *k, int i);
void io_flush(struct keeper *k);     /* sends what is pending */
void io_read_conn(struct keeper *k); /* stdin frames of the foreground connection */
void io_read_feed(struct keeper *k, struct feed *f, int fd, bool *gone);
void io_write_stdin(struct keeper *k);
void io_queue_result(struct keeper *k);
void io_detach(struct keeper *k); /* the connection is over or lost; output is kept from now on */
bool io_drained(const struct keeper *k, int64_t now_us);
void io_spool(struct keeper *k);

/* keeper_wait.c */
void wait_message(struct keeper *k, struct json *head, int fd);          /* takes over both */
void wait_output(struct keeper *k, int stream, const char *p, size_t n); /* output came: text conditions */
void wait_check(struct keeper *k);                                       /* answers whoever can be answered */
int64_t wait_timeout(const struct keeper *k, int64_t now_ms); /* when wait_check wants to run next, INT64_MAX: never */
struct waiter *wait_feeder(const struct keeper *k);           /* the waiter whose frames feed stdin, or NULL */
void waiter_free(struct keeper *k, struct waiter *w);

/* keeper.c */
void keeper_reap(void *k);
void keeper_kill(struct keeper *k);
size_t keeper_signal(struct keeper *k, int sig);
void keeper_view(const struct keeper *k, struct job_view *v);
