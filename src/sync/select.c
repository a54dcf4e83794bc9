#include "base/mem.h"
#include "loop/loop.h"
#include "sync/git.h"
#include "sync/job.h"
#include "sync/par.h"
#include "sync/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

const char *const default_excludes[] = { "node_modules", ".git",     "dist",   "dist-web", "build",
                                         ".cache",       "coverage", ".venv",  "venv",     "__pycache__",
                                         "target",       ".next",    ".turbo", NULL };
static const char *const never[] = { ".git", NULL };

/* What git says, asked side by side: the tracked files are looked at while git still walks the tree for untracked ones.
 */
struct question {
        struct sync_job *j;
        struct git_info info;
        struct buf tracked, untracked;
        int probe_r, tracked_r, untracked_r;
        struct err probe_e, tracked_e, untracked_e;
};

static void coroutine_fn ask_probe(void *arg)
{
        struct question *q = arg;

        q->probe_r = git_probe(q->j->local, &q->info, &q->probe_e);
}

static void coroutine_fn ask_untracked(void *arg)
{
        struct question *q = arg;

        q->untracked_r = git_untracked(q->j->local, &q->untracked, &q->untracked_e);
}

static void coroutine_fn ask_index(void *arg)
{
        struct question *q = arg;

        q->tracked_r = git_tracked(q->j->local, &q->tracked, &q->tracked_e);
}

static int open_cache(void *arg)
{
        struct sync_job *j = arg;

        j->cache = cache_open(j->cache_dir, j->local);
        return 0;
}

static void coroutine_fn load_cache(void *arg)
{
        (void) offload(open_cache, ((struct question *) arg)->j);
}

static int coroutine_fn take_list(struct sync_job *j, struct buf *text, struct err *e);

static void coroutine_fn ask_tracked(void *arg)
{
        struct question *q = arg;
        struct par p;

        par_init(&p);
        par_start(&p, load_cache, q);
        par_start(&p, ask_index, q);
        if (par_join(&p) < 0)
                q->tracked_r = -ECANCELED;
        if (q->tracked_r == 0)
                q->tracked_r = take_list(q->j, &q->tracked, &q->tracked_e);
}

int job_open_root(struct sync_job *j, struct err *e)
{
        j->tree.root = xstrdup(j->local);
        j->tree.root_fd = open(j->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return j->tree.root_fd < 0 ? err_sys(e, -errno, "cannot open %.200s", j->local) : 0;
}

static void exclude_listed(struct sync_job *j)
{
        for (size_t i = 0; j->exclude.n && i < j->tree.n; i++) {
                struct entry *it = &j->tree.v[i];

                if (it->state != ENTRY_DROPPED &&
                    globs_match(&j->exclude, str_n(it->path, it->path_len), it->gitlink || it->nested)) {
                        it->state = ENTRY_DROPPED;
                        j->tree.excluded++;
                }
        }
}

/* git never lists a name that could leave the folder, but a name may be too long for the plan or hold a ".git". */
static void refuse_names(struct sync_job *j)
{
        for (size_t i = 0; i < j->tree.n; i++)
                if (j->tree.v[i].state == ENTRY_NEW && !guest_path_ok(j->tree.v[i].path, j->tree.v[i].path_len)) {
                        j->tree.v[i].state = ENTRY_UNREADABLE;
                        j->tree.v[i].err = -EINVAL;
                }
}

/* Adds one of git's lists to the tree and looks at its files. */
static int coroutine_fn take_list(struct sync_job *j, struct buf *text, struct err *e)
{
        int r = git_parse_list(&j->tree, text, e);

        if (r < 0)
                return r;
        refuse_names(j);
        exclude_listed(j);
        return scan_tree(&j->tree, j->cache);
}

static int coroutine_fn ask_git(struct sync_job *j, struct question *q, struct err *e)
{
        struct par p;
        int r;

        par_init(&p);
        par_start(&p, ask_probe, q);
        if (j->include_ignored) {
                par_start(&p, load_cache, q);
        } else {
                par_start(&p, ask_tracked, q);
                par_start(&p, ask_untracked, q);
        }
        r = par_join(&p);
        if (r < 0)
                return r;
        if (q->probe_r < 0)
                return err_set(e, q->probe_r, "%s", q->probe_e.msg);
        j->is_repo = q->info.is_repo;
        if (j->is_repo && q->info.toplevel) {
                const char *slash = strrchr(q->info.toplevel, '/');

                free(j->repo);
                j->repo = xstrdup(slash ? slash + 1 : q->info.toplevel);
        }
        return 0;
}

static int coroutine_fn from_git(struct sync_job *j, struct question *q, struct err *e)
{
        if (q->tracked_r < 0)
                return err_set(e, q->tracked_r, "%s", q->tracked_e.msg);
        if (q->untracked_r < 0)
                return err_set(e, q->untracked_r, "%s", q->untracked_e.msg);
        j->from_git = true;
        return take_list(j, &q->untracked, e);
}

static int coroutine_fn from_folder(struct sync_job *j, struct err *e)
{
        int r = scan_walk(&j->tree, j->include_ignored ? never : default_excludes, &j->exclude, &j->skipped, e);

        return r < 0 ? r : scan_tree(&j->tree, j->cache);
}

int coroutine_fn job_select(struct sync_job *j, struct err *e)
{
        struct question q = { .j = j };
        int r;

        r = job_open_root(j, e);
        if (r == 0)
                r = ask_git(j, &q, e);
        if (r == 0)
                r = j->is_repo && !j->include_ignored ? from_git(j, &q, e) : from_folder(j, e);
        if (r == 0) {
                tree_sort(&j->tree);
                tree_drop_behind_links(&j->tree);
        }
        git_info_done(&q.info);
        buf_done(&q.tracked);
        buf_done(&q.untracked);
        return r;
}
