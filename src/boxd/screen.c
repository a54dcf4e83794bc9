#include "boxd/screen.h"

#include "boxd/filter.h"
#include "boxd/pid1.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE "1280x800"
#define LOG "/run/boxd/screen.log"
#define BACKLOG 128
#define USEFUL_MS 2000 /* an X server that ends sooner has failed to start */
#define QUICK_MAX 3
#define REFUSED_MAX 256
#define REASON_MAX 252 /* its length is one byte, and it is padded to four */

static const char *const programs[] = { "/usr/bin/Xtigervnc", "/usr/local/bin/Xtigervnc", "/usr/bin/Xvnc",
                                        "/usr/local/bin/Xvnc" };

static int listen_at(bool abstract)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        size_t n = strlen(SCREEN_SOCKET), at = abstract ? 1 : 0;
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        memcpy(a.sun_path + at, SCREEN_SOCKET, n);
        if (!abstract)
                (void) unlink(SCREEN_SOCKET); /* of a former life of this disk */
        if (bind(fd, (struct sockaddr *) &a, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + at + n)) < 0 ||
            listen(fd, BACKLOG) < 0)
                return -errno;
        if (!abstract)
                (void) chmod(SCREEN_SOCKET, 0777);
        return steal_fd(&fd);
}

static int listen_by_path(void)
{
        if (mkdir("/tmp/.X11-unix", 0755) == 0)
                (void) chmod("/tmp/.X11-unix", 01777);
        return listen_at(false);
}

void screen_init(struct screen *s)
{
        *s = (struct screen){ .listen = { listen_by_path(), listen_at(true) } };
}

void screen_poll(const struct screen *s, struct pollfd *v)
{
        for (int i = 0; i < SCREEN_LISTENERS; i++)
                v[i] = (struct pollfd){ .fd = s->pid ? -1 : s->listen[i], .events = POLLIN };
}

static const char *find_program(void)
{
        for (size_t i = 0; i < ARRAY_LEN(programs); i++)
                if (access(programs[i], X_OK) == 0)
                        return programs[i];
        return NULL;
}

/*
 * ---- in the child ----
 */

/* Why the last one ended: the last line it wrote that says something. */
static void last_words(char *out, size_t cap)
{
        _cleanup_close_ int fd = open(LOG, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        char text[2048] = "";
        off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
        ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, size > 2047 ? size - 2047 : 0);

        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
                n--;
        text[n > 0 ? n : 0] = '\0';
        const char *line = strrchr(text, '\n');
        snprintf(out, cap, "%s", line ? line + 1 : text);
}

/* X11 protocol, "Connection Setup": Failed, length, version 11.0, words of the reason. Xlib and xcb print the reason.
 */
static void refuse_one(int fd, const char *reason)
{
        unsigned char reply[8 + REASON_MAX] = { 0 };
        struct timeval limit = { .tv_usec = 999000 };
        size_t n = strnlen(reason, REASON_MAX), words = (n + 3) / 4;
        char request[512];

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        if (recv(fd, request, sizeof(request), 0) <= 0) /* who gets an answer before it has asked does not read it */
                return;
        reply[1] = (unsigned char) n;
        if (request[0] == 'B') {
                reply[3] = 11;
                reply[7] = (unsigned char) words;
        } else {
                reply[2] = 11;
                reply[6] = (unsigned char) words;
        }
        memcpy(reply + 8, reason, n);
        (void) !send(fd, reply, 8 + words * 4, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void refuse_all(const int *listeners, int n, const char *reason)
{
        for (int i = 0, served = 0; i < n && served < REFUSED_MAX; served++) {
                _cleanup_close_ int fd = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC);

                if (fd < 0)
                        i++;
                else
                        refuse_one(fd, reason);
        }
}

static void prepare(void)
{
        _cleanup_close_ int log = -1, score = -1;
        sigset_t none;

        (void) mkdir("/run/boxd", 0755);
        (void) unlink(SCREEN_RFB);
        log = open(LOG, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (log >= 0)
                dup2(log, STDERR_FILENO);
        /* boxd is spared when memory runs out; the display goes like other programs of the box */
        score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (score >= 0)
                (void) !write(score, "0", 1);
        (void) setsid();
        (void) !chdir("/");
        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

static void run_server(const char *program, int n)
{
        char pid[32], fds[32];
        char *env[] = { (char *) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                        (char *) "HOME=/root",
                        (char *) "LANG=C.UTF-8",
                        pid,
                        fds,
                        NULL };

        snprintf(pid, sizeof(pid), "LISTEN_PID=%d", (int) getpid());
        snprintf(fds, sizeof(fds), "LISTEN_FDS=%d", n);
        for (int i = 0; i < n; i++)
                fcntl(FD_FIRST + i, F_SETFD, 0);
        if (filter_command() < 0)
                return;
        /*
         * No TCP, neither for X nor for RFB. Who reaches the sockets is in the box, or is the server through boxd; on a
         * Unix socket all of them are one host, which a few connections at once would shut out.
         */
        execle(program, program, SCREEN_DISPLAY, "-geometry", SIZE, "-depth", "24", "-dpi", "96", "-ac", "-noreset",
               "-nolock", "-nolisten", "tcp", "-s", "0", "-desktop", "box", "-rfbport", "-1", "-rfbunixpath",
               SCREEN_RFB, "-rfbunixmode", "0600", "-SecurityTypes", "None", "-AlwaysShared", "-UseBlacklist=0", "-Log",
               "*:stderr:0", NULL, env);
        fprintf(stderr, "%s: %s\n", program, strerror(errno));
}

static _Noreturn void child_main(bool failed, int n)
{
        static const int listeners[] = { FD_FIRST, FD_FIRST + 1 };
        char reason[REASON_MAX] = "", why[160];
        const char *program = find_program();

        if (program && !failed) {
                prepare();
                run_server(program, n);
                _exit(127);
        }
        if (!program)
                snprintf(reason, sizeof(reason),
                         "this box's image has no X server (Xtigervnc): start the box with the image `debian`, or run "
                         "apt-get install tigervnc-standalone-server\n");
        else {
                last_words(why, sizeof(why));
                snprintf(reason, sizeof(reason), "the X server of this box ended at its start: %s\n",
                         why[0] ? why : "it did not say why");
        }
        refuse_all(listeners, n, reason);
        _exit(0);
}

/*
 * ---- in PID 1 ----
 */

pid_t screen_start(struct screen *s)
{
        int keep[SCREEN_LISTENERS], n = 0;

        for (int i = 0; i < SCREEN_LISTENERS; i++)
                if (s->listen[i] >= 0)
                        keep[n++] = s->listen[i];
        bool failed = s->failed;
        pid_t pid = pid1_fork(keep, (size_t) n);
        if (pid == 0)
                child_main(failed, n);
        if (pid < 0) { /* no process can be had: the client is let go, or it would be asked again without end */
                for (int i = 0; i < n; i++) {
                        _cleanup_close_ int fd = accept4(keep[i], NULL, NULL, SOCK_CLOEXEC);
                        (void) fd;
                }
                return pid;
        }
        s->failed = false;
        s->started_ms = failed ? 0 : clock_ms();
        s->pid = pid;
        return pid;
}

void screen_reaped(struct screen *s, pid_t pid, int status)
{
        struct stat st;

        if (pid != s->pid)
                return;
        s->pid = 0;
        if (s->started_ms && clock_ms() - s->started_ms < USEFUL_MS)
                s->quick++;
        else
                s->quick = 0;
        /* An end of its own with an error will be the same next time; somebody's signal may not be. */
        s->failed = s->quick >= (WIFEXITED(status) && WEXITSTATUS(status) ? 1 : QUICK_MAX);
        if (s->failed)
                s->quick = 0;
        if (lstat(SCREEN_SOCKET, &st) == 0)
                return;
        closep(&s->listen[0]); /* its name is gone; clients find the abstract one, and new ones this */
        s->listen[0] = listen_by_path();
}
