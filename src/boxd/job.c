#include "boxd/job.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

const char *signal_name(int sig, char out[16])
{
        const char *abbrev = sigabbrev_np(sig);

        if (abbrev)
                snprintf(out, 16, "SIG%s", abbrev);
        else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
                snprintf(out, 16, "SIGRTMIN+%d", sig - SIGRTMIN);
        else
                snprintf(out, 16, "SIG%d", sig);
        return out;
}

void job_status_fields(struct jw *w, int status, unsigned flags)
{
        char name[16];

        if (WIFSIGNALED(status)) {
                jw_kint(w, "exitCode", 128 + WTERMSIG(status));
                jw_kstr(w, "signal", signal_name(WTERMSIG(status), name));
        } else {
                jw_kint(w, "exitCode", WEXITSTATUS(status));
        }
        jw_kbool(w, "timedOut", flags & JOB_TIMED_OUT);
        jw_kbool(w, "oomKilled", false); /* the box's own counter is out of sight in here: the server knows */
        jw_kbool(w, "sigkill", flags & JOB_SIGKILLED);
}

static const char *end_reason(const struct job_view *v)
{
        if (v->flags & JOB_LOST)
                return "killed together with its keeper (kill -9 -1, or no memory was left)";
        if (v->flags & JOB_TIMED_OUT)
                return "timeout";
        if (v->flags & JOB_STOPPED)
                return "stopped";
        return WIFSIGNALED(v->status) ? "signal" : "exited";
}

void job_fields(struct jw *w, const struct job_view *v)
{
        char when[RFC3339_LEN];

        jw_kstr(w, "id", v->id);
        jw_kbool(w, "background", v->background);
        jw_kstr(w, "cmd", v->cmd);
        jw_kstr(w, "cwd", v->cwd);
        jw_kstr(w, "note", v->note);
        jw_kstr(w, "startedAt", rfc3339(v->started_ms, when));
        jw_kint(w, "pid", v->pid);
        jw_kbool(w, "running", v->running);
        if (v->leader_done) {
                job_status_fields(w, v->status, v->flags);
                jw_kstr(w, "endedAt", rfc3339(v->ended_ms, when));
        }
        if (!v->running)
                jw_kstr(w, "endReason", end_reason(v));
}

bool job_id_ok(const char *id)
{
        size_t n = strlen(id);

        for (size_t i = 0; i < n; i++)
                if (!c_is_alnum(id[i]) && !strchr("._:-", id[i]))
                        return false;
        return n > 0 && n <= JOB_ID_MAX;
}

static int check_env(const char *key, struct json *value, void *arg)
{
        struct str s = json_strn(value);

        if (!*key || strchr(key, '='))
                return err_set(arg, -EINVAL, "`env` has a variable with an invalid name: \"%s\"", key);
        if (json_type(value) != JSON_STRING || (s.n && memchr(s.p, '\0', s.n)))
                return err_set(arg, -EINVAL, "`env.%s` must be a string without NUL, got %s", key,
                               json_type_name(value));
        return 0;
}

int exec_args_parse(struct json *head, struct exec_args *a, struct err *e)
{
        memset(a, 0, sizeof(*a));
        int r = json_need_str(head, "id", &a->id, e);
        if (r >= 0)
                r = json_need_str(head, "cmd", &a->cmd, e);
        if (r < 0)
                return r;
        if (!job_id_ok(a->id))
                return err_set(e, -EINVAL, "`id` must be 1 to %d of [A-Za-z0-9._:-], got \"%.80s\"", JOB_ID_MAX, a->id);
        struct str cmd = json_strn(json_get(head, "cmd"));
        if (cmd.n > JOB_CMD_MAX)
                return err_set(e, -E2BIG,
                               "`cmd` has %zu bytes, at most %u are possible: put it into a file and run that", cmd.n,
                               JOB_CMD_MAX);
        if (memchr(cmd.p, '\0', cmd.n))
                return err_set(e, -EINVAL, "`cmd` holds a NUL byte, which no command line can");
        a->cwd = json_get_str(head, "cwd", ".");
        a->note = json_get_str(head, "note", NULL);
        a->env = json_get(head, "env");
        a->timeout_ms = json_get_int(head, "timeoutMs", 0);
        a->background = json_get_bool(head, "background", false);
        a->wants_stdin = json_get_bool(head, "stdin", false);
        if (a->timeout_ms < 0)
                return err_set(e, -EINVAL, "`timeoutMs` must not be negative, got %lld", (long long) a->timeout_ms);
        if (a->env && json_type(a->env) != JSON_OBJECT)
                return err_set(e, -EINVAL, "`env` must be an object, got %s", json_type_name(a->env));
        return a->env ? json_each(a->env, check_env, e) : 0;
}

int jobs_dir(void)
{
        int fd = open(JOBS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0 || errno != ENOENT)
                return fd < 0 ? -errno : fd;
        int r = mkdir_all(STATE_DIR, 0755);
        if (r >= 0)
                r = chmod(STATE_DIR, 0700) < 0 ? -errno : mkdir_all(JOBS_DIR, 0700);
        if (r < 0)
                return r;
        fd = open(JOBS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

void jobs_file_name(unsigned seq, int stream, char out[32])
{
        snprintf(out, 32, "%u.%d", seq, stream + 1);
}
