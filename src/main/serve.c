/* serve: a whole, independent server instance in the foreground. Options and wiring only. */
#include "cli.h"
#include "quantity.h"
#include "supervisor.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "control/events.h"
#include "control/exec_left.h"
#include "control/pool.h"
#include "control/scene.h"
#include "control/scene_ports.h"
#include "control/tool.h"
#include "control/wires.h"
#include "http/server.h"
#include "loop/loop.h"
#include "web/front.h"
#include "web/scenes.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STOP_MS 10000
#define EXTRA_MAX 32
#define WARM_DEFAULT 4
#define MINUTE_MS ((int64_t) 60000)

static const char duration_form[] = "is a time such as 90s, 10m, 24h or 30d (at most 3650d), or never";

struct options {
        const char *state, *listen, *boxhost_socket, *scene_domain;
        enum log_level level;
        const char *allow_net[EXTRA_MAX + 1];
        const char *hosts[EXTRA_MAX + 1];
        size_t allow_net_count, host_count;
        uint64_t boxes_max, warm, disk_reserve;
        int64_t freeze_ms, archive_ms, keep_ms;
        unsigned scene_from, scene_to;
        bool allow_metadata;
        const char *level_name;
};

struct server {
        struct options *o;
        char *host;
        unsigned port;
        int lock, feed;
        struct db *db;
        struct objects *objects;
        struct driver *driver;
        struct control *control;
        struct auth *auth;
        struct tools *tools;
        struct mcp_server *mcp;
        struct http_server *http;
        struct scenes *scenes;
        struct front front;
        char origin[160], scene_host[264];
        int exit_code;
};

static const char instructions[] =
        "Parallel Linux boxes to work in. sandbox_start makes one (say in `goal` what it is "
        "for), sandbox_sync puts your working tree"
        " into /work/<dest> (only what changed is sent; call it again after edits), "
        "sandbox_exec runs bash commands there,"
        " sandbox_procs waits for and stops background jobs, sandbox_pull (or sandbox_get) "
        "brings files back, sandbox_shot looks at the box's screen, sandbox_stop puts the box away."
        " Boxes are independent of each other and of this conversation: keep the ids, start "
        "several for parallel work, and find them"
        " again with sandbox_list. Every command needs a `note`: one sentence for the "
        "person who watches. Commands run as root in the"
        " box and reach the Internet, not the host. A command that may take longer than "
        "your client waits for a tool belongs in the"
        " background: `background: true`, then sandbox_procs {action: \"wait\"}.";

static int session_new(const char *owner, const char *version, const char *client, char id[static 40], void *arg)
{
        struct server *s = arg;

        random_id(id, 39);
        return sessions_insert(s->db, id, owner, version, client);
}

static int session_check(const char *owner, const char *id, struct mcp_session *ret, void *arg)
{
        return sessions_find(((struct server *) arg)->db, id, owner, ret->version, ret->client, sizeof ret->client);
}

static int session_end(const char *owner, const char *id, void *arg)
{
        return sessions_delete(((struct server *) arg)->db, id, owner);
}

static int coroutine_fn call_tool(struct mcp_request *r, const struct mcp_tool *t, const struct json *args, void *arg)
{
        return tools_call(r, t, args, ((struct server *) arg)->tools);
}

/* ---- start ---- */

static int parse_options(int argc, char **argv, struct options *o)
{
        enum {
                OPT_MAX_BOXES = 256,
                OPT_WARM,
                OPT_METADATA,
                OPT_FREEZE,
                OPT_ARCHIVE,
                OPT_KEEP,
                OPT_RESERVE,
                OPT_SCENE_DOMAIN,
                OPT_SCENE_PORTS
        };
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "listen", required_argument, NULL, 'l' },
                                               { "boxhost", required_argument, NULL, 'b' },
                                               { "log-level", required_argument, NULL, 'L' },
                                               { "allow-net", required_argument, NULL, 'n' },
                                               { "host", required_argument, NULL, 'H' },
                                               { "max-boxes", required_argument, NULL, OPT_MAX_BOXES },
                                               { "warm", required_argument, NULL, OPT_WARM },
                                               { "scene-domain", required_argument, NULL, OPT_SCENE_DOMAIN },
                                               { "scene-ports", required_argument, NULL, OPT_SCENE_PORTS },
                                               { "allow-client-metadata", no_argument, NULL, OPT_METADATA },
                                               { "freeze-after", required_argument, NULL, OPT_FREEZE },
                                               { "archive-after", required_argument, NULL, OPT_ARCHIVE },
                                               { "keep-archives", required_argument, NULL, OPT_KEEP },
                                               { "disk-reserve", required_argument, NULL, OPT_RESERVE },
                                               { 0 } };
        int c;

        *o = (struct options){ .listen = DEFAULT_LISTEN,
                               .level = LOG_LEVEL_INFO,
                               .level_name = "info",
                               .warm = WARM_DEFAULT,
                               .freeze_ms = 10 * MINUTE_MS,
                               .archive_ms = 24 * 60 * MINUTE_MS,
                               .keep_ms = 30 * 24 * 60 * MINUTE_MS };
        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                switch (c) {
                case 's':
                        o->state = optarg;
                        break;
                case 'l':
                        o->listen = optarg;
                        break;
                case 'b':
                        o->boxhost_socket = optarg;
                        break;
                case 'L':
                        o->level_name = optarg;
                        if (log_level_parse(optarg, &o->level) < 0)
                                return complain("serve", EXIT_USAGE, "--log-level is error, warning, info or debug");
                        break;
                case 'n':
                        if (o->allow_net_count == EXTRA_MAX)
                                return complain("serve", EXIT_USAGE, "--allow-net can be given %d times", EXTRA_MAX);
                        o->allow_net[o->allow_net_count++] = optarg;
                        break;
                case 'H':
                        if (o->host_count == EXTRA_MAX)
                                return complain("serve", EXIT_USAGE, "--host can be given %d times", EXTRA_MAX);
                        o->hosts[o->host_count++] = optarg;
                        break;
                case OPT_MAX_BOXES:
                        if (parse_u64(str_of(optarg), 4000, &o->boxes_max) < 0 || o->boxes_max == 0)
                                return complain("serve", EXIT_USAGE, "--max-boxes is a number from 1 to 4000");
                        break;
                case OPT_WARM:
                        if (parse_u64(str_of(optarg), POOL_MOST, &o->warm) < 0)
                                return complain("serve", EXIT_USAGE, "--warm is a number from 0 (none) to %d",
                                                POOL_MOST);
                        break;
                case OPT_FREEZE:
                        if (parse_duration(optarg, true, &o->freeze_ms) < 0)
                                return complain("serve", EXIT_USAGE, "--freeze-after %s", duration_form);
                        break;
                case OPT_ARCHIVE:
                        if (parse_duration(optarg, true, &o->archive_ms) < 0)
                                return complain("serve", EXIT_USAGE, "--archive-after %s", duration_form);
                        break;
                case OPT_KEEP:
                        if (parse_duration(optarg, false, &o->keep_ms) < 0)
                                return complain("serve", EXIT_USAGE,
                                                "--keep-archives is a time such as 12h or 30d, at most 3650d");
                        break;
                case OPT_RESERVE:
                        if (parse_bytes(optarg, &o->disk_reserve) < 0)
                                return complain("serve", EXIT_USAGE,
                                                "--disk-reserve is a size such as 512M or 4G, from 16M on");
                        break;
                case OPT_SCENE_DOMAIN:
                        if (!scene_domain_ok(optarg))
                                return complain("serve", EXIT_USAGE,
                                                "--scene-domain is the name below which scenes are found, as in "
                                                "boxes.example.com or https://boxes.example.com; got \"%.100s\"",
                                                optarg);
                        o->scene_domain = optarg;
                        break;
                case OPT_SCENE_PORTS:
                        if (scene_ports_parse(optarg, &o->scene_from, &o->scene_to) < 0)
                                return complain("serve", EXIT_USAGE,
                                                "--scene-ports is a range such as 7500-7599, from 1024 on and of at "
                                                "most %d ports; got \"%.100s\"",
                                                SCENE_PORTS_MAX, optarg);
                        break;
                case OPT_METADATA:
                        o->allow_metadata = true;
                        break;
                default:
                        return EXIT_USAGE;
                }
        }
        if (o->scene_domain && o->scene_from)
                return complain("serve", EXIT_USAGE,
                                "--scene-domain and --scene-ports exclude each other: scenes have names or ports");
        if (!o->state || optind < argc)
                return complain("serve", EXIT_USAGE,
                                "usage: serve --state DIR [--listen ADDR] [--boxhost SOCKET] [--max-boxes N] "
                                "[--warm N] [--allow-net CIDR]… [--freeze-after TIME] [--archive-after TIME] "
                                "[--keep-archives TIME] [--disk-reserve SIZE] [--host NAME]… [--scene-domain NAME|"
                                "--scene-ports FROM-TO] [--allow-client-metadata] [--log-level L]");
        return 0;
}

static int take_lock(struct server *s, struct err *e)
{
        _cleanup_free_ char *path = xasprintf("%s/lock", s->o->state);

        s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (s->lock < 0)
                return err_sys(e, -errno, "%s", path);
        /* After a kill the supervisor of the old server holds it for a moment longer, until its boxhost has ended. */
        struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
        for (int i = 0; i < 100 && flock(s->lock, LOCK_EX | LOCK_NB) < 0; i++)
                (void) nanosleep(&pause, NULL);
        if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
                return err_set(e, -EBUSY,
                               "another server runs in %s: stop it, or give this one a folder of its own with --state",
                               s->o->state);
        return 0;
}

static void free_argv(char **v)
{
        for (size_t i = 0; v && v[i]; i++)
                free(v[i]);
        free(v);
}

/* boxhost's command line, every word allocated. */
static int boxhost_argv(struct server *s, char ***ret, struct err *e)
{
        _cleanup_free_ char *real = realpath(s->o->state, NULL), *boxhost = NULL, *boxd = NULL;
        size_t n = 0;
        int r = real ? 0 : err_sys(e, -errno, "%s", s->o->state);

        if (r == 0)
                r = sibling_program("boxhost", &boxhost, e);
        if (r == 0)
                r = sibling_program("boxd", &boxd, e);
        if (r < 0)
                return r;
        const char *fixed[] = {
                boxhost, "--state", real, "--boxd", boxd, "--fd", "3", "--log-level", s->o->level_name
        };
        char **v = xcalloc(ARRAY_LEN(fixed) + 5 + 2 * EXTRA_MAX, sizeof *v);
        for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
                v[n++] = xstrdup(fixed[i]);
        v[n++] = xstrdup("--server-uid");
        v[n++] = xasprintf("%u", (unsigned) state_uid(s->o->state));
        if (s->o->disk_reserve) {
                v[n++] = xstrdup("--disk-reserve");
                v[n++] = xasprintf("%llu", (unsigned long long) s->o->disk_reserve);
        }
        for (size_t i = 0; i < s->o->allow_net_count; i++) {
                v[n++] = xstrdup("--allow-net");
                v[n++] = xstrdup(s->o->allow_net[i]);
        }
        *ret = v;
        return 0;
}

static int start_privileged_part(struct server *s, struct err *e)
{
        char **argv = NULL;

        if (s->o->boxhost_socket)
                return 0;
        if (geteuid() != 0)
                return err_set(e, -EPERM,
                               "boxes need root on this machine: run this as root (it keeps no privileges for itself), "
                               "or give --boxhost SOCKET of a boxhost that root started");
        int r = boxhost_argv(s, &argv, e);
        if (r == 0)
                r = supervisor_start(argv, &s->feed, e);
        free_argv(argv); /* the supervisor has its own, as every child has */
        return r;
}

static int load_link_key(unsigned char key[32], struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(32);

        if (file_read(AT_FDCWD, "link.key", &b) == 0 && b.len == 32) {
                memcpy(key, b.p, 32);
                return 0;
        }
        random_bytes(key, 32);
        return file_write_atomic(AT_FDCWD, "link.key", key, 32, 0600, e);
}

static void raise_limits(void)
{
        struct rlimit rl;

        if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
                rl.rlim_cur = rl.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &rl);
        }
}

static int open_state(struct server *s, struct err *e)
{
        _cleanup_free_ char *account = NULL;
        int r = db_open("state.db", &s->db, e);

        if (r == 0)
                r = accounts_first(s->db, &account, e);
        if (r == 0)
                r = objects_open("objects", s->db, &s->objects, e);
        return r;
}

static int start_http(struct server *s, struct err *e)
{
        struct mcp_config mcp = {
                .name = "parallelsandbox",
                .title = "ParallelSandbox",
                .version = PSBX_VERSION,
                .instructions = instructions,
                .tools = tools_table,
                .tool_count = TOOL_COUNT,
                .call = call_tool,
                .session_new = session_new,
                .session_check = session_check,
                .session_end = session_end,
                .caller_header = "x-psbx-agent",
                .calls_per_owner = 10500,
                .arg = s,
        };
        struct http_limits limits = { .connections = 16384, .per_address = 16384, .requests_running = 12000 };

        s->mcp = mcp_server_new(&mcp);
        s->http = http_server_new(&limits, front_handle, &s->front);
        int r = http_server_listen(s->http, s->host, s->port, e);
        if (r < 0)
                return r;
        s->port = http_server_port(s->http);
        const char *colon = strchr(s->host, ':') ? "[]" : "";
        (void) snprintf(s->origin, sizeof s->origin, "http://%.1s%s%.1s:%u", colon, s->host, colon[0] ? colon + 1 : "",
                        s->port);
        /* Scenes are told by the name that clients are known to use; a wildcard address is none. */
        if (s->o->host_count)
                (void) snprintf(s->scene_host, sizeof s->scene_host, "%.259s", s->o->hosts[0]);
        else if (cstr_eq(s->host, "0.0.0.0") || cstr_eq(s->host, "::"))
                (void) snprintf(s->scene_host, sizeof s->scene_host, "127.0.0.1");
        else
                (void) snprintf(s->scene_host, sizeof s->scene_host, "%.1s%.250s%.1s", colon, s->host,
                                colon[0] ? colon + 1 : "");
        return 0;
}

static int start_control(struct server *s, struct err *e)
{
        struct control_config cfg = { .origin = s->origin,
                                      .boxes_max = (int64_t) s->o->boxes_max,
                                      .warm = (size_t) s->o->warm,
                                      .freeze_ms = s->o->freeze_ms,
                                      .archive_ms = s->o->archive_ms,
                                      .keep_ms = s->o->keep_ms,
                                      .disk_reserve = (int64_t) s->o->disk_reserve,
                                      .scene_domain = s->o->scene_domain,
                                      .scene_from = s->o->scene_from,
                                      .scene_to = s->o->scene_to,
                                      .scene_host = s->scene_host,
                                      .allow_net = s->o->allow_net };
        int r = load_link_key(cfg.link_key, e);

        if (r == 0)
                r = driver_local_new(s->feed, s->o->boxhost_socket, "run", &s->driver, e);
        if (r == 0)
                r = control_new(&cfg, s->db, s->objects, s->driver, &s->control, e);
        if (r == 0)
                r = tools_new(s->control, &s->tools, e);
        if (r == 0) {
                struct auth_config auth = { .db = s->db,
                                            .control = s->control,
                                            .allow_metadata = s->o->allow_metadata };

                memcpy(auth.secret, cfg.link_key, sizeof auth.secret);
                r = auth_new(&auth, &s->auth, e);
        }
        if (r == 0) {
                s->scenes = scenes_new(s->control, s->auth);
                r = scenes_listen(s->scenes, s->http, s->host, e);
        }
        return r;
}

static void wire_front(struct server *s)
{
        s->front = (struct front){ .control = s->control,
                                   .auth = s->auth,
                                   .mcp = s->mcp,
                                   .http = s->http,
                                   .db = s->db,
                                   .scenes = s->scenes,
                                   .host = s->host,
                                   .port = s->port,
                                   .scene_from = s->o->scene_from,
                                   .scene_to = s->o->scene_to,
                                   .extra_hosts = s->o->hosts,
                                   .started_ms = clock_ms(),
                                   .driver_ready = driver_local_ready };
}

static int announce(struct server *s, struct err *e)
{
        _cleanup_free_ char *text = xasprintf("{\"listening\":\"%s\",\"pid\":%ld}\n", s->origin, (long) getpid());
        int r = file_write_atomic(AT_FDCWD, "server.json", text, strlen(text), 0644, e);

        if (r < 0)
                return r;
        (void) fputs(text, stdout);
        (void) fflush(stdout);
        log_info("listening on %s", s->origin);
        return 0;
}

/* ---- stop ---- */

static void coroutine_fn stop_main(void *arg)
{
        struct server *s = arg;

        mcp_server_drain(s->mcp);
        scenes_stop(s->scenes);
        events_end_all(s->control->events);
        http_server_stop(s->http, STOP_MS);
        exec_left_stop(s->control);
        life_stop(s->control);
        pool_stop(s->control->pool);
        wires_stop(s->control);
        s->driver->ops->stop(s->driver);
        loop_stop();
}

static void on_signal(int signum, void *arg)
{
        struct server *s = arg;

        if (s->front.stopping) {
                loop_stop();
                return;
        }
        log_info("signal %d: finishing what runs, then stopping; boxes go on", signum);
        s->front.stopping = s->control->stopping = true;
        waitq_wake_all(&s->control->capacity);
        (void) coro_start(stop_main, s, CORO_STACK_DEFAULT, "stop");
}

static int run(struct server *s, struct err *e)
{
        int r = loop_init(e);

        if (r == 0)
                r = open_state(s, e);
        if (r == 0)
                r = start_http(s, e);
        if (r == 0)
                r = start_control(s, e);
        if (r < 0)
                return r;
        wire_front(s);
        (void) loop_on_signal(SIGTERM, on_signal, s);
        (void) loop_on_signal(SIGINT, on_signal, s);
        (void) signal(SIGPIPE, SIG_IGN);
        r = announce(s, e);
        if (r < 0)
                return r;
        loop_run();
        http_server_free(s->http);
        mcp_server_free(s->mcp);
        scenes_free(s->scenes);
        auth_free(s->auth);
        tools_free(s->tools);
        control_free(s->control);
        loop_done();
        s->driver->ops->free(s->driver);
        objects_free(s->objects);
        db_close(s->db);
        (void) unlink("server.json");
        return 0;
}

int cmd_serve(int argc, char **argv)
{
        struct options o;
        struct server s = { .o = &o, .lock = -1, .feed = -1 };
        struct err e = { 0 };
        int r = parse_options(argc, argv, &o);

        if (r)
                return r;
        log_setup("parallelsandbox", o.level);
        if (parse_listen(o.listen, &s.host, &s.port, &e) < 0)
                return complain("serve", EXIT_USAGE, "%s", err_text(&e));
        if (s.port && s.port >= o.scene_from && s.port <= o.scene_to) {
                free(s.host);
                return complain("serve", EXIT_USAGE, "--scene-ports holds the port %u of --listen: give another range",
                                s.port);
        }
        raise_limits();
        r = state_prepare(o.state, &e);
        if (r == 0)
                r = take_lock(&s, &e);
        if (r == 0)
                r = start_privileged_part(&s, &e);
        if (r == 0)
                r = state_enter(o.state, &e);
        if (r == 0) {
#ifndef __SANITIZE_ADDRESS__ /* the leak checker traces its own process */
                /* A core or a debugger of the same uid would hold keys. */
                (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
                /* Also where the kernel is told to write cores of such processes. After the fork of what makes boxes:
                 * they may have theirs. */
                struct rlimit none = { 0 };
                (void) setrlimit(RLIMIT_CORE, &none);
                r = run(&s, &e);
        }
        free(s.host);
        if (r < 0)
                return complain("serve", 1, "%s", err_text(&e));
        return s.exit_code;
}
