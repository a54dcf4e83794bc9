/*
 * job: what PID 1, the keepers and the workers agree on about jobs: limits, the shared slot of a running
 * job, the message that ends one, and the fields of a job in results.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_RUNNING_MAX 256
#define JOB_ENDED_MAX 200
#define JOB_ID_MAX 128
#define JOB_CMD_MAX (120u << 10)          /* one argument of execve is at most 128 KiB */
#define KEEP_EDGE (16u << 10)             /* of head and of tail, per stream */
#define SPOOL_MAX (64u << 20)             /* per stream, on the box's disk */
#define SPOOLS_MAX ((uint64_t) 256 << 20) /* of all ended jobs together; the oldest go first */
#define INLINE_MAX 512                    /* output of an ended job that PID 1 holds itself */
#define OVER_GRACE_MS 200                 /* after the leader's exit, while a descendant keeps the pipes open */
#define STATE_DIR "/var/lib/boxd"
#define JOBS_DIR STATE_DIR "/jobs"

/* Where bytes are missing in what was kept of a stream: len bytes before kept byte number `at`. */
struct gap {
        uint64_t at, len;
};

struct kept {
        uint64_t total; /* bytes the job wrote */
        uint64_t len;   /* bytes that are kept */
        unsigned gaps;
        struct gap gap[2];
        int error; /* why spooling stopped (negative errno), or 0 */
};

/* Shared memory between PID 1 and the keeper of one running job, so that PID 1 can answer for a killed keeper. */
struct slot {
        volatile int used;
        volatile int leader;      /* pid, 0 before it runs */
        volatile int leader_done; /* then .status is its wait status */
        volatile int status;
        volatile int partial; /* a frame to the connection is sent in part */
        volatile int64_t leader_ended_ms;
        volatile uint64_t total[2];
};

enum job_flag {
        JOB_TIMED_OUT = 1,
        JOB_STOPPED = 2,
        JOB_SIGKILLED = 4, /* some process of the job died by a SIGKILL that is none of ours */
        JOB_LOST = 8,      /* its keeper was killed */
        JOB_NEVER = 16,    /* it never started; there is no record of it */
};

enum store { STORE_NONE, STORE_INLINE, STORE_FILE, STORE_MEMFD };

/* Keeper → PID 1 over a SOCK_SEQPACKET pair. */
enum { MSG_FOREGROUND_OVER = 'F', MSG_ENDED = 'E' };
/* PID 1 → keeper: 'C' with a connection and the head's text, 'X' after MSG_ENDED. */
enum { MSG_CONNECTION = 'C', MSG_BYE = 'X' };
#define MSG_HEAD_MAX (64u << 10)

struct job_end {
        char type; /* MSG_ENDED */
        unsigned char store[2];
        unsigned flags;
        int status;
        int64_t ended_ms;
        struct kept kept[2];
        unsigned inline_len[2];
        unsigned char inline_bytes[INLINE_MAX];
};

/* One job as results show it. Strings are borrowed. */
struct job_view {
        const char *id, *cmd, *cwd, *note;
        bool background, running, leader_done;
        pid_t pid;
        int status; /* valid with leader_done */
        unsigned flags;
        int64_t started_ms, ended_ms;
};

void job_fields(struct jw *w, const struct job_view *v);
/* exitCode, signal, timedOut, oomKilled, sigkill of an ended leader. */
void job_status_fields(struct jw *w, int status, unsigned flags);
/* "SIGKILL"; a buffer of 16 bytes is enough. */
const char *signal_name(int sig, char out[16]);

/* The arguments of exec, checked; strings are borrowed from the head. */
struct exec_args {
        const char *id, *cmd, *cwd, *note;
        struct json *env;
        int64_t timeout_ms; /* 0: none */
        bool background, wants_stdin;
};

int exec_args_parse(struct json *head, struct exec_args *a, struct err *e);
/* A job id: 1 to JOB_ID_MAX of [A-Za-z0-9._:-]. */
bool job_id_ok(const char *id);

/* The folder for output files (0700), made when missing; a descriptor or -errno. */
int jobs_dir(void);
/* "<seq>.1" or "<seq>.2" */
void jobs_file_name(unsigned seq, int stream, char out[32]);
