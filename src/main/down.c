/* down and status. */
#include "cli.h"
#include "remote.h"

#include "base/file.h"
#include "base/mem.h"
#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_SEC 30

/* Waits until the lock is free: server, supervisor and boxhost are gone. */
static bool wait_gone(const char *state, pid_t pid)
{
        struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
        struct server_info info;

        for (int i = 0; i < STOP_SEC * 20; i++) {
                if (server_info_read(state, &info, NULL) == -ENOENT)
                        return true;
                (void) nanosleep(&pause, NULL);
        }
        (void) kill(pid, SIGKILL);
        return false;
}

/* boxhost itself removes the boxes and everything it changed on the machine. */
static int cleanup(const char *state, struct err *e)
{
        _cleanup_free_ char *boxhost = NULL;
        int status = 0, r = sibling_program("boxhost", &boxhost, e);

        if (r < 0)
                return r;
        pid_t pid = fork();
        if (pid < 0)
                return err_sys(e, -errno, "fork");
        if (pid == 0) {
                (void) execl(boxhost, boxhost, "--cleanup", "--state", state, (char *) NULL);
                _exit(127);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : err_set(e, -EIO, "boxhost --cleanup failed");
}

/* The rows of the boxes that were removed: ended on purpose, so the next server must not call them lost. In a child,
 * since entering the state folder gives up the privileges that are needed afterwards. */
static void record_end(const char *state)
{
        pid_t pid = fork();

        if (pid == 0) {
                struct db *db = NULL;
                struct query q;

                if (state_enter(state, NULL) < 0 || db_open("state.db", &db, NULL) < 0)
                        _exit(1);
                query(db, &q,
                      "UPDATE boxes SET state = 'deleted', why = 'ended by parallelsandbox down' WHERE state <> "
                      "'deleted'");
                int r = query_run(&q, NULL);
                db_close(db);
                _exit(r < 0);
        }
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

/* Whoever builds an image holds a lock there; what it works on must not be removed under it. */
static bool image_is_built(const char *state)
{
        _cleanup_free_ char *path = xasprintf("%s/boxhost/images/.build.lock", state);
        _cleanup_close_ int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

        return fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

int cmd_down(int argc, char **argv)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "purge", no_argument, NULL, 'p' },
                                               { 0 } };
        _cleanup_free_ char *state = default_state_dir();
        struct server_info info;
        struct stat st;
        struct err e = { 0 };
        bool purge = false;
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(state);
                        state = xstrdup(optarg);
                } else if (c == 'p') {
                        purge = true;
                } else {
                        return EXIT_USAGE;
                }
        }
        if (optind < argc)
                return complain("down", EXIT_USAGE, "there is no argument \"%s\"", argv[optind]);
        if (stat(state, &st) < 0) {
                (void) printf("Nothing to stop: %s does not exist.\n", state);
                return 0;
        }
        if (geteuid() != 0)
                return complain("down", 1, "boxes were made by root: run it as root");
        if (purge && image_is_built(state))
                return complain("down", 1,
                                "an image is being built in %s: wait until it is done, or stop that; nothing "
                                "was stopped",
                                state);
        int r = server_info_read(state, &info, &e);
        if (r == 0) {
                (void) printf("Stopping the server (pid %ld) …\n", (long) info.pid);
                (void) fflush(stdout);
                if (kill(info.pid, SIGTERM) < 0 && errno != ESRCH)
                        return complain("down", 1, "pid %ld: %s", (long) info.pid, strerror(errno));
                if (!wait_gone(state, info.pid))
                        (void) complain("down", 0, "it did not end in %d s and was killed", STOP_SEC);
        }
        if (cleanup(state, &e) < 0)
                return complain("down", 1, "%s", err_text(&e));
        record_end(state);
        if (purge && remove_tree(AT_FDCWD, state) < 0)
                return complain("down", 1, "%s could not be removed", state);
        (void) printf("Stopped; boxes, network and cgroups are removed.%s%s%s\n",
                      purge ? "" : " Keys, the database and images stay in ", purge ? "" : state,
                      purge ? "" : " (remove them too with --purge).");
        return 0;
}

struct status {
        struct server_info info;
        bool json;
        bool ready;
};

static int coroutine_fn status_main(void *arg, struct err *e)
{
        struct status *s = arg;
        struct remote r;
        int ret = remote_open(s->info.url, NULL, &r, e);

        if (ret < 0)
                return ret;
        ret = remote_get(&r, "/readyz", NULL, e);
        remote_close(&r);
        s->ready = ret == 200;
        return ret < 0 ? ret : 0;
}

int cmd_status(int argc, char **argv)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "json", no_argument, NULL, 'j' },
                                               { 0 } };
        _cleanup_free_ char *state = default_state_dir();
        struct status s = { 0 };
        struct err e = { 0 };
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(state);
                        state = xstrdup(optarg);
                } else if (c == 'j') {
                        s.json = true;
                } else {
                        return EXIT_USAGE;
                }
        }
        if (optind < argc)
                return complain("status", EXIT_USAGE, "there is no argument \"%s\"", argv[optind]);
        int r = server_info_read(state, &s.info, &e);
        if (r == 0)
                r = remote_run(status_main, &s, &e);
        if (s.json)
                (void) printf("{\"running\":%s,\"ready\":%s,\"url\":\"%s\",\"pid\":%ld}\n", r == 0 ? "true" : "false",
                              s.ready ? "true" : "false", r == 0 ? s.info.url : "", r == 0 ? (long) s.info.pid : 0);
        else if (r == 0)
                (void) printf("%s  pid %ld  %s\n", s.info.url, (long) s.info.pid, s.ready ? "ready" : "not ready");
        else
                (void) complain("status", 1, "%s", err_text(&e));
        return r < 0;
}
