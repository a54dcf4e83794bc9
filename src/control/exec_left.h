/*
 * exec_left: commands that outlive the call that started them. A caller that can wait only so long gets its answer
 * then, with the output so far; the command goes on, is read to its end here and has its step, and its whole result
 * waits for a while for sandbox_procs. What the server no longer has, the box's daemon still knows the ends of.
 */
#pragma once

#include "control/exec.h"

/*
 * Like exec_run, but when the command runs on after limit_ms (< 0: none), -EINPROGRESS with the output so far in ret.
 * A caller that is cancelled before ends the command.
 */
int coroutine_fn exec_run_within(struct control *c, const struct identity *who, struct box *b,
                                 const struct exec_request *q, int64_t limit_ms, struct exec_result *ret,
                                 struct err *e);

/*
 * Waits for such a command. 0: *ret is its result, borrowed until the next suspension. -EINPROGRESS: it runs on, and
 * its output so far is in *so_far. -ENOENT: none of that name, or it failed: ask the box. -ECANCELED.
 */
int coroutine_fn exec_left_wait(struct control *c, const char *box, const char *id, int64_t limit_ms,
                                struct exec_result *so_far, struct exec_result **ret);

/* Shutting down: reads no further. The commands themselves go on. Before the driver goes away. */
void coroutine_fn exec_left_stop(struct control *c);
