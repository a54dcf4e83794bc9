#include "sync/sync.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "sync/job.h"
#include "sync/par.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

void job_init(struct sync_job *j, const struct sync_env *env)
{
        *j = (struct sync_job){ .env = env, .max_mb = MAX_MB_DEFAULT, .step = "checking the arguments" };
        tree_init(&j->tree);
        j->skipped = j->partial = j->prune_failed = BUF_MAX((size_t) 1 << 20);
        j->repo = xstrdup("");
        j->notes = json_arr();
}

void job_done(struct sync_job *j)
{
        free(j->local);
        free(j->repo);
        free(j->cache_dir);
        globs_done(&j->exclude);
        tree_done(&j->tree);
        cache_free(j->cache);
        buf_done(&j->ignored);
        buf_done(&j->skipped);
        buf_done(&j->partial);
        buf_done(&j->stale);
        buf_done(&j->prune_failed);
        buf_done(&j->uncommitted);
        plan_done(&j->plan);
        send_result_done(&j->sent);
        json_unref(j->notes);
}

static bool is_asked(const struct json *v)
{
        switch (json_type(v)) {
        case JSON_NULL:
                return false;
        case JSON_BOOL:
                return json_bool(v);
        case JSON_STRING:
                return json_strn(v).n > 0;
        case JSON_ARRAY:
                return json_len(v) > 0;
        default:
                return true;
        }
}

static int refuse_later(const struct json *args, struct err *e)
{
        static const char *const later[] = { "commit", "alsoPaths", "baseline", "baselineDeps", "submodules", "watch" };

        for (size_t i = 0; i < ARRAY_LEN(later); i++)
                if (is_asked(json_get(args, later[i])))
                        return err_set(e, -ENOSYS,
                                       "`%s` is not available yet; nothing was sent. Leave it out to sync the working "
                                       "tree as it is on disk.",
                                       later[i]);
        return 0;
}

static int get_bool(const struct json *args, const char *key, bool *ret, struct err *e)
{
        const struct json *v = json_get(args, key);

        if (v && json_type(v) != JSON_BOOL)
                return err_set(e, -EINVAL, "`%s` must be true or false, got %s", key, json_type_name(v));
        *ret = v && json_bool(v);
        return 0;
}

static int get_excludes(const struct json *args, struct globs *g, struct err *e)
{
        const struct json *v = json_get(args, "exclude");

        if (!v)
                return 0;
        if (json_type(v) == JSON_STRING)
                return globs_add(g, json_str(v), e);
        if (json_type(v) != JSON_ARRAY)
                return err_set(e, -EINVAL, "`exclude` must be a list of glob patterns, got %s", json_type_name(v));
        for (size_t i = 0; i < json_len(v); i++) {
                const char *s = json_str(json_at(v, i));
                int r = s ? globs_add(g, s, e)
                          : err_set(e, -EINVAL, "`exclude` must hold strings, got %s", json_type_name(json_at(v, i)));
                if (r < 0)
                        return r;
        }
        return 0;
}

static int get_max(const struct json *args, int64_t *ret, struct err *e)
{
        const struct json *v = json_get(args, "maxMB");

        if (!v)
                return 0;
        if ((json_type(v) != JSON_INT && json_type(v) != JSON_DOUBLE) || json_double(v) <= 0 || json_double(v) > 1e9)
                return err_set(e, -EINVAL, "`maxMB` must be a number above 0");
        *ret = (int64_t) json_double(v);
        if (*ret < 1)
                *ret = 1;
        return 0;
}

static int get_local(struct sync_job *j, const char *path, struct err *e)
{
        _cleanup_free_ char *full = path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", j->env->cwd, path);
        struct stat st;

        j->local = realpath(full, NULL);
        if (!j->local || stat(j->local, &st) < 0)
                return err_sys(e, -errno, "`localPath` %.300s cannot be used%s", full,
                               path[0] == '~' ? " (~ is not expanded: give the absolute path)" : "");
        if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
                return err_set(e, -EINVAL, "`localPath` %.300s is neither a folder nor a file", full);
        j->is_file = S_ISREG(st.st_mode);
        return 0;
}

static int parse_args(struct sync_job *j, const struct json *args, struct err *e)
{
        const char *local, *dest;
        int r = json_need_str(args, "id", &j->id, e);

        if (r == 0)
                r = json_need_str(args, "localPath", &local, e);
        if (r == 0)
                r = json_need_str(args, "dest", &dest, e);
        if (r == 0)
                r = refuse_later(args, e);
        if (r == 0)
                r = dest_parse(dest, &j->dest, e);
        if (r == 0)
                r = get_bool(args, "includeIgnored", &j->include_ignored, e);
        if (r == 0)
                r = get_bool(args, "prune", &j->prune, e);
        if (r == 0)
                r = get_bool(args, "dryRun", &j->dry_run, e);
        if (r == 0)
                r = get_max(args, &j->max_mb, e);
        if (r == 0)
                r = get_excludes(args, &j->exclude, e);
        if (r == 0)
                r = get_local(j, local, e);
        return r;
}

/* What can be refused before anything is read, and (second) what only the selection tells. */
static int refuse_prune(const struct sync_job *j, struct err *e)
{
        if (!j->prune)
                return 0;
        if (j->dest.path[0] == '\0')
                return err_set(e, -EINVAL,
                               "`prune` is refused for /work itself: give a `dest` below it. Nothing was sent.");
        if (j->include_ignored)
                return err_set(e, -EINVAL,
                               "`prune` is refused together with includeIgnored: what git ignores cannot be told apart "
                               "then. Nothing was sent.");
        if (j->is_file)
                return err_set(e, -EINVAL,
                               "`prune` is refused with one file: localPath must be a folder. Nothing was sent.");
        return 0;
}

static int refuse_prune_here(const struct sync_job *j, struct err *e)
{
        size_t n = 0;

        if (!j->prune)
                return 0;
        if (!j->from_git)
                return err_set(e, -EINVAL,
                               "`prune` is refused outside git: %.200s is no git working tree, so what may go cannot "
                               "be told. Nothing was sent.",
                               j->local);
        for (size_t i = 0; i < j->tree.n; i++)
                n += j->tree.v[i].state == ENTRY_OK;
        if (n == 0)
                return err_set(e, -EINVAL,
                               "`prune` is refused because git selects no file in %.200s: it would empty dest. Nothing "
                               "was sent.",
                               j->local);
        return 0;
}

static int save_cache(void *arg)
{
        struct sync_job *j = arg;
        struct cache_record *v = xmalloc((j->tree.n + 1) * sizeof *v);
        size_t n = 0;
        int r = 0;
        bool changed = false;

        for (size_t i = 0; i < j->tree.n; i++) {
                const struct entry *e = &j->tree.v[i];

                changed |= e->hashed && !e->racy;
                if (e->state != ENTRY_OK || e->kind == GUEST_KIND_LINK || e->racy)
                        continue;
                v[n].key = e->key;
                memcpy(v[n++].digest, e->digest, HASH_LEN);
        }
        if (changed && n <= CACHE_RECORDS_MAX)
                r = cache_save(j->cache_dir, j->local, v, n);
        free(v);
        return r;
}

static void coroutine_fn save_task(void *arg)
{
        (void) offload(save_cache, arg); /* a cache that cannot be written only costs time */
}

static bool is_loopback(const struct url *u)
{
        return strcmp(u->host, "127.0.0.1") == 0 || strcmp(u->host, "localhost") == 0 || strcmp(u->host, "::1") == 0;
}

int coroutine_fn job_upload(struct sync_job *j, struct err *e)
{
        struct send_spec spec = { .id = j->id,
                                  .dest = j->dest.path,
                                  .repo = j->repo,
                                  .tree = &j->tree,
                                  .need = j->plan.need,
                                  .need_n = j->plan.need_n,
                                  .gzip = !is_loopback(&j->env->base),
                                  .single = j->is_file,
                                  .with_dirs = !j->plan.exists };

        if (j->plan.need_n == 0 && !(spec.with_dirs && j->tree.empty_dirs.len))
                return 0;
        j->step = "uploading";
        return send_tree(j->env, &spec, &j->sent, e);
}

static void coroutine_fn uncommitted_task(void *arg)
{
        job_uncommitted(arg);
}

static int coroutine_fn transfer(struct sync_job *j, struct err *e)
{
        struct par p;
        int r, joined;

        par_init(&p);
        if (j->cache_dir && !j->is_file)
                par_start(&p, save_task, j);
        if (j->from_git && j->plan.need_n)
                par_start(&p, uncommitted_task, j);
        r = job_upload(j, e);
        joined = par_join(&p);
        if (r < 0 || joined < 0)
                return r < 0 ? r : joined;
        if (j->prune) {
                j->step = "removing files that are not local (everything else was synced)";
                r = job_prune(j, e);
        }
        return r;
}

static void coroutine_fn unselected_task(void *arg)
{
        job_unselected(arg);
}

struct opening {
        struct sync_job *j;
        struct plan_early early;
};

static void coroutine_fn open_task(void *arg)
{
        struct opening *o = arg;

        plan_early_open(o->j->env, o->j->id, o->j->dest.path, &o->early);
}

/* Both trees are read at the same time: the box's side begins when the exchange opens. */
static int coroutine_fn select_and_open(struct sync_job *j, struct opening *o, struct err *e)
{
        struct par p;
        int r, joined;

        j->step = "reading the local files";
        par_init(&p);
        /* A server on this machine has it in less time than starting git takes, which holds up everything else. */
        if (is_loopback(&j->env->base))
                open_task(o);
        else
                par_start(&p, open_task, o);
        r = job_select(j, e);
        if (r == 0)
                r = refuse_prune_here(j, e);
        joined = par_join(&p);
        return r < 0 ? r : joined;
}

static int coroutine_fn ask_plan(struct sync_job *j, struct opening *o, struct err *e)
{
        struct par p;
        int r, joined;

        j->step = "comparing with the box";
        par_init(&p);
        if (j->from_git)
                par_start(&p, unselected_task, j);
        r = plan_ask(j->env, j->id, j->dest.path, &j->tree, &o->early, &j->plan, e);
        joined = par_join(&p);
        if (r < 0 || joined < 0)
                return r < 0 ? r : joined;
        if (j->plan.is_file)
                return err_set(e, -ENOTDIR, "/work/%s is a file in the box, and localPath is a folder", j->dest.path);
        return 0;
}

static int coroutine_fn compare(struct sync_job *j, struct err *e)
{
        struct opening o = { .j = j };
        struct err why = { 0 };
        int r = select_and_open(j, &o, e);

        if (r == 0)
                r = ask_plan(j, &o, e);
        plan_early_close(&o.early);
        if (r < 0)
                return r;
        r = job_find_stale(j, &why);
        if (r == -ECANCELED)
                return r;
        if (r < 0 && j->prune)
                return err_set(e, r, "what may be removed could not be told: %s", why.msg);
        if (r < 0)
                job_note(j, "Stale files in dest could not be told: %s", why.msg);
        return 0;
}

/* 0, 1 when out holds a refusal, or -errno. */
static int coroutine_fn run(struct sync_job *j, struct buf *out, struct err *e)
{
        int r;

        j->cache_dir = cache_dir();
        r = j->is_file ? job_single(j, e) : compare(j, e);
        if (r < 0)
                return r;
        for (size_t i = 0; i < j->plan.need_n; i++)
                j->need_bytes += j->tree.v[j->plan.need[i]].key.size;
        if (j->need_bytes > (uint64_t) j->max_mb << 20) {
                job_too_big(j, out);
                return 1;
        }
        if (!j->dry_run)
                r = transfer(j, e);
        if (r < 0)
                return r;
        job_notes(j);
        return job_result(j, out);
}

int coroutine_fn sync_run(const struct sync_env *env, const struct json *args, struct buf *out)
{
        struct sync_job j;
        struct err e = { 0 };
        int r;

        job_init(&j, env);
        r = parse_args(&j, args, &e);
        if (r == 0)
                r = refuse_prune(&j, &e);
        if (r < 0) {
                buf_clear(out);
                (void) buf_adds(out, err_text(&e));
                job_done(&j);
                return 1;
        }
        r = run(&j, out, &e);
        if (r < 0 && !(r == -ECANCELED && coro_cancelled())) {
                if (!e.msg[0])
                        (void) err_sys(&e, r, "it could not be done");
                buf_clear(out);
                job_failure(&j, &e, out);
                r = 1;
        }
        job_done(&j);
        return r;
}
