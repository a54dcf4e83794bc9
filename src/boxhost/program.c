#include "boxhost/program.h"

#include "boxhost/host.h"
#include "boxhost/image_program.h"
#include "boxhost/reconcile.h"
#include "boxhost/serve.h"
#include "boxhost/sys.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_DEFAULT 4
#define OOM_SCORE "-900"

static const char usage[] =
        "boxhost --state DIR --server-uid UID --boxd PATH (--fd 3 | --listen SOCKET [--peer-uid UID])\n"
        "        [--subnet 198.18.0.0/16] [--allow-net CIDR]… [--resolver ADDR] [--pool N] [--disk-reserve BYTES]\n"
        "        [--log-level LEVEL]\n"
        "boxhost --cleanup --state DIR      destroys all boxes of DIR and removes every trace on the machine\n"
        "boxhost --features                 prints what this machine can do for boxes, as JSON\n"
        "boxhost --images … --state DIR     what `parallelsandbox image` is: build, list, rm, default\n";

struct command {
        struct host_options host;
        struct serve_options serve;
        bool cleanup, features, peer_given;
        enum log_level level;
};

enum option_code {
        O_STATE = 1,
        O_UID,
        O_BOXD,
        O_FD,
        O_LISTEN,
        O_PEER,
        O_SUBNET,
        O_ALLOW,
        O_RESOLVER,
        O_POOL,
        O_RESERVE,
        O_LEVEL,
        O_CLEANUP,
        O_FEATURES,
        O_HELP,
        O_VERSION
};

static const struct option long_options[] = {
        { "state", required_argument, NULL, O_STATE },
        { "server-uid", required_argument, NULL, O_UID },
        { "boxd", required_argument, NULL, O_BOXD },
        { "fd", required_argument, NULL, O_FD },
        { "listen", required_argument, NULL, O_LISTEN },
        { "peer-uid", required_argument, NULL, O_PEER },
        { "subnet", required_argument, NULL, O_SUBNET },
        { "allow-net", required_argument, NULL, O_ALLOW },
        { "resolver", required_argument, NULL, O_RESOLVER },
        { "pool", required_argument, NULL, O_POOL },
        { "disk-reserve", required_argument, NULL, O_RESERVE },
        { "log-level", required_argument, NULL, O_LEVEL },
        { "cleanup", no_argument, NULL, O_CLEANUP },
        { "features", no_argument, NULL, O_FEATURES },
        { "help", no_argument, NULL, O_HELP },
        { "version", no_argument, NULL, O_VERSION },
        { NULL, 0, NULL, 0 },
};

static int number(const char *text, uint64_t max, uint64_t *ret)
{
        return parse_u64(str_of(text), max, ret);
}

/* A subnet must have room for all indices. */
static int take_subnet(struct command *c, const char *text)
{
        int r = net_range_parse(text, &c->host.subnet);

        return r == 0 && c->host.subnet.bits > 19 ? -ERANGE : r;
}

static int take_allow(struct command *c, const char *text)
{
        if (c->host.allow_count == NET_ALLOW_MAX)
                return -E2BIG;
        return net_range_parse(text, &c->host.allow[c->host.allow_count++]);
}

static int take_uid(const char *text, uid_t *ret)
{
        uint64_t v;
        int r = number(text, UINT32_MAX - 1, &v);

        if (r == 0)
                *ret = (uid_t) v;
        return r;
}

static int take_option(struct command *c, int code, const char *text)
{
        uint64_t v = 0;
        int r = 0;

        switch (code) {
        case O_STATE:
                c->host.state = text;
                break;
        case O_BOXD:
                c->host.boxd = text;
                break;
        case O_RESOLVER:
                c->host.resolver = text;
                break;
        case O_LISTEN:
                c->serve.listen = text;
                break;
        case O_CLEANUP:
                c->cleanup = true;
                break;
        case O_FEATURES:
                c->features = true;
                break;
        case O_UID:
                r = take_uid(text, &c->host.server_uid);
                break;
        case O_PEER:
                r = take_uid(text, &c->serve.peer_uid);
                c->peer_given = true;
                break;
        case O_FD:
                r = number(text, 1 << 20, &v);
                c->serve.fd = (int) v;
                break;
        case O_POOL:
                r = number(text, DISK_POOL_MAX, &v);
                c->host.pool = (size_t) v;
                break;
        case O_RESERVE:
                r = number(text, 1ULL << 50, &c->host.reserve);
                break;
        case O_SUBNET:
                r = take_subnet(c, text);
                break;
        case O_ALLOW:
                r = take_allow(c, text);
                break;
        case O_LEVEL:
                r = log_level_parse(text, &c->level);
                break;
        default:
                r = -EINVAL;
        }
        return r;
}

static int parse(struct command *c, int argc, char **argv)
{
        int code;

        while ((code = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
                if (code == O_HELP) {
                        fputs(usage, stdout);
                        exit(0);
                }
                if (code == O_VERSION) {
                        puts("boxhost " PSBX_VERSION);
                        exit(0);
                }
                if (take_option(c, code, optarg) < 0) {
                        fprintf(stderr, "boxhost: bad value or option near %s\n%s", optarg ? optarg : argv[optind - 1],
                                usage);
                        return -EINVAL;
                }
        }
        if (!c->peer_given)
                c->serve.peer_uid = c->host.server_uid;
        if (c->features || (c->cleanup && c->host.state))
                return 0;
        if (optind == argc && c->host.state && c->host.boxd && (c->serve.fd >= 0 || c->serve.listen))
                return 0;
        fputs(usage, stderr);
        return -EINVAL;
}

/* What we were started with must not matter: descriptors, variables and masks come from anywhere. */
void program_cleanse(int keep)
{
        struct rlimit files;

        for (int fd = 0; fd < 3; fd++) {
                if (fcntl(fd, F_GETFD) < 0)
                        (void) open("/dev/null", O_RDWR);
        }
        if (keep > 3)
                (void) close_range(3, (unsigned) keep - 1, 0);
        (void) close_range(keep >= 3 ? (unsigned) keep + 1 : 3, ~0U, 0);
        if (keep >= 0)
                (void) fcntl(keep, F_SETFD, FD_CLOEXEC);
        (void) clearenv();
        (void) setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
        (void) umask(022);
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max; /* a descriptor per box */
                (void) setrlimit(RLIMIT_NOFILE, &files);
        }
}

static int run_features(void)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct features f;
        struct jw w;

        features_alone(&f);
        jw_init(&w, &b);
        jw_obj(&w);
        features_print(&f, &w);
        if (jw_end_all(&w) < 0)
                return 1;
        puts(buf_cstr(&b));
        return 0;
}

static int run_cleanup(struct host *h, struct err *e)
{
        int r;

        h->net_config.instance = h->instance;
        h->net_config.subnet = h->options->subnet;
        r = cgroups_open(&h->cgroups, h->instance, e);
        if (r == 0)
                r = net_open(&h->net, &h->net_config, e);
        h->features.net = true; /* there may be interfaces to remove */
        return r < 0 ? r : reconcile_cleanup(h, e);
}

static int run_server(struct host *h, const struct serve_options *o, struct err *e)
{
        int r;

        /* Inherited by boxd, which takes it away from what it starts: in a box without memory the jobs end, not the
         * box. */
        (void) sys_write(AT_FDCWD, "/proc/self/oom_score_adj", OOM_SCORE, NULL);
        r = host_prepare(h, e);
        if (r == 0)
                r = reconcile(h, e);
        if (r == 0) {
                log_info("instance %s is ready with %zu boxes", h->instance, h->count);
                r = serve(h, o, e);
        }
        return r;
}

int boxhost_main(int argc, char **argv)
{
        struct command c = { .serve = { .fd = -1 }, .host = { .pool = POOL_DEFAULT }, .level = LOG_LEVEL_INFO };
        struct host h;
        struct err e = { 0 };
        int r;

        if (argc > 1 && strcmp(argv[1], "--images") == 0)
                return image_main(argc - 1, argv + 1);
        (void) net_range_parse("198.18.0.0/16", &c.host.subnet);
        if (parse(&c, argc, argv) < 0)
                return 2;
        program_cleanse(c.serve.fd);
        log_setup("boxhost", c.level);
        if (c.features)
                return run_features();
        r = host_open_state(&h, &c.host, &e);
        if (r == 0)
                r = c.cleanup ? run_cleanup(&h, &e) : run_server(&h, &c.serve, &e);
        host_close(&h);
        if (r < 0)
                log_error("%s", err_text(&e));
        return r < 0;
}
