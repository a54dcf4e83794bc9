#include "base/mem.h"
#include "base/utf8.h"
#include "sync/job.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SENT_PATHS_MAX 50
#define STALE_PATHS_MAX 20
#define NAMES_MAX 100
#define NOTE_MAX 4096

void job_note(struct sync_job *j, const char *fmt, ...)
{
        char text[NOTE_MAX];
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        json_push(j->notes, json_new_str(text));
}

size_t list_len(const struct buf *list)
{
        size_t n = 0;

        for (size_t i = 0; i < list->len; i++)
                n += list->p[i] == '\0';
        return n;
}

char *list_text(const struct buf *list, size_t max)
{
        _cleanup_buf_ struct buf out = BUF_MAX(65536);
        size_t shown = 0, all = list_len(list);

        for (size_t at = 0; at < list->len && shown < max; at += strlen(list->p + at) + 1, shown++) {
                if (shown)
                        (void) buf_adds(&out, ", ");
                (void) utf8_repair(&out, utf8_prefix(str_of(list->p + at), 300));
        }
        if (all > shown)
                (void) buf_addf(&out, " and %zu more", all - shown);
        return xstrdup(buf_cstr(&out));
}

static void write_list(struct jw *w, const char *key, const struct buf *list, size_t max)
{
        size_t n = 0;

        jw_karr(w, key);
        for (size_t at = 0; at < list->len && n < max; at += strlen(list->p + at) + 1, n++)
                jw_str(w, list->p + at);
        jw_end(w);
}

static double megabytes(uint64_t bytes)
{
        return (double) (int64_t) ((double) bytes / 1048576.0 * 10.0 + 0.5) / 10.0;
}

static void write_sent(struct jw *w, const struct sync_job *j)
{
        jw_kint(w, "sentFiles", (int64_t) j->plan.need_n);
        jw_karr(w, "sentPaths");
        for (size_t i = 0; i < j->plan.need_n && i < SENT_PATHS_MAX; i++) {
                const struct entry *e = &j->tree.v[j->plan.need[i]];

                jw_strn(w, str_n(e->path, e->path_len));
        }
        jw_end(w);
        jw_kint(w, "uploadedBytes", (int64_t) j->sent.sent_bytes);
        jw_key(w, "uploadedMB");
        jw_double(w, megabytes(j->sent.sent_bytes));
        if (j->dry_run) {
                jw_kbool(w, "dryRun", true);
                jw_kint(w, "wouldSendBytes", (int64_t) j->need_bytes);
        } else {
                jw_kint(w, "changedOnBox", j->sent.changed);
        }
}

static void write_left_out(struct jw *w, const struct sync_job *j)
{
        bool modules = false;

        if (j->skipped.len)
                write_list(w, "skipped", &j->skipped, NAMES_MAX);
        if (j->partial.len)
                write_list(w, "partiallyIgnored", &j->partial, NAMES_MAX);
        if (j->tree.excluded)
                jw_kint(w, "excluded", (int64_t) j->tree.excluded);
        for (size_t i = 0; i < j->tree.n; i++)
                if (j->tree.v[i].gitlink && j->tree.v[i].state == ENTRY_DIR) {
                        if (!modules)
                                jw_karr(w, "submodulesMissing");
                        modules = true;
                        jw_strn(w, str_n(j->tree.v[i].path, j->tree.v[i].path_len));
                }
        if (modules)
                jw_end(w);
}

static void write_stale(struct jw *w, const struct sync_job *j)
{
        if (j->prune && !j->dry_run)
                jw_kint(w, "pruned", j->pruned);
        if (j->prune_failed.len)
                write_list(w, "pruneFailed", &j->prune_failed, NAMES_MAX);
        if (j->stale_n == 0)
                return;
        jw_kobj(w, "staleInDest");
        jw_kint(w, "count", (int64_t) j->stale_n);
        write_list(w, "paths", &j->stale, STALE_PATHS_MAX);
        jw_kbool(w, "countIsPartial", j->plan.extras_partial);
        jw_end(w);
}

static void write_uncommitted(struct jw *w, const struct sync_job *j)
{
        if (!j->uncommitted.len)
                return;
        jw_kobj(w, "uncommitted");
        jw_kint(w, "count", (int64_t) list_len(&j->uncommitted));
        write_list(w, "paths", &j->uncommitted, STALE_PATHS_MAX);
        jw_end(w);
}

/* How dependencies are pinned at the top of what was selected, and whether that is new to the box. */
static void write_deps(struct jw *w, const struct sync_job *j)
{
        static const char *const locks[] = { "package-lock.json", "pnpm-lock.yaml", "yarn.lock",    "bun.lock",
                                             "uv.lock",           "poetry.lock",    "Cargo.lock",   "go.sum",
                                             "Gemfile.lock",      "composer.lock",  "Pipfile.lock", "mix.lock" };

        for (size_t i = 0; i < ARRAY_LEN(locks); i++) {
                const struct entry *it = tree_find(&j->tree, locks[i], strlen(locks[i]));
                bool sent = false;

                if (!it || it->state != ENTRY_OK || j->is_file)
                        continue;
                for (size_t k = 0; k < j->plan.need_n && !sent; k++)
                        sent = &j->tree.v[j->plan.need[k]] == it;
                jw_kobj(w, "deps");
                jw_kstr(w, "lockFile", locks[i]);
                jw_kbool(w, "changed", sent);
                jw_end(w);
                return;
        }
}

static const char *selected_text(const struct sync_job *j)
{
        if (j->is_file)
                return "one file";
        if (j->include_ignored)
                return "everything under localPath but .git, ignore rules not applied";
        if (j->from_git)
                return "git tracked + untracked files, honouring .gitignore";
        return "everything under localPath (no git working tree), without node_modules .git dist dist-web build .cache "
               "coverage "
               ".venv venv __pycache__ target .next .turbo";
}

static int64_t selected_count(const struct sync_job *j)
{
        int64_t n = 0;

        for (size_t i = 0; i < j->tree.n; i++)
                n += j->tree.v[i].state == ENTRY_OK;
        return n;
}

int job_result(struct sync_job *j, struct buf *out)
{
        _cleanup_free_ char *remote = xasprintf("/work/%s", j->dest.path);
        struct jw w;

        jw_init(&w, out);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr(&w, "dest", j->dest.path);
        jw_kstr(&w, "remotePath", remote);
        jw_kstr(&w, "selected", selected_text(j));
        jw_kint(&w, "files", selected_count(j));
        write_sent(&w, j);
        write_left_out(&w, j);
        write_stale(&w, j);
        write_uncommitted(&w, j);
        write_deps(&w, j);
        if (j->stale_n && !j->prune && !j->dry_run)
                jw_kstr(&w, "note",
                        "dest holds files that are not in localPath (staleInDest); they were left there. prune: true "
                        "removes them.");
        jw_key(&w, "notes");
        jw_json(&w, j->notes);
        return jw_end_all(&w);
}

void job_failure(const struct sync_job *j, const struct err *e, struct buf *out)
{
        struct buf names = { 0 };
        bool partly = j->sent.sent_bytes > 0;

        (void) buf_addf(out, "NOT SYNCED: /work/%s still has its old files%s. Failed while %s: %s", j->dest.path,
                        partly ? " (some of those that were being sent may be new already)" : "", j->step, err_text(e));
        for (size_t i = 0; i < j->plan.need_n && i < STALE_PATHS_MAX; i++) {
                const struct entry *it = &j->tree.v[j->plan.need[i]];

                names.max = (size_t) 1 << 20;
                (void) buf_add(&names, it->path, (size_t) it->path_len + 1);
        }
        if (names.len) {
                _cleanup_free_ char *text = list_text(&names, STALE_PATHS_MAX);
                (void) buf_addf(out, "\nBeing sent (%zu): %s%s", j->plan.need_n, text,
                                j->plan.need_n > STALE_PATHS_MAX ? " …" : "");
        }
        (void) buf_adds(out, "\nCalling sandbox_sync again is safe: it compares anew and sends what is missing.");
        buf_done(&names);
}
