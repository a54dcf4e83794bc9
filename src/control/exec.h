/* exec: a command in a box, seen from the server: the guest operation, its output, its step, and the truth about how it
 * ended. */
#pragma once

#include "control/guest_client.h"
#include "control/output.h"

struct exec_request {
        const char *cmd, *cwd /* below /work, checked */, *note, *stdin_text;
        const struct json *env;
        int64_t timeout_ms;
        bool background;
        char id[65];
};

struct exec_result {
        struct output out, err;
        int64_t exit_code, duration_ms;
        bool has_exit, timed_out, oom_killed;
        char signal[16];     /* "" when none */
        char denied[3][200]; /* in words; "" when nothing was denied */
};
void exec_result_init(struct exec_result *r, struct objects *objects);
/* What both streams say is masked (output_mask, and output_hold when hold). */
void exec_result_mask(struct exec_result *r, struct mask *m, bool hold);
void exec_result_done(struct exec_result *r);
#define _cleanup_exec_ _cleanup_(exec_result_done)

/*
 * Runs it and records its step. 0 when the command ran to its end, however it ended (or was started, for a background
 * one). When the caller is cancelled (-ECANCELED) the whole process tree is ended; when only its connection is lost
 * nothing happens here.
 */
int coroutine_fn exec_run(struct control *c, const struct identity *who, struct box *b, const struct exec_request *q,
                          struct exec_result *ret, struct err *e);

/* Reads a job's record and kept output (procs wait) into ret; job gets the result object (owned by the caller). cuts:
 * on which sides the kept output is cut off by what was asked (MASK_CUT_…). */
int coroutine_fn exec_collect(struct control *c, struct guest_op *g, unsigned cuts, struct exec_result *ret,
                              struct json **job, struct err *e);
/* When the daemon sent only head and tail of a job's stream ("stdout", "stderr"): gets all of it for outputUrl, where
 * it was kept. */
void coroutine_fn exec_fetch_whole(struct control *c, const char *box, const char *id, const char *name,
                                   struct output *o);
/*
 * Fills ret's ending from a result object of boxd, and asks the driver why when a process was killed or something was
 * denied. cmd is the command line, or NULL when it is not known. oom_before is the kernel's count when the command
 * started; -1 when not known: then b's own count of kills already told is what a killed job is compared with.
 */
void coroutine_fn exec_fill_ending(struct control *c, struct box *b, const char *cmd, int64_t oom_before,
                                   const struct json *result, struct exec_result *ret);

/* Writes exitCode … outputUrl as tools.md names them; texts are cut until the whole object stays under the limit for a
 * result. */
void exec_write(struct jw *w, struct control *c, const struct identity *who, const char *box, struct exec_result *r,
                size_t text_limit);
