/* Dialling a port of a box whose daemon lies: what it passes is checked, and nothing it passes stays open. */
#include "control/dial.h"

#include "base/mem.h"
#include "control/guest_client.h"
#include "loop/loop.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define CHECK(cond)                                                                       \
        do {                                                                              \
                if (!(cond)) {                                                            \
                        (void) fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        abort();                                                          \
                }                                                                         \
        } while (0)

#define PASSED "{\"passed\":true,\"done\":true}"

/* What the daemon says, and what it passes along with it. */
static struct say {
        const char *json;
        int fds[4];
        size_t count;
        bool echo; /* then data frames come back as they were sent */
} say;
static pid_t daemon_pid;

static void send_answer(int to)
{
        unsigned char frame[GUEST_HEADER_LEN + 4096];
        size_t n = strlen(say.json);
        union {
                char room[CMSG_SPACE(sizeof say.fds)];
                struct cmsghdr align;
        } u = { { 0 } };

        guest_encode(&(struct guest_header){ GUEST_CONTROL, 0, (uint32_t) n }, frame);
        memcpy(frame + GUEST_HEADER_LEN, say.json, n);
        struct iovec iov = { frame, GUEST_HEADER_LEN + n };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        if (say.count) {
                m.msg_control = u.room;
                m.msg_controllen = CMSG_SPACE(say.count * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(say.count * sizeof(int));
                memcpy(CMSG_DATA(c), say.fds, say.count * sizeof(int));
        }
        (void) sendmsg(to, &m, MSG_NOSIGNAL);
}

static void daemon_main(int fd)
{
        unsigned char header[GUEST_HEADER_LEN];
        struct guest_header h;
        char text[4096];

        CHECK(recv(fd, header, sizeof header, MSG_WAITALL) == sizeof header && guest_decode(header, &h) == 0);
        CHECK(recv(fd, text, h.length, MSG_WAITALL) == (ssize_t) h.length);
        send_answer(fd);
        for (;;) {
                ssize_t n = read(fd, text, sizeof text);

                if (n <= 0)
                        return;
                if (say.echo && write(fd, text, (size_t) n) != n)
                        return;
        }
}

static int coroutine_fn lie(struct driver *d, const char *box, struct stream **ret, struct err *e)
{
        int pair[2];

        (void) d;
        (void) box;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        daemon_pid = fork();
        if (daemon_pid == 0) {
                (void) close(pair[0]);
                daemon_main(pair[1]);
                _exit(0);
        }
        (void) close(pair[1]);
        return stream_from_fd(pair[0], ret, e);
}

static const struct driver_ops ops = { .name = "liar", .connect = lie };

struct attempt {
        struct control *c;
        struct err e;
        int r;
        bool talk; /* an echo is at the other end */
};

static void coroutine_fn attempt_main(void *arg)
{
        struct attempt *a = arg;
        struct stream *s = NULL;
        char got[5] = "";

        a->r = guest_dial(a->c, "box", 80, &s, &a->e);
        if (a->r == 0 && a->talk) {
                CHECK(stream_write(s, "hello", 5, 5000) == 0);
                CHECK(stream_read_full(s, got, 5, 5000) == 0);
                CHECK(memcmp(got, "hello", 5) == 0);
                if (say.echo) { /* framed: the end goes both ways too */
                        CHECK(stream_shutdown(s) == 0);
                        CHECK(stream_read(s, got, 1, 5000) == 0);
                }
        }
        stream_close(s);
        (void) waitpid(daemon_pid, NULL, 0);
        loop_stop();
}

static int attempt(struct attempt *a)
{
        struct driver d = { .ops = &ops };
        struct control c = { .driver = &d };

        a->c = &c;
        a->r = 1;
        CHECK(loop_init(&a->e) == 0);
        CHECK(coro_start(attempt_main, a, CORO_STACK_DEFAULT, "attempt"));
        loop_run();
        loop_done();
        return a->r;
}

static size_t open_count(void)
{
        size_t n = 0;
        DIR *d = opendir("/proc/self/fd");

        CHECK(d);
        while (readdir(d))
                n++;
        (void) closedir(d);
        return n;
}

static int listener(struct sockaddr_in *at)
{
        socklen_t n = sizeof *at;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        *at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        CHECK(fd >= 0 && bind(fd, (void *) at, n) == 0 && listen(fd, 4) == 0);
        CHECK(getsockname(fd, (void *) at, &n) == 0);
        return fd;
}

static int try(const char *json, const int *fds, size_t count)
{
        struct attempt a = { .r = 1 };

        say = (struct say){ .json = json, .count = count };
        for (size_t i = 0; i < count; i++)
                say.fds[i] = fds[i];
        int r = attempt(&a);
        CHECK(r == 0 || a.e.msg[0]);
        return r;
}

static void test_what_is_passed_is_checked(void **state)
{
        struct sockaddr_in at;
        int pair[2], pipes[2];
        int tcp = listener(&at), plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

        (void) state;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && pipe2(pipes, O_CLOEXEC) == 0);
        CHECK(connect(udp, (void *) &at, sizeof at) == 0);
        (void) try("{\"done\":true}", NULL, 0); /* what is opened once and for ever is open now */
        size_t before = open_count();
        const int bad[] = { tcp, plain, udp, file, pair[0], pipes[0], pipes[1] };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(try(PASSED, &bad[i], 1), -EPROTO);
        assert_int_equal(try(PASSED, bad, 4), -EPROTO);
        assert_int_equal(try(PASSED, NULL, 0), -EPROTO); /* promised and not kept */
        assert_int_equal(try("{\"done\":true}", bad, 1), -EPROTO);
        assert_int_equal(try("{\"done\":true,\"error\":\"no\",\"code\":\"ECONNREFUSED\"}", bad, 2), -ECONNREFUSED);
        assert_int_equal(try("{\"event\":\"started\"}", bad, 1), -EPROTO);
        assert_true(try("[", bad, 1) < 0);
        assert_int_equal(try("", bad, 1), -EPROTO);
        assert_int_equal(open_count(), before);
        const int all[] = { tcp, plain, udp, file, pair[0], pair[1], pipes[0], pipes[1] };
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                (void) close(all[i]);
}

/* An echo service on a TCP socket; returns a connection to it. */
static int echo_service(void)
{
        struct sockaddr_in at;
        int l = listener(&at), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0 && connect(fd, (void *) &at, sizeof at) == 0);
        if (fork() == 0) {
                char text[4096];
                int c = accept(l, NULL, NULL);
                ssize_t n;

                (void) close(fd);
                while ((n = read(c, text, sizeof text)) > 0)
                        if (write(c, text, (size_t) n) != n)
                                break;
                _exit(0);
        }
        (void) close(l);
        return fd;
}

static void test_a_passed_socket_is_the_connection(void **state)
{
        struct attempt a = { .talk = true };
        int fd = echo_service();

        (void) state;
        say = (struct say){ .json = PASSED, .fds = { fd, fd, fd, fd }, .count = 4 }; /* more than was asked for */
        CHECK(fcntl(fd, F_SETFL, 0) == 0);                                           /* and a blocking one */
        size_t before = open_count();
        assert_int_equal(attempt(&a), 0);
        assert_int_equal(open_count(), before);
        (void) close(fd);
}

static void test_frames_when_nothing_is_passed(void **state)
{
        struct attempt a = { .talk = true };

        (void) state;
        say = (struct say){ .json = "{\"event\":\"connected\"}", .echo = true };
        assert_int_equal(attempt(&a), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_is_passed_is_checked),
                cmocka_unit_test(test_a_passed_socket_is_the_connection),
                cmocka_unit_test(test_frames_when_nothing_is_passed),
        };

        (void) alarm(120);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
