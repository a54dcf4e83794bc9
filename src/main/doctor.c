/* doctor: what this machine lacks for local boxes, and what that costs. boxhost knows; this prints it. */
#include "cli.h"

#include "base/json.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int read_features(const char *boxhost, struct buf *out, struct err *e)
{
        int fd[2], status = 0;

        if (pipe2(fd, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "pipe");
        pid_t pid = fork();
        if (pid < 0)
                return err_sys(e, -errno, "fork");
        if (pid == 0) {
                (void) dup2(fd[1], 1);
                (void) execl(boxhost, boxhost, "--features", (char *) NULL);
                _exit(127);
        }
        (void) close(fd[1]);
        for (;;) {
                char *p = buf_room(out, 4096);
                ssize_t n = p ? read(fd[0], p, 4096) : 0;

                if (n <= 0)
                        break;
                buf_grew(out, (size_t) n);
        }
        (void) close(fd[0]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : err_set(e, -EIO, "boxhost --features failed");
}

int cmd_doctor(int argc, char **argv)
{
        static const struct option longs[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
        _cleanup_buf_ struct buf text = BUF_MAX(256 << 10);
        _cleanup_json_ struct json *j = NULL;
        _cleanup_free_ char *boxhost = NULL;
        struct err e = { 0 };
        bool json = false;
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c != 'j')
                        return EXIT_USAGE;
                json = true;
        }
        if (optind < argc)
                return complain("doctor", EXIT_USAGE, "there is no argument \"%s\"", argv[optind]);
        int r = sibling_program("boxhost", &boxhost, &e);
        if (r == 0)
                r = read_features(boxhost, &text, &e);
        if (r == 0)
                r = json_parse(text.p, text.len, &j, &e);
        if (r < 0)
                return complain("doctor", 1, "%s", err_text(&e));
        if (json) {
                (void) printf("%s", buf_cstr(&text));
                return 0;
        }
        const struct json *missing = json_get(j, "missing");
        if (geteuid() != 0)
                (void) printf("Not run as root: boxes need root (parallelsandbox up keeps privileges only in boxhost), "
                              "and some checks below could not be made.\n");
        if (json_len(missing) == 0)
                (void) printf("Nothing is missing: boxes of every kind can run here.\n");
        for (size_t i = 0; i < json_len(missing); i++)
                (void) printf("%s: %s\n", json_get_str(json_at(missing, i), "what", "?"),
                              json_get_str(json_at(missing, i), "cost", ""));
        return 0;
}
