#include "boxd/beneath.h"
#include "boxd/filter.h"
#include "boxd/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENV_MAX 4096

struct env {
        char **v;
        size_t n;
};

static void env_free(struct env *e)
{
        for (size_t i = 0; i < e->n; i++)
                free(e->v[i]);
        free(e->v);
}

/* Takes over "K=V"; replaces a variable of the same name. */
static int env_put(struct env *e, char *pair)
{
        size_t name = (size_t) (strchrnul(pair, '=') - pair) + 1;

        for (size_t i = 0; i < e->n; i++) {
                if (strncmp(e->v[i], pair, name) != 0)
                        continue;
                free(e->v[i]);
                e->v[i] = pair;
                return 0;
        }
        if (e->n == ENV_MAX) {
                free(pair);
                return -E2BIG;
        }
        e->v = xrealloc(e->v, (e->n + 2) * sizeof(*e->v));
        e->v[e->n++] = pair;
        e->v[e->n] = NULL;
        return 0;
}

static int env_add(const char *key, struct json *value, void *arg)
{
        return env_put(arg, xasprintf("%s=%s", key, json_str(value)));
}

static int build_env(struct env *env, char *const *base, struct json *extra)
{
        int r = 0;

        for (; *base && r >= 0; base++)
                r = env_put(env, xstrdup(*base));
        return r < 0 || !extra ? r : json_each(extra, env_add, env);
}

static int open_cwd(const char *cwd, struct err *e)
{
        _cleanup_close_ int work = root_open("work", e);

        if (work < 0)
                return err_wrap(e, "cwd");
        int fd = beneath_open(work, cwd, O_PATH | O_DIRECTORY, 0, BENEATH_FOLLOW);
        if (fd == -EXDEV)
                return err_set(e, fd, "cwd: %s leads out of /work", cwd);
        return fd < 0 ? err_sys(e, fd, "cwd: /work/%s", cwd) : fd;
}

struct pipes {
        int stdin_r, stdin_w, out_r[2], out_w[2];
};

static void pipes_done(struct pipes *p)
{
        closep(&p->stdin_r);
        closep(&p->stdin_w);
        for (int i = 0; i < 2; i++) {
                closep(&p->out_r[i]);
                closep(&p->out_w[i]);
        }
}

static int make_pipes(struct pipes *p, bool wants_stdin)
{
        int fds[2];

        for (int i = 0; i < 2; i++) {
                if (pipe2(fds, O_CLOEXEC) < 0)
                        return -errno;
                p->out_r[i] = fds[0];
                p->out_w[i] = fds[1];
                fcntl(fds[0], F_SETFL, O_NONBLOCK);
        }
        if (!wants_stdin) {
                p->stdin_r = open("/dev/null", O_RDONLY | O_CLOEXEC);
                return p->stdin_r < 0 ? -errno : 0;
        }
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        p->stdin_r = fds[0];
        p->stdin_w = fds[1];
        fcntl(fds[1], F_SETFL, O_NONBLOCK);
        return 0;
}

struct start {
        const struct pipes *pipes;
        int cwd;
        char *const *argv, *const *env;
        const char *shell;
};

/* Between vfork and exec: system calls only, nothing of the parent's memory is written but *ret. */
static _Noreturn void become_shell(const struct start *s, volatile int *ret)
{
        sigset_t none;
        int r = 0;

        (void) setsid();
        for (int i = 1; i < NSIG; i++)
                signal(i, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (dup2(s->pipes->stdin_r, STDIN_FILENO) < 0 || dup2(s->pipes->out_w[0], STDOUT_FILENO) < 0 ||
            dup2(s->pipes->out_w[1], STDERR_FILENO) < 0 || fchdir(s->cwd) < 0)
                r = -errno;
        if (r == 0)
                r = filter_command();
        if (r == 0)
                execve(s->shell, s->argv, s->env);
        *ret = r < 0 ? r : -errno;
        _exit(127);
}

/* vfork by hand: posix_spawn has no place for the filter, and fork would copy the page tables of each keeper. */
static int spawn_one(const struct start *s, pid_t *ret)
{
        volatile int r = 0;
        pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): it does system calls only */

        if (pid == 0)
                become_shell(s, &r); /* NOLINT(clang-analyzer-unix.Vfork): the same */
        if (pid < 0)
                return -errno;
        if (r < 0) {
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
                return r;
        }
        *ret = pid;
        return 0;
}

static int spawn_shell(const struct pipes *p, int cwd, const char *cmd, char *const *env, pid_t *ret)
{
        static const char *const shells[] = { "/bin/bash", "/usr/bin/bash", "/bin/sh" };
        char *argv[] = { (char *) "bash", (char *) "-c", (char *) (uintptr_t) cmd, NULL };
        int r = -ENOENT;

        for (size_t i = 0; r == -ENOENT && i < ARRAY_LEN(shells); i++) {
                struct start s = { p, cwd, argv, env, shells[i] };

                if (i + 1 == ARRAY_LEN(shells))
                        argv[0] = (char *) "sh";
                r = spawn_one(&s, ret);
        }
        return r;
}

/*
 * When memory runs out, what a job started goes before boxd and its keepers, which are needed to tell of it. The child
 * shares our score until exec, so it is raised around the spawn and lowered again (allowed down to the value we were
 * born with, which is negative when whoever made the box said so).
 */
#define JOB_OOM_SCORE "500"

static void oom_score(const char *set, char *ret_old, size_t cap)
{
        _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

        if (fd < 0)
                return;
        if (ret_old) {
                ssize_t n = read(fd, ret_old, cap - 1);

                ret_old[n > 0 ? n : 0] = '\0';
        }
        if (pwrite(fd, set, strlen(set), 0) < 0 && ret_old)
                ret_old[0] = '\0';
}

void keeper_oom_score_of_jobs(void)
{
        oom_score(JOB_OOM_SCORE, NULL, 0);
}

static int fail(struct err *e, int r)
{
        if (r == -EAGAIN)
                return err_set(e, r, "no process could be started: the box's process limit is reached");
        if (r == -ENOMEM)
                return err_set(e, r, "no process could be started: the box's memory limit is reached");
        if (r == -E2BIG)
                return err_set(e, r, "the command and its environment are too long for one process");
        if (r == -ENOENT)
                return err_set(e, r, "the box has neither /bin/bash nor /bin/sh");
        return err_sys(e, r, "starting the command");
}

int keeper_spawn(struct keeper *k, char *const *base_env, struct err *e)
{
        _cleanup_(pipes_done) struct pipes p = { -1, -1, { -1, -1 }, { -1, -1 } };
        _cleanup_(env_free) struct env env = { 0 };
        char score[16] = "";

        _cleanup_close_ int cwd = open_cwd(k->args.cwd, e);
        if (cwd < 0)
                return cwd;
        int r = make_pipes(&p, k->args.wants_stdin);
        if (r >= 0)
                r = build_env(&env, base_env, k->args.env);
        if (r < 0)
                return fail(e, r);
        oom_score(JOB_OOM_SCORE, score, sizeof(score));
        r = spawn_shell(&p, cwd, k->args.cmd, env.v, &k->leader);
        if (score[0])
                oom_score(score, NULL, 0);
        if (r < 0)
                return fail(e, r);
        for (int i = 0; i < 2; i++)
                k->out[i].fd = steal_fd(&p.out_r[i]);
        k->in = steal_fd(&p.stdin_w);
        return 0;
}
