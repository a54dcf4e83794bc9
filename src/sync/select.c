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

/* What git says, asked side by side: three processes and the cache file cost the time of the slowest. */
struct question {
        struct sync_job *j;
        struct git_info info;
        struct buf list;
        int probe_r, list_r, ignored_r;
        struct err probe_e, list_e, ignored_e;
};

static void coroutine_fn ask_probe(void *arg)
{
        struct question *q = arg;

        q->probe_r = git_probe(q->j->local, &q->info, &q->probe_e);
}

static void coroutine_fn ask_list(void *arg)
{
        struct question *q = arg;

        q->list_r = git_list(q->j->local, &q->list, &q->list_e);
}

static void coroutine_fn ask_ignored(void *arg)
{
        struct question *q = arg;

        q->ignored_r = git_ignored(q->j->local, &q->j->ignored, &q->ignored_e);
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

                if (globs_match(&j->exclude, str_n(it->path, it->path_len), it->gitlink || it->nested)) {
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

static bool has_selected(const struct tree *t, const char *name, size_t len)
{
        size_t lo = 0, hi = t->n;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;

                if (path_cmp(t->v[mid].path, t->v[mid].path_len, name, len) < 0)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        /* "name-x" sorts between "name" and "name/…" */
        for (; lo < t->n && t->v[lo].path_len > len && memcmp(t->v[lo].path, name, len) == 0; lo++)
                if (t->v[lo].path[len] == '/')
                        return true;
        return false;
}

static void add_name(struct buf *list, const char *name, size_t len, struct str *last)
{
        size_t at = list->len;

        if (str_eq(*last, str_n(name, len)))
                return;
        if (list->len + len + 1 > list->max || buf_add(list, name, len) < 0 || buf_addc(list, '\0') < 0)
                list->len = at;
        *last = str_n(name, len);
}

static void sort_ignored(struct sync_job *j)
{
        struct str last_skipped = { 0 }, last_partial = { 0 };

        for (size_t at = 0; at < j->ignored.len;) {
                const char *p = j->ignored.p + at, *slash = strchr(p, '/');
                size_t len = strlen(p), top = slash ? (size_t) (slash - p) : len;

                at += len + 1;
                if ((slash && slash[1] && has_selected(&j->tree, p, top)))
                        add_name(&j->partial, p, top, &last_partial);
                else
                        add_name(&j->skipped, p, top, &last_skipped);
        }
}

static int coroutine_fn from_git(struct sync_job *j, struct question *q, struct err *e)
{
        int r;

        if (q->list_r < 0)
                return err_set(e, q->list_r, "%s", q->list_e.msg);
        r = git_parse_list(&j->tree, &q->list, e);
        if (r < 0)
                return r;
        j->from_git = true;
        if (q->ignored_r < 0)
                job_note(j, "What git ignores could not be listed: %s", q->ignored_e.msg);
        refuse_names(j);
        exclude_listed(j);
        tree_sort(&j->tree);
        return 0;
}

static int coroutine_fn ask_git(struct sync_job *j, struct question *q, struct err *e)
{
        struct par p;
        int r;

        par_init(&p);
        par_start(&p, ask_probe, q);
        if (!j->include_ignored) {
                par_start(&p, ask_list, q);
                par_start(&p, ask_ignored, q);
        }
        par_start(&p, load_cache, q);
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

int coroutine_fn job_select(struct sync_job *j, struct err *e)
{
        struct question q = { .j = j };
        int r;

        r = job_open_root(j, e);
        if (r == 0)
                r = ask_git(j, &q, e);
        if (r == 0 && j->is_repo && !j->include_ignored) {
                r = from_git(j, &q, e);
        } else if (r == 0) {
                r = scan_walk(&j->tree, j->include_ignored ? never : default_excludes, &j->exclude, &j->skipped, e);
                tree_sort(&j->tree);
        }
        if (r == 0)
                r = scan_tree(&j->tree, j->cache);
        if (r == 0) {
                tree_drop_behind_links(&j->tree);
                if (j->from_git)
                        sort_ignored(j);
        }
        git_info_done(&q.info);
        buf_done(&q.list);
        return r;
}
