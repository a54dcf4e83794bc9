/* image: the images that boxes start from. boxhost does the work, in a process of its own; this shows how far it is. */
#include "cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES ((size_t) 4 << 20)
#define TELL_MS 5000

static const char usage[] =
        "usage: image build RECIPE [--name NAME] [--packages FILE] [--keep-default] | list | rm NAME | "
        "default NAME [--state DIR] [--json]";

struct options {
        char *state;
        const char *verb, *name, *as, *packages;
        bool keep_default, json;
};

/* How far a build is, for whoever watches: one line that changes on a terminal, a line now and then elsewhere. */
struct display {
        bool terminal;
        int64_t begin, told;
        char stage[80];
};

struct answer {
        struct display display;
        struct json *result; /* the last object that was no progress */
};

static void show(struct display *d, const struct json *p)
{
        const char *stage = json_get_str(p, "stage", "");
        int64_t done = json_get_int(p, "done", 0), total = json_get_int(p, "total", 0), now = clock_ms();
        int64_t sec = (now - d->begin) / 1000;
        char count[48] = "";

        /* Stages with a count take turns quickly. */
        if (!d->terminal && (total > 0 || cstr_eq(stage, d->stage)) && now - d->told < TELL_MS)
                return;
        d->told = now;
        (void) snprintf(d->stage, sizeof d->stage, "%s", stage);
        if (total > 0)
                (void) snprintf(count, sizeof count, " (%lld of %lld)", (long long) done, (long long) total);
        (void) fprintf(stderr, d->terminal ? "\r\033[K%2lld:%02lld  %s%s" : "%2lld:%02lld  %s%s\n",
                       (long long) sec / 60, (long long) sec % 60, stage, count);
        (void) fflush(stderr);
}

static void clear_line(const struct display *d)
{
        if (d->terminal && d->stage[0])
                (void) fputs("\r\033[K", stderr);
}

static void take_line(struct answer *a, struct str line)
{
        struct json *j = NULL;

        if (json_parse(line.p, line.n, &j, NULL) < 0)
                return;
        if (json_has(j, "stage")) {
                show(&a->display, j);
                json_unref(j);
                return;
        }
        json_unref(a->result);
        a->result = j;
}

static void read_lines(struct answer *a, int fd)
{
        _cleanup_buf_ struct buf b = BUF_MAX(LINE_BYTES);

        for (;;) {
                char *room = buf_room(&b, 4096), *end;
                ssize_t n = room ? read(fd, room, 4096) : -1;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return;
                buf_grew(&b, (size_t) n);
                while (b.len && (end = memchr(b.p, '\n', b.len))) {
                        size_t len = (size_t) (end - b.p);

                        take_line(a, str_n(b.p, len));
                        buf_consume(&b, len + 1);
                }
        }
}

static _Noreturn void exec_boxhost(const struct options *o, const char *boxhost, int out)
{
        const char *argv[12] = { boxhost, "--images", o->verb };
        size_t n = 3;

        if (o->name)
                argv[n++] = o->name;
        argv[n++] = "--state";
        argv[n++] = o->state;
        if (o->as) {
                argv[n++] = "--name";
                argv[n++] = o->as;
        }
        if (o->packages) {
                argv[n++] = "--packages";
                argv[n++] = o->packages;
        }
        if (o->keep_default)
                argv[n++] = "--keep-default";
        argv[n] = NULL;
        /* Whatever ends this command ends the work; an interrupt from the keyboard reaches both anyway. */
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) signal(SIGINT, SIG_DFL);
        (void) signal(SIGTERM, SIG_DFL);
        (void) dup2(out, 1);
        (void) execv(boxhost, (char **) (uintptr_t) argv);
        _exit(127);
}

static pid_t worker;

static void pass_on(int signum)
{
        if (worker > 0)
                (void) kill(worker, signum);
}

/* Asks boxhost; *ret (may become NULL) is what it answered. */
static int ask(const struct options *o, struct json **ret, struct err *e)
{
        struct sigaction act = { .sa_handler = pass_on };
        _cleanup_free_ char *boxhost = NULL;
        struct answer a = { .display = { .terminal = isatty(2) == 1, .begin = clock_ms() } };
        int fd[2], status = 0, r = sibling_program("boxhost", &boxhost, e);

        if (r < 0)
                return r;
        if (pipe2(fd, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "pipe");
        worker = fork();
        if (worker < 0)
                return err_sys(e, -errno, "fork");
        if (worker == 0)
                exec_boxhost(o, boxhost, fd[1]);
        (void) sigaction(SIGINT, &act, NULL);
        (void) sigaction(SIGTERM, &act, NULL);
        (void) close(fd[1]);
        read_lines(&a, fd[0]);
        (void) close(fd[0]);
        while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
                ;
        clear_line(&a.display);
        const char *error = json_get_str(a.result, "error", NULL);
        if (error || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                r = err_set(e, -EIO, "%s", error ? error : "boxhost ended before it was done; nothing was changed");
                json_unref(a.result);
                return r;
        }
        *ret = a.result;
        return 0;
}

bool image_chosen(const char *state)
{
        _cleanup_free_ char *path = xasprintf("%s/boxhost/images/.default", state);
        _cleanup_buf_ struct buf name = BUF_MAX(256);

        return file_read(AT_FDCWD, path, &name) == 0 && !cstr_eq(buf_cstr(&name), "host");
}

static void print_size(const struct json *image)
{
        int64_t bytes = json_get_int(image, "bytes", 0);

        if (bytes)
                (void) printf("  %lld packages of %s, %lld MB, built %.16s",
                              (long long) json_get_int(image, "packages", 0), json_get_str(image, "release", "?"),
                              (long long) bytes / 1000000, json_get_str(image, "builtAt", ""));
}

static void print_list(const struct json *images)
{
        for (size_t i = 0; i < json_len(images); i++) {
                const struct json *image = json_at(images, i);
                int64_t boxes = json_get_int(image, "boxes", 0), old = json_get_int(image, "oldVersions", 0);

                (void) printf("%-16s %-8s %lld box%s", json_get_str(image, "name", "?"),
                              json_get_bool(image, "default", false) ? "default" : "", (long long) boxes,
                              boxes == 1 ? "" : "es");
                if (cstr_eq(json_get_str(image, "name", ""), "host"))
                        (void) printf("  this machine's own programs");
                print_size(image);
                if (old)
                        (void) printf("; %lld older version%s still in use", (long long) old, old == 1 ? "" : "s");
                (void) printf("\n");
        }
}

static void print_built(const struct json *built)
{
        int64_t sec = json_get_int(built, "durationMs", 0) / 1000;
        bool usual = json_get_bool(built, "default", false);

        (void) printf("The image %s is ready: %lld packages of %s, %lld MB, made in %lld:%02lld.\n%s\n",
                      json_get_str(built, "name", "?"), (long long) json_get_int(built, "packages", 0),
                      json_get_str(built, "release", "?"), (long long) json_get_int(built, "bytes", 0) / 1000000,
                      (long long) sec / 60, (long long) sec % 60,
                      usual ? "New boxes start from it from now on; those that run go on as they are."
                            : "The default image is as it was.");
}

static void report(const struct options *o, const struct json *answer)
{
        if (o->json) {
                _cleanup_free_ char *text = answer ? json_text(answer) : xasprintf("{\"name\":\"%s\"}", o->name);

                (void) printf("%s\n", text);
        } else if (cstr_eq(o->verb, "list")) {
                print_list(answer);
        } else if (cstr_eq(o->verb, "build")) {
                print_built(answer);
        } else if (cstr_eq(o->verb, "rm")) {
                (void) printf("The image %s is removed.\n", o->name);
        } else {
                (void) printf("New boxes start from %s from now on.\n", o->name);
        }
}

static int parse(int argc, char **argv, struct options *o)
{
        static const struct option longs[] = {
                { "state", required_argument, NULL, 's' },  { "json", no_argument, NULL, 'j' },
                { "name", required_argument, NULL, 'n' },   { "packages", required_argument, NULL, 'p' },
                { "keep-default", no_argument, NULL, 'k' }, { 0 }
        };
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(o->state);
                        o->state = xstrdup(optarg);
                } else if (c == 'j') {
                        o->json = true;
                } else if (c == 'n') {
                        o->as = optarg;
                } else if (c == 'p') {
                        o->packages = optarg;
                } else if (c == 'k') {
                        o->keep_default = true;
                } else {
                        return -EINVAL;
                }
        }
        int words = argc - optind;
        o->verb = words > 0 ? argv[optind] : "";
        o->name = words > 1 ? argv[optind + 1] : NULL;
        bool build = cstr_eq(o->verb, "build");
        if (!build && (o->as || o->packages || o->keep_default))
                return -EINVAL;
        if (cstr_eq(o->verb, "list"))
                return words == 1 ? 0 : -EINVAL;
        return words == 2 && (build || cstr_eq(o->verb, "rm") || cstr_eq(o->verb, "default")) ? 0 : -EINVAL;
}

int cmd_image(int argc, char **argv)
{
        struct options o = { .state = default_state_dir() };
        struct json *answer = NULL;
        struct err e = { 0 };
        int code = 0;

        if (parse(argc, argv, &o) < 0)
                code = complain("image", EXIT_USAGE, "%s", usage);
        else if (geteuid() != 0)
                code = complain("image", 1, "images belong to root: run it as root");
        else if (state_prepare(o.state, &e) < 0 || ask(&o, &answer, &e) < 0)
                code = complain("image", 1, "%s", err_text(&e));
        else
                report(&o, answer);
        json_unref(answer);
        free(o.state);
        return code;
}
