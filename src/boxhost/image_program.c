#include "boxhost/image_program.h"

#include "boxhost/image_build.h"
#include "boxhost/program.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LIST_MAX (4 << 20)
#define TELL_EVERY 5

struct command {
        const char *verb, *name, *state, *as, *packages;
        bool keep_default;
        char *proxy[8 + 1];
};

/* What a machine behind a proxy says in its environment; the rest of it is dropped. */
static void remember_proxy(struct command *c)
{
        static const char *const names[] = { "http_proxy", "https_proxy", "ftp_proxy", "no_proxy",
                                             "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY" };
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                const char *value = getenv(names[i]);
                if (value && value[0])
                        c->proxy[n++] = xasprintf("%s=%s", names[i], value);
        }
}

/* One JSON object a line is what the caller reads. */
static void say(struct jw *w, struct buf *b)
{
        if (jw_end_all(w) == 0) {
                (void) printf("%s\n", buf_cstr(b));
                (void) fflush(stdout);
        }
}

static void tell(const struct image_progress *p, void *arg)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1024);
        const char **last = arg;
        struct jw w;

        if (*last == p->stage && p->done % TELL_EVERY != 0 && p->done != p->total)
                return;
        *last = p->stage;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "stage", p->stage);
        jw_kint(&w, "done", p->done);
        jw_kint(&w, "total", p->total);
        say(&w, &b);
}

static int open_cancel(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        (void) sigprocmask(SIG_BLOCK, &set, NULL);
        (void) signal(SIGPIPE, SIG_IGN);
        return signalfd(-1, &set, SFD_CLOEXEC);
}

static int run_build(struct image_store *s, const struct command *c, struct err *e)
{
        _cleanup_close_ int cancel = open_cancel();
        _cleanup_buf_ struct buf b = BUF_MAX(1024);
        const char *last = NULL;
        struct image_built built;
        struct image_build build = { .recipe = c->name,
                                     .name = c->as ? c->as : c->name,
                                     .packages = c->packages,
                                     .proxy = (const char *const *) (uintptr_t) c->proxy,
                                     .cancel = cancel,
                                     .keep_default = c->keep_default,
                                     .tell = tell,
                                     .arg = &last };
        struct jw w;
        int r = image_build(s, &build, &built, e);

        if (r < 0)
                return r;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "name", build.name);
        jw_kstr(&w, "release", built.release);
        jw_kint(&w, "packages", built.packages);
        jw_kint(&w, "bytes", (int64_t) built.bytes);
        jw_kint(&w, "durationMs", built.ms);
        jw_kbool(&w, "default", !c->keep_default);
        say(&w, &b);
        return 0;
}

struct listing {
        struct image_store *s;
        struct jw w;
        char usual[IMAGE_NAME_MAX + 1];
};

static void print_about(struct listing *l, const char *name, const char *version)
{
        char path[IMAGE_NAME_MAX + IMAGE_SKELETON_MAX + 16];
        _cleanup_buf_ struct buf text = BUF_MAX(8192);
        _cleanup_json_ struct json *about = NULL;

        snprintf(path, sizeof(path), "%s/%s/image.json", name, version);
        if (file_read(l->s->images, path, &text) < 0 || json_parse(text.p, text.len, &about, NULL) < 0)
                return;
        jw_kstr(&l->w, "release", json_get_str(about, "release", NULL));
        jw_kstr(&l->w, "builtAt", json_get_str(about, "builtAt", NULL));
        jw_kint(&l->w, "packages", json_get_int(about, "packages", 0));
        jw_kint(&l->w, "bytes", json_get_int(about, "bytes", 0));
}

static void print_image(const char *name, void *arg)
{
        struct listing *l = arg;
        char version[IMAGE_SKELETON_MAX];

        jw_obj(&l->w);
        jw_kstr(&l->w, "name", name);
        jw_kbool(&l->w, "default", cstr_eq(name, l->usual));
        jw_kint(&l->w, "boxes", (int64_t) image_users(l->s->boxes, name));
        if (image_current(l->s->images, name, version) == 0) {
                print_about(l, name, version);
                jw_kint(&l->w, "oldVersions", (int64_t) image_old_versions(l->s->images, name));
        }
        jw_end(&l->w);
}

static int run_list(struct image_store *s)
{
        _cleanup_buf_ struct buf b = BUF_MAX(LIST_MAX);
        struct listing l = { .s = s };

        image_default(s->images, l.usual);
        jw_init(&l.w, &b);
        jw_arr(&l.w);
        image_each(s->images, print_image, &l);
        say(&l.w, &b);
        return 0;
}

static int run(struct image_store *s, const struct command *c, struct err *e)
{
        if (cstr_eq(c->verb, "list"))
                return run_list(s);
        if (cstr_eq(c->verb, "rm"))
                return image_remove(s, c->name, e);
        if (cstr_eq(c->verb, "default"))
                return image_choose_default(s, c->name, e);
        return run_build(s, c, e);
}

static int parse(struct command *c, int argc, char **argv)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "name", required_argument, NULL, 'n' },
                                               { "packages", required_argument, NULL, 'p' },
                                               { "keep-default", no_argument, NULL, 'k' },
                                               { NULL, 0, NULL, 0 } };
        int code, words;

        while ((code = getopt_long(argc, argv, "", longs, NULL)) != -1) {
                switch (code) {
                case 's':
                        c->state = optarg;
                        break;
                case 'n':
                        c->as = optarg;
                        break;
                case 'p':
                        c->packages = optarg;
                        break;
                case 'k':
                        c->keep_default = true;
                        break;
                default:
                        return -EINVAL;
                }
        }
        words = argc - optind;
        c->verb = words > 0 ? argv[optind] : "";
        c->name = words > 1 ? argv[optind + 1] : NULL;
        if (!c->state)
                return -EINVAL;
        if (cstr_eq(c->verb, "list"))
                return words == 1 ? 0 : -EINVAL;
        return words == 2 && (cstr_eq(c->verb, "build") || cstr_eq(c->verb, "rm") || cstr_eq(c->verb, "default"))
                       ? 0
                       : -EINVAL;
}

static void say_error(const struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "error", err_text(e));
        say(&w, &b);
}

int image_main(int argc, char **argv)
{
        struct command c = { 0 };
        struct image_store s;
        struct err e = { 0 };
        int r;

        if (parse(&c, argc, argv) < 0) {
                fputs("boxhost --images build RECIPE [--name NAME] [--packages FILE] [--keep-default] | list | rm NAME "
                      "| "
                      "default NAME  --state DIR\n",
                      stderr);
                return 2;
        }
        remember_proxy(&c);
        program_cleanse(-1);
        log_setup("boxhost", LOG_LEVEL_INFO);
        r = image_store_open(c.state, &s, &e);
        if (r == 0)
                r = run(&s, &c, &e);
        image_store_close(&s);
        if (r < 0)
                say_error(&e);
        for (size_t i = 0; i < ARRAY_LEN(c.proxy); i++)
                freep(&c.proxy[i]);
        return r < 0;
}
