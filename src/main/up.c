/* up: a server in the background, a first box in it, a command's output from inside, and how to connect an agent. */
#include "cli.h"
#include "remote.h"

#include "base/file.h"
#include "base/mem.h"
#include "loop/child.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_MS 60000
#define FIRST_BOX "first"
#define FIRST_COMMAND                                                                                              \
        "echo \"hello from $(hostname): $(. /etc/os-release && echo \"$PRETTY_NAME\"), $(nproc) cores, user $(id " \
        "-un)\""

struct up {
        char *state;
        const char *listen;
        bool json, quiet;
        char *key, *id, *output, *join; /* join: the first person's link, while there is no person */
        struct server_info info;
        pid_t server;
};

static void say(const struct up *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct up *u, const char *fmt, ...)
{
        va_list ap;

        if (u->json)
                return;
        va_start(ap, fmt);
        (void) vprintf(fmt, ap);
        va_end(ap);
        (void) fflush(stdout);
}

/* The server's own words when it could not start: the end of its log. */
static void show_log(const struct up *u)
{
        _cleanup_free_ char *path = xasprintf("%s/server.log", u->state);
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);

        if (file_read(AT_FDCWD, path, &b) < 0 || !b.len)
                return;
        size_t at = b.len;
        for (int lines = 0; at > 0 && lines < 9; at--)
                lines += b.p[at - 1] == '\n';
        (void) fprintf(stderr, "The end of %s:\n%.*s", path, (int) (b.len - at), b.p + at);
}

static pid_t spawn_server(const struct up *u, struct err *e)
{
        _cleanup_free_ char *log = xasprintf("%s/server.log", u->state);
        _cleanup_free_ char *self = NULL;
        int r = sibling_program("parallelsandbox", &self, e);

        if (r < 0)
                return r;
        /* A log of the last run that has grown large is set aside, so that it never grows without end. */
        struct stat st;
        if (stat(log, &st) == 0 && st.st_size > (8 << 20)) {
                _cleanup_free_ char *old = xasprintf("%s.old", log);
                (void) rename(log, old);
        }
        pid_t pid = fork();
        if (pid != 0)
                return pid < 0 ? err_sys(e, -errno, "fork") : pid;
        (void) setsid();
        int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (in >= 0)
                (void) dup2(in, 0);
        if (out >= 0) {
                (void) dup2(out, 1);
                (void) dup2(out, 2);
        }
        (void) close_range(3, ~0u, 0);
        (void) execl(self, self, "serve", "--state", u->state, "--listen", u->listen, (char *) NULL);
        _exit(127);
}

static int coroutine_fn wait_ready(struct up *u, struct err *e)
{
        int64_t until = loop_now() + READY_MS;

        while (loop_now() < until) {
                struct remote r;
                int status = 0;

                if (u->server && waitpid(u->server, &status, WNOHANG) == u->server)
                        return err_set(e, -EIO, "the server ended at once (status %d)",
                                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
                if (server_info_read(u->state, &u->info, e) == 0 && remote_open(u->info.url, NULL, &r, e) == 0) {
                        int code = remote_get(&r, "/readyz", NULL, e);

                        remote_close(&r);
                        if (code == 200)
                                return 0;
                }
                (void) coro_sleep(50);
        }
        return err_set(e, -ETIMEDOUT, "the server was not ready after %d s", READY_MS / 1000);
}

/* The key that `up` prints is kept, for the one who runs it, so that a second run prints the same line. */
static int coroutine_fn get_key(struct up *u, struct err *e)
{
        _cleanup_free_ char *path = xasprintf("%s/up.key", u->state), *self = NULL;
        _cleanup_buf_ struct buf b = BUF_MAX(256), out = BUF_MAX(256);
        int r;

        if (file_read(AT_FDCWD, path, &b) == 0 && b.len > 10) {
                struct str key = str_trim(buf_str(&b), "\n ");

                u->key = xstrndup(key.p, key.n);
                return 0;
        }
        r = sibling_program("parallelsandbox", &self, e);
        if (r < 0)
                return r;
        const char *argv[] = { self, "keys", "add", "up", "--state", u->state, NULL };
        struct child_spec spec = { .argv = argv, .io = { CHILD_NULL, CHILD_PIPE, CHILD_PIPE } };
        r = child_run(&spec, NULL, 0, &out, 30000, e);
        if (r != 0)
                return r < 0 ? r : err_wrap(e, "making a key");
        struct str key = str_trim(buf_str(&out), "\n ");
        u->key = xstrndup(key.p, key.n);
        return file_write_atomic(AT_FDCWD, path, key.p, key.n, 0600, e);
}

/* A link for the first person; none once there is one. */
static int coroutine_fn get_join(struct up *u, struct err *e)
{
        _cleanup_free_ char *self = NULL;
        _cleanup_buf_ struct buf out = BUF_MAX(1024);
        int r = sibling_program("parallelsandbox", &self, e);

        if (r < 0)
                return r;
        const char *argv[] = { self, "users", "invite", "--first", "--state", u->state, NULL };
        struct child_spec spec = { .argv = argv, .io = { CHILD_NULL, CHILD_PIPE, CHILD_PIPE } };
        r = child_run(&spec, NULL, 0, &out, 30000, e);
        if (r != 0)
                return r < 0 ? r : err_wrap(e, "making the first person's link");
        struct str link = str_trim(buf_str(&out), "\n ");
        if (link.n)
                u->join = xstrndup(link.p, link.n);
        return 0;
}

/* A second `up` finds the first box again, if its key still works. */
static int coroutine_fn find_first_box(struct up *u, struct remote *r, struct err *e)
{
        _cleanup_json_ struct json *list = NULL;
        int ret = remote_tool(r, "sandbox_list", json_obj(), &list, e);
        const struct json *boxes = json_get(list, "boxes");

        for (size_t i = 0; ret == 0 && i < json_len(boxes); i++)
                if (cstr_eq(json_get_str(json_at(boxes, i), "name", ""), FIRST_BOX) &&
                    cstr_eq(json_get_str(json_at(boxes, i), "status", ""), "running"))
                        u->id = xstrdup(json_get_str(json_at(boxes, i), "id", ""));
        return ret;
}

static int coroutine_fn try_box(struct up *u, struct err *e)
{
        _cleanup_json_ struct json *started = NULL, *ran = NULL;
        struct remote r;
        int ret = remote_open(u->info.url, u->key, &r, e);

        if (ret == 0)
                ret = find_first_box(u, &r, e);
        if (ret == 0 && !u->id) {
                struct json *args = json_obj();

                json_set_str(args, "name", FIRST_BOX);
                json_set_str(args, "goal", "Show that this server makes boxes");
                json_set_str(args, "size", "small");
                ret = remote_tool(&r, "sandbox_start", args, &started, e);
                if (ret == 0)
                        u->id = xstrdup(json_get_str(started, "id", ""));
        }
        if (ret == 0) {
                struct json *args = json_obj();

                json_set_str(args, "id", u->id);
                json_set_str(args, "cmd", FIRST_COMMAND);
                json_set_str(args, "note", "Say hello from inside the box");
                ret = remote_tool(&r, "sandbox_exec", args, &ran, e);
        }
        if (ret == 0 && json_get_int(ran, "exitCode", -1) != 0)
                ret = err_set(e, -EIO, "the first command ended with %lld: %s",
                              (long long) json_get_int(ran, "exitCode", -1), json_get_str(ran, "stderr", ""));
        if (ret == 0)
                u->output = xstrdup(json_get_str(ran, "stdout", ""));
        remote_close(&r);
        return ret;
}

static int coroutine_fn up_main(void *arg, struct err *e)
{
        struct up *u = arg;
        int r;

        if (server_info_read(u->state, &u->info, e) == 0) {
                say(u, "A server already runs in %s.\n", u->state);
        } else {
                say(u, "Starting a server in %s …\n", u->state);
                u->server = spawn_server(u, e);
                if (u->server < 0)
                        return (int) u->server;
        }
        r = wait_ready(u, e);
        if (r < 0) {
                show_log(u);
                return r;
        }
        say(u, "It listens on %s. Starting a box …\n", u->info.url);
        r = get_key(u, e);
        if (r == 0)
                r = get_join(u, e);
        return r < 0 ? r : try_box(u, e);
}

static void report(const struct up *u, const char *adapter)
{
        if (u->json) {
                _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
                struct jw w;

                jw_init(&w, &b);
                jw_obj(&w);
                jw_kstr(&w, "url", u->info.url);
                jw_kstr(&w, "key", u->key);
                jw_kstr(&w, "box", u->id);
                jw_kstr(&w, "output", u->output);
                jw_kstr(&w, "join", u->join);
                jw_kstr(&w, "adapter", adapter);
                (void) jw_end_all(&w);
                (void) printf("%s\n", buf_cstr(&b));
                return;
        }
        (void) printf("Box %s says:\n\n  %s\n", u->id, u->output);
        if (u->join)
                (void) printf(
                        "Open this link in a browser, once, to make your sign-in (it works for a day):\n\n  %s\n\n",
                        u->join);
        else
                (void) printf("Open %s/ in a browser.\n\n", u->info.url);
        (void) printf("Connect an agent, Claude Code for example:\n\n");
        (void) printf("  claude mcp add parallelsandbox --env PARALLELSANDBOX_MCP_URL=%s/mcp --env "
                      "PARALLELSANDBOX_API_KEY=%s -- %s\n\n",
                      u->info.url, u->key, adapter);
        (void) printf("or, without sandbox_sync and sandbox_pull, over plain HTTP:\n\n");
        (void) printf(
                "  claude mcp add --transport http parallelsandbox %s/mcp --header \"Authorization: Bearer %s\"\n\n",
                u->info.url, u->key);
        _cleanup_free_ char *usual = default_state_dir();
        bool other = !cstr_eq(usual, u->state);
        if (!image_chosen(u->state))
                (void) printf(
                        "Boxes start from this machine's own programs. The image to work with (git, node, python, a "
                        "compiler, Chromium, a screen;\nsome 480 MB to fetch, 2 GB on the disk) is made, and made the "
                        "default, by:\n\n  parallelsandbox image build debian%s%s\n\n",
                        other ? " --state " : "", other ? u->state : "");
        (void) printf("Stop it with: parallelsandbox down%s%s\n", other ? " --state " : "", other ? u->state : "");
}

int cmd_up(int argc, char **argv)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "listen", required_argument, NULL, 'l' },
                                               { "json", no_argument, NULL, 'j' },
                                               { 0 } };
        struct up u = { .state = default_state_dir(), .listen = DEFAULT_LISTEN };
        _cleanup_free_ char *adapter = NULL;
        struct err e = { 0 };
        int c, r = 0;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(u.state);
                        u.state = xstrdup(optarg);
                } else if (c == 'l') {
                        u.listen = optarg;
                } else if (c == 'j') {
                        u.json = true;
                } else {
                        return EXIT_USAGE;
                }
        }
        if (optind < argc)
                return complain("up", EXIT_USAGE, "there is no argument \"%s\"", argv[optind]);
        if (geteuid() != 0)
                return complain(
                        "up", 1,
                        "boxes need root on this machine: run it as root (the server keeps no privileges for itself);"
                        " parallelsandbox doctor says more");
        r = sibling_program("parallelsandbox-mcp", &adapter, &e);
        if (r == 0)
                r = state_prepare(u.state, &e);
        if (r == 0)
                r = remote_run(up_main, &u, &e);
        if (r == 0)
                report(&u, adapter);
        free(u.state);
        free(u.key);
        free(u.id);
        free(u.output);
        free(u.join);
        return r < 0 ? complain("up", 1, "%s", err_text(&e)) : 0;
}
