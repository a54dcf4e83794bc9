#include "base/mem.h"
#include "sync/git.h"
#include "sync/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define PATHS_MAX ((size_t) 64 << 20)
#define PRUNE_ROUNDS 25

static bool default_excluded(const char *path)
{
        struct str rest = str_of(path);

        while (rest.n) {
                struct str c = str_cut(&rest, '/');

                for (size_t i = 0; default_excludes[i]; i++)
                        if (str_eq(c, str_of(default_excludes[i])))
                                return true;
        }
        return false;
}

/* A folder above path that is a link here: what the box has behind it is not ours, and git will not be asked about it.
 */
static bool behind(const struct sync_job *j, const char *path, bool *is_link)
{
        for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
                const struct entry *e = tree_find(&j->tree, path, (size_t) (p - path));

                if (e && e->state == ENTRY_OK)
                        *is_link = true;
                if (e && (e->gitlink || e->nested))
                        return true;
        }
        return false;
}

enum verdict { KEEP, STALE, ASK_GIT };

static enum verdict judge(const struct sync_job *j, const char *path)
{
        size_t len = strlen(path);
        const struct entry *e = tree_find(&j->tree, path, len);
        bool is_link = false;
        struct stat st;

        if (globs_match(&j->exclude, str_n(path, len), false))
                return KEEP;
        if (e && (e->protected || e->state != ENTRY_GONE))
                return KEEP;
        if (behind(j, path, &is_link))
                return KEEP;
        if (is_link)
                return STALE;
        if (fstatat(j->tree.root_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return KEEP; /* it is here, only not selected */
        if (!j->from_git)
                return j->include_ignored || !default_excluded(path) ? STALE : KEEP;
        return ASK_GIT;
}

static void add_stale(struct sync_job *j, const char *path)
{
        if (buf_add(&j->stale, path, strlen(path) + 1) == 0)
                j->stale_n++;
}

static bool listed(const struct buf *list, size_t *at, const char *path)
{
        /* check-ignore answers in the order it was asked */
        if (*at >= list->len || strcmp(list->p + *at, path) != 0)
                return false;
        *at += strlen(path) + 1;
        return true;
}

int coroutine_fn job_find_stale(struct sync_job *j, struct err *e)
{
        _cleanup_buf_ struct buf ask = BUF_MAX(PATHS_MAX), ignored = BUF_MAX(PATHS_MAX);
        size_t at = 0;
        int r;

        buf_done(&j->stale);
        j->stale = BUF_MAX(PATHS_MAX);
        j->stale_n = 0;
        if (j->plan.unknown)
                return j->prune ? err_set(e, -ENOTSUP, "this server cannot say what dest holds") : 0;
        for (const char *p = j->plan.extras.p, *end = p + j->plan.extras.len; p < end; p += strlen(p) + 1)
                switch (judge(j, p)) {
                case KEEP:
                        break;
                case STALE:
                        add_stale(j, p);
                        break;
                case ASK_GIT:
                        (void) buf_add(&ask, p, strlen(p) + 1);
                }
        r = git_check_ignore(j->local, &ask, &ignored, e);
        if (r < 0)
                return r;
        if (ignored.len && ignored.p[ignored.len - 1] != '\0')
                return err_set(e, -EPROTO, "git check-ignore printed something unexpected");
        for (const char *p = ask.p, *end = p + ask.len; p < end; p += strlen(p) + 1)
                if (!listed(&ignored, &at, p))
                        add_stale(j, p);
        if (at != ignored.len) /* an order we do not know: rather keep everything than remove one file too many */
                return err_set(e, -EPROTO, "git check-ignore answered out of order");
        return 0;
}

static int coroutine_fn prune_once(struct sync_job *j, int64_t *pruned, struct err *e)
{
        _cleanup_buf_ struct buf path = BUF_MAX(65536);
        _cleanup_json_ struct json *answer = NULL;
        struct rest_answer a = { 0 };
        int r = rest_box_path(j->env, &path, j->id, "prune", j->dest.path);

        if (r == 0)
                r = rest_post(j->env, buf_cstr(&path), "application/octet-stream", &j->stale, "removing files",
                              (size_t) 8 << 20, &a, e);
        if (r == 0 && a.status != 200)
                r = rest_fail(&a, e);
        else if (r == 0)
                r = json_parse(a.body.p, a.body.len, &answer, e);
        buf_done(&a.body);
        if (r < 0)
                return r;
        const struct json *failed = json_get(answer, "failed");
        for (size_t i = 0; i < json_len(failed); i++) {
                const struct json *it = json_at(failed, i);
                const char *s = json_str(it) ? json_str(it) : json_get_str(it, "path", "?");

                (void) buf_add(&j->prune_failed, s, strlen(s) + 1);
        }
        *pruned = json_get_int(answer, "pruned", 0);
        return 0;
}

/* The box names a limited number of files at a time; as long as some go, there is another round. */
int coroutine_fn job_prune(struct sync_job *j, struct err *e)
{
        for (int round = 0; j->stale_n && round < PRUNE_ROUNDS; round++) {
                bool more = j->plan.extras_partial;
                int64_t n = 0;
                int r = prune_once(j, &n, e);

                if (r < 0)
                        return r;
                j->pruned += n;
                if (!more || n == 0) {
                        if (more)
                                break;
                        buf_clear(&j->stale);
                        j->stale_n = 0;
                        return 0;
                }
                plan_done(&j->plan);
                r = plan_ask(j->env, j->id, j->dest.path, &j->tree, NULL, &j->plan, e);
                if (r == 0)
                        r = job_find_stale(j, e);
                if (r < 0)
                        return r;
        }
        return 0;
}
