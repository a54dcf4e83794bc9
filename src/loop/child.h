/*
 * child: child processes with piped stdio, as streams. A child that is dropped while running is killed and reaped on
 * the loop.
 */
#pragma once

#include "base/buf.h"
#include "loop/stream.h"

struct child;

enum child_io { CHILD_NULL, CHILD_INHERIT, CHILD_PIPE };

#define CHILD_EXTRA_MAX 8

struct child_spec {
        const char *const *argv; /* NULL terminated; argv[0] looked up in PATH */
        const char *const *env;  /* NULL terminated "K=V", or NULL to inherit */
        const char *cwd;         /* or NULL */
        enum child_io io[3];
        bool new_session; /* setsid: child_kill then reaches the whole group */
        const int *extra; /* extra[i] becomes descriptor 3+i of the child; everything else above 2 is closed in it */
        size_t extra_n;   /* at most CHILD_EXTRA_MAX */
};

int child_spawn(const struct child_spec *spec, struct child **ret, struct err *e);
pid_t child_pid(const struct child *c);
struct stream *child_stdio(struct child *c, int i); /* for CHILD_PIPE; owned by the child until child_take_stdio */
struct stream *child_take_stdio(struct child *c, int i);
/* Exit status as the shell has it: 0–255, or 128+signal. -ETIMEDOUT, -ECANCELED. */
int coroutine_fn child_wait(struct child *c, int64_t timeout_ms);
int child_kill(struct child *c, int signum);
void child_free(struct child *c);
void child_freep(struct child **c);

/* Runs argv to its end, collecting stdout (bounded by out->max: -ENOBUFS kills it) and the first KiB of stderr into e.
 * Returns the exit status. in may be empty. */
int coroutine_fn child_run(const struct child_spec *spec, const void *in, size_t in_len, struct buf *out,
                           int64_t timeout_ms, struct err *e);
