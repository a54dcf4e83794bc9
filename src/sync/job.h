/* job: one sandbox_sync call while it runs; shared by the files of this folder, known to nobody outside it. */
#pragma once

#include "sync/dest.h"
#include "sync/glob.h"
#include "sync/plan.h"
#include "sync/send.h"
#include "sync/sync.h"
#include "sync/tree.h"

#define MAX_MB_DEFAULT 100

struct sync_job {
        const struct sync_env *env;
        const char *id;
        char *local; /* canonical */
        bool is_file;
        struct dest dest;
        struct globs exclude;
        bool include_ignored, prune, dry_run;
        int64_t max_mb;

        bool is_repo, from_git;
        char *repo; /* name of the working tree, "" outside git */
        struct tree tree;
        struct cache *cache;
        char *cache_dir;
        struct buf ignored;          /* paths that are here but not selected, NUL terminated; folders with a slash */
        struct buf skipped, partial; /* top-level names left out wholly and in part, NUL terminated */

        struct plan plan;
        uint64_t need_bytes;
        struct send_result sent;
        struct buf stale; /* paths, NUL terminated */
        size_t stale_n;
        int64_t pruned;
        struct buf prune_failed;

        struct buf uncommitted; /* paths from the top of the working tree, NUL terminated */

        const char *step; /* what it is doing, for the text of a failure */
        struct json *notes;
};

void job_init(struct sync_job *j, const struct sync_env *env);
void job_done(struct sync_job *j);
void job_note(struct sync_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "a, b, c and 4 more" of a NUL-terminated list; bytes that are no UTF-8 are replaced. Free it. */
char *list_text(const struct buf *list, size_t max);
size_t list_len(const struct buf *list);

/* select.c: fills tree, skipped, partial. */
extern const char *const default_excludes[];
int coroutine_fn job_select(struct sync_job *j, struct err *e);
int job_open_root(struct sync_job *j, struct err *e);
/* unselected.c: fills ignored, skipped and partial of a git tree. */
void coroutine_fn job_unselected(struct sync_job *j);
/* stale.c: which files of dest are neither local nor ignored; and their removal. */
int coroutine_fn job_find_stale(struct sync_job *j, struct err *e);
int coroutine_fn job_prune(struct sync_job *j, struct err *e);
/* uncommitted.c: fills uncommitted; what goes wrong is of no interest. */
void coroutine_fn job_uncommitted(struct sync_job *j);
/* Pure: the paths of git_status. */
void uncommitted_parse(struct str status, struct buf *paths);
/* notes.c */
void job_notes(struct sync_job *j);
void job_too_big(const struct sync_job *j, struct buf *out);
/* result.c */
int job_result(struct sync_job *j, struct buf *out);
void job_failure(const struct sync_job *j, const struct err *e, struct buf *out);
/* single.c: the whole call for one file. */
int coroutine_fn job_single(struct sync_job *j, struct err *e);
/* The upload that j->plan asks for, and the digest cache. */
int coroutine_fn job_upload(struct sync_job *j, struct err *e);
