#include "sync/git.h"
#include "base/mem.h"
#include "loop/child.h"

#include <errno.h>
#include <stdlib.h>

#define LIST_MAX ((size_t) 512 << 20)
#define GIT_TIMEOUT_MS (5 * 60 * 1000)

extern char **environ;

static const char *const dropped[] = {
        "GIT_DIR=",
        "GIT_WORK_TREE=",
        "GIT_INDEX_FILE=",
        "GIT_PREFIX=",
        "GIT_COMMON_DIR=",
        "GIT_NAMESPACE=",
        "GIT_OBJECT_DIRECTORY=",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES=",
        "GIT_LITERAL_PATHSPECS=",
        "GIT_GLOB_PATHSPECS=",
        "GIT_NOGLOB_PATHSPECS=",
        "GIT_ICASE_PATHSPECS=",
        "GIT_OPTIONAL_LOCKS=",
        "GIT_TRACE",
        "LC_ALL=",
        "LANGUAGE=",
};

static bool is_dropped(const char *var)
{
        for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
                if (str_starts(str_of(var), str_of(dropped[i])))
                        return true;
        return false;
}

static const char **git_env(void)
{
        static const char *const extra[] = { "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", NULL };
        size_t n = 0, k = 0;

        while (environ && environ[n])
                n++;
        const char **env = xcalloc(n + ARRAY_LEN(extra), sizeof *env);
        for (size_t i = 0; i < n; i++)
                if (!is_dropped(environ[i]))
                        env[k++] = environ[i];
        for (size_t i = 0; extra[i]; i++)
                env[k++] = extra[i];
        return env;
}

/* Exit status, or -errno when git could not be run. */
static int coroutine_fn run_git(const char *root, const char *const *args, const struct buf *in, struct buf *out,
                                struct err *e)
{
        const char *argv[16] = { "git", "-C", root };
        _cleanup_free_ const char **env = git_env();
        size_t n = 3;

        while (*args && n < ARRAY_LEN(argv) - 1)
                argv[n++] = *args++;
        const struct child_spec spec = { .argv = argv,
                                         .env = env,
                                         .io = { in ? CHILD_PIPE : CHILD_NULL, CHILD_PIPE, CHILD_PIPE } };
        return child_run(&spec, in ? in->p : NULL, in ? in->len : 0, out, GIT_TIMEOUT_MS, e);
}

void git_info_done(struct git_info *g)
{
        free(g->toplevel);
        *g = (struct git_info){ 0 };
}

int coroutine_fn git_probe(const char *root, struct git_info *ret, struct err *e)
{
        static const char *const args[] = { "rev-parse", "--is-inside-work-tree", "--show-toplevel", NULL };
        _cleanup_buf_ struct buf out = BUF_MAX(65536);
        struct err why = { 0 };
        int r = run_git(root, args, NULL, &out, &why);

        *ret = (struct git_info){ 0 };
        if (r == -ENOENT)
                return 0; /* no git here: every folder is a plain one */
        if (r < 0)
                return err_set(e, r, "git could not be run: %s", err_text(&why));
        if (r != 0) {
                /* Inside a bare repository or .git folder git fails too; only a refusal must not pass for a plain
                 * folder. */
                if (strstr(why.msg, "not a git repository") || strstr(why.msg, "must be run in a work tree"))
                        return 0;
                return err_set(e, -EPERM, "git refuses %.200s: %s", root, why.msg[0] ? why.msg : "no reason given");
        }
        struct str rest = buf_str(&out);
        ret->is_repo = str_eq(str_cut(&rest, '\n'), STR("true"));
        if (rest.n && rest.p[rest.n - 1] == '\n')
                rest.n--;
        ret->toplevel = xstrndup(rest.n ? rest.p : "", rest.n);
        return 0;
}

static int coroutine_fn run_list(const char *root, const char *const *args, struct buf *out, struct err *e)
{
        struct err why = { 0 };
        int r;

        out->max = LIST_MAX;
        r = run_git(root, args, NULL, out, &why);
        if (r < 0)
                return err_set(e, r, "git %s could not be run: %s", args[0], err_text(&why));
        if (r != 0)
                return err_set(e, -EIO, "git %s ended with %d: %s", args[0], r, why.msg);
        return 0;
}

int coroutine_fn git_tracked(const char *root, struct buf *out, struct err *e)
{
        static const char *const args[] = { "ls-files", "-z", "-v", "--stage", "--cached", "--", NULL };

        return run_list(root, args, out, e);
}

int coroutine_fn git_untracked(const char *root, struct buf *out, struct err *e)
{
        static const char *const args[] = { "ls-files", "-z", "-v", "--others", "--exclude-standard", "--", NULL };

        return run_list(root, args, out, e);
}

int coroutine_fn git_status(const char *root, struct buf *out, struct err *e)
{
        static const char *const args[] = { "status", "--porcelain=v1", "-z", "--no-renames", "--", ".", NULL };

        return run_list(root, args, out, e);
}

int coroutine_fn git_check_ignore(const char *root, const struct buf *paths, struct buf *out, struct err *e)
{
        static const char *const args[] = { "check-ignore", "-z", "--stdin", NULL };
        struct err why = { 0 };
        int r;

        if (paths->len == 0)
                return 0;
        out->max = LIST_MAX;
        r = run_git(root, args, paths, out, &why);
        if (r < 0)
                return err_set(e, r, "git check-ignore could not be run: %s", err_text(&why));
        if (r > 1) /* 1: none is ignored */
                return err_set(e, -EIO, "git check-ignore ended with %d: %s", r, why.msg);
        return 0;
}

/* "H 100644 <object> 0\tpath" for tracked entries (S: skip-worktree, lower case: assume-unchanged), "? path" for
 * others. */
static int parse_line(struct tree *t, char *line, size_t len)
{
        char *path, *tab;
        size_t path_len;
        struct entry *e;

        if (len < 3 || line[1] != ' ')
                return -EPROTO;
        if (line[0] == '?') {
                bool nested = line[len - 1] == '/';

                path = line + 2;
                path_len = len - 2 - (nested ? 1 : 0);
                path[path_len] = '\0';
                if (path_len > GUEST_PATH_MAX)
                        return 0;
                e = tree_add(t, path, path_len);
                e->nested = nested;
                e->state = nested ? ENTRY_DIR : ENTRY_NEW;
                return 0;
        }
        tab = memchr(line, '\t', len);
        if (!tab || len < 8)
                return -EPROTO;
        path = tab + 1;
        path_len = len - (size_t) (path - line);
        if (path_len == 0)
                return -EPROTO;
        if (path_len > GUEST_PATH_MAX)
                return 0;
        e = tree_add(t, path, path_len);
        e->gitlink = memcmp(line + 2, "160000", 6) == 0;
        e->protected = line[0] == 'S' || (line[0] >= 'a' && line[0] <= 'z');
        return 0;
}

int git_parse_list(struct tree *t, struct buf *text, struct err *e)
{
        size_t n = text->len, at = 0;
        char *p = buf_steal(text);

        if (!p)
                return n == 0 ? 0 : err_set(e, -ENOMEM, "out of memory for the list of files");
        tree_own(t, p);
        while (at < n) {
                char *end = memchr(p + at, '\0', n - at);

                if (!end || parse_line(t, p + at, (size_t) (end - (p + at))) < 0)
                        return err_set(e, -EPROTO, "git ls-files printed something unexpected");
                at = (size_t) (end - p) + 1;
        }
        return 0;
}
