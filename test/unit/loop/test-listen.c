#include "loop-test.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static struct listener *listener;
static int accepted;
static char last_peer[100];
static struct stream *kept[200];

static void on_accept(struct stream *s, void *arg)
{
        int nodelay = 0;
        socklen_t len = sizeof(nodelay);

        CHECK(arg == &accepted);
        if (getsockopt(stream_fd(s), IPPROTO_TCP, TCP_NODELAY, &nodelay, &len) == 0)
                CHECK(nodelay);
        CHECK(fcntl(stream_fd(s), F_GETFD) & FD_CLOEXEC);
        CHECK(fcntl(stream_fd(s), F_GETFL) & O_NONBLOCK);
        snprintf(last_peer, sizeof(last_peer), "%s", stream_peer(s));
        kept[accepted++] = s;
}

static void drop_accepted(void)
{
        while (accepted > 0)
                stream_close(kept[--accepted]);
}

static void until_accepted(int n)
{
        for (int i = 0; i < 1000 && accepted < n; i++)
                CHECK_INT(coro_sleep(1), 0);
        CHECK_INT(accepted, n);
}

static void tcp(void *arg)
{
        const char *addr = arg;
        struct err e = { 0 };
        struct stream *s = NULL;
        char text[20];

        CHECK_INT(listen_tcp(addr, 0, 0, on_accept, &accepted, &listener, &e), 0);
        CHECK(listener_port(listener) > 0);
        CHECK_INT(stream_connect_tcp(strcmp(addr, "::") ? addr : "127.0.0.1", listener_port(listener), MS_MAX, &s, &e),
                  0);
        until_accepted(1);
        CHECK_INT(stream_post(kept[0], "hello", 5, 100), 0);
        CHECK_INT(stream_read_full(s, text, 5, MS_MAX), 0);
        snprintf(text, sizeof(text), ":%u", listener_port(listener));
        CHECK(strstr(stream_peer(s), text));
        CHECK(strncmp(last_peer, strcmp(addr, "::1") ? "127.0.0.1:" : "[::1]:", 6) == 0);
        stream_close(s);
        drop_accepted();
        listener_closep(&listener);
        CHECK(!listener);
        listener_closep(&listener);
}

static bool have_ipv6(void)
{
        struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        _cleanup_close_ int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

        return fd >= 0 && bind(fd, (struct sockaddr *) &sa, sizeof(sa)) == 0;
}

static void tcp_of_both_families(void **state)
{
        run(tcp, (void *) (uintptr_t) "127.0.0.1");
        run(tcp, (void *) (uintptr_t) "localhost");
        if (have_ipv6()) {
                run(tcp, (void *) (uintptr_t) "::1");
                run(tcp, (void *) (uintptr_t) "::");
        }
}

static void refused(void *arg)
{
        struct err e = { 0 };
        struct stream *s = NULL;
        unsigned port;

        CHECK_INT(listen_tcp("127.0.0.1", 0, 0, on_accept, &accepted, &listener, &e), 0);
        port = listener_port(listener);
        struct listener *second = NULL;
        CHECK_INT(listen_tcp("127.0.0.1", port, 0, on_accept, &accepted, &second, &e), -EADDRINUSE);
        CHECK(strstr(e.msg, "127.0.0.1"));
        listener_close(listener);
        CHECK_INT(coro_sleep(2), 0);
        CHECK_INT(stream_connect_tcp("127.0.0.1", port, MS_MAX, &s, &e), -ECONNREFUSED);
        CHECK(strstr(e.msg, "127.0.0.1"));
        CHECK_INT(stream_connect_tcp("localhost", port, MS_MAX, &s, &e), -ECONNREFUSED);
        CHECK_INT(stream_connect_tcp("127.0.0.1", 0, MS_MAX, &s, &e), -EINVAL);
        CHECK_INT(stream_connect_tcp("127.0.0.1", 70000, MS_MAX, &s, &e), -EINVAL);
        CHECK(stream_connect_tcp("no-such-host.invalid", 80, MS_MAX, &s, &e) < 0);
        CHECK_INT(listen_tcp("no.address", 80, 0, on_accept, &accepted, &second, &e), -EINVAL);
        CHECK_INT(listen_tcp("127.0.0.1", 70000, 0, on_accept, &accepted, &second, &e), -EINVAL);
        /* At once again: SO_REUSEADDR. */
        CHECK_INT(listen_tcp("127.0.0.1", port, 0, on_accept, &accepted, &listener, &e), 0);
        listener_close(listener);
        CHECK(!s && !second);
}

static void refusals_have_reasons(void **state)
{
        run(refused, NULL);
}

/* A listener whose backlog is full lets connects hang. */
static void hanging(void *arg)
{
        int fill[8];
        struct sockaddr_in sin = { .sin_family = AF_INET };
        socklen_t len = sizeof(sin);
        struct stream *s = NULL;
        struct err e = { 0 };
        int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK_INT(bind(l, (struct sockaddr *) &sin, sizeof(sin)), 0);
        CHECK_INT(listen(l, 0), 0);
        CHECK_INT(getsockname(l, (struct sockaddr *) &sin, &len), 0);
        for (size_t i = 0; i < ARRAY_LEN(fill); i++) {
                fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                (void) connect(fill[i], (struct sockaddr *) &sin, sizeof(sin));
        }
        CHECK_INT(coro_sleep(10), 0);
        int64_t t = clock_ms();
        CHECK_INT(stream_connect_tcp("127.0.0.1", ntohs(sin.sin_port), 60, &s, &e), -ETIMEDOUT);
        CHECK(clock_ms() - t >= 59 && clock_ms() - t < 10000);
        for (size_t i = 0; i < ARRAY_LEN(fill); i++)
                close(fill[i]);
        close(l);
}

static void connecting_times_out(void **state)
{
        run(hanging, NULL);
}

struct connecting {
        const char *host;
        int result;
        bool done;
};

static void connect_for_ever(void *arg)
{
        struct connecting *x = arg;
        struct stream *s = NULL;

        x->result = stream_connect_tcp(x->host, 9, -1, &s, NULL);
        CHECK(!s);
        x->done = true;
}

static void cancelled(void *arg)
{
        /* 192.0.2.0/24 is for documentation: packets to it go nowhere, or are refused at once without a route. */
        const char *const hosts[] = { "192.0.2.1", "no-such-host.invalid" };

        for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
                struct connecting x = { .host = hosts[i] };
                struct coro *c = coro_start(connect_for_ever, &x, CORO_STACK_LARGE, "connect");

                CHECK_INT(coro_yield(), 0);
                if (!x.done)
                        coro_cancel(c);
                while (!x.done)
                        CHECK_INT(coro_yield(), 0);
                CHECK(x.result < 0);
        }
}

static void connecting_is_cancelled(void **state)
{
        run(cancelled, NULL);
}

/* Unix sockets */

static char dir[] = "/tmp/loop-test-XXXXXX";
static char path[100];

static void unix_sockets(void *arg)
{
        struct err e = { 0 };
        struct stream *s = NULL;
        struct listener *second = NULL;
        struct stat st;
        char c;

        CHECK_INT(stream_connect_unix(path, MS_MAX, &s, &e), -ENOENT);
        CHECK_INT(listen_unix(path, 0600, on_accept, &accepted, &listener, &e), 0);
        CHECK_INT(stat(path, &st), 0);
        CHECK_INT(st.st_mode & 0777, 0600);
        CHECK_INT(listener_port(listener), 0);
        CHECK_INT(stream_connect_unix(path, MS_MAX, &s, &e), 0);
        until_accepted(1);
        CHECK(strcmp(last_peer, "unix") == 0 && strcmp(stream_peer(s), "unix") == 0);
        CHECK_INT(stream_write(s, "x", 1, MS_MAX), 0);
        CHECK_INT(stream_read(kept[0], &c, 1, MS_MAX), 1);
        /* Somebody serves it: not taken over. */
        CHECK_INT(listen_unix(path, 0600, on_accept, &accepted, &second, &e), -EADDRINUSE);
        until_accepted(2);
        stream_close(s);
        drop_accepted();
        listener_close(listener);
        CHECK(stat(path, &st) < 0 && errno == ENOENT);

        /* A leftover is replaced, a file is not. */
        struct sockaddr_un sun = { .sun_family = AF_UNIX };
        memcpy(sun.sun_path, path, strlen(path));
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_INT(bind(fd, (struct sockaddr *) &sun, sizeof(sun)), 0);
        close(fd);
        CHECK_INT(listen_unix(path, 0660, on_accept, &accepted, &listener, &e), 0);
        /* Replaced by another server meanwhile: its file is not ours to remove. */
        CHECK_INT(unlink(path), 0);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        close(fd);
        listener_close(listener);
        CHECK_INT(stat(path, &st), 0);
        CHECK_INT(listen_unix(path, 0600, on_accept, &accepted, &listener, &e), -EEXIST);
        unlink(path);
        char longer[200] = { 0 };
        memset(longer, 'x', sizeof(longer) - 1);
        CHECK_INT(listen_unix(longer, 0600, on_accept, &accepted, &listener, &e), -ENAMETOOLONG);
        CHECK_INT(stream_connect_unix(longer, MS_MAX, &s, &e), -ENAMETOOLONG);
}

static void unix_listeners(void **state)
{
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/s", dir);
        run(unix_sockets, NULL);
        rmdir(dir);
}

static void unix_backlog(void *arg)
{
        struct sockaddr_un sun = { .sun_family = AF_UNIX };
        struct stream *s[4] = { 0 };
        struct err e = { 0 };
        int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

        memcpy(sun.sun_path, path, strlen(path));
        CHECK_INT(bind(l, (struct sockaddr *) &sun, sizeof(sun)), 0);
        CHECK_INT(listen(l, 0), 0);
        int64_t t = clock_ms();
        for (int i = 0; i < 4 && r == 0; i++)
                r = stream_connect_unix(path, 50, &s[i], &e);
        CHECK_INT(r, -ETIMEDOUT);
        CHECK(clock_ms() - t >= 49);
        for (int i = 0; i < 4; i++)
                stream_close(s[i]);
        close(l);
        unlink(path);
}

static void a_full_unix_backlog_times_out(void **state)
{
        snprintf(path, sizeof(path), "/tmp/loop-test-backlog-%d", (int) getpid());
        run(unix_backlog, NULL);
}

/* Many at once, closing from the callback, exhaustion */

static void connect_one(void *arg)
{
        struct stream *s = NULL;
        char c;

        CHECK_INT(stream_connect_tcp("127.0.0.1", listener_port(listener), MS_MAX, &s, NULL), 0);
        CHECK_INT(stream_read(s, &c, 1, MS_MAX), 0);
        stream_close(s);
}

static void many(void *arg)
{
        CHECK_INT(listen_tcp("127.0.0.1", 0, 0, on_accept, &accepted, &listener, NULL), 0);
        for (int i = 0; i < 150; i++)
                coro_start(connect_one, NULL, 0, "client");
        until_accepted(150);
        drop_accepted();
        CHECK_INT(coro_sleep(20), 0);
        listener_close(listener);
}

static void many_connections(void **state)
{
        run(many, NULL);
}

static void accept_and_close(struct stream *s, void *arg)
{
        accepted++;
        stream_close(s);
        listener_closep(&listener);
}

static void close_in_callback(void *arg)
{
        struct stream *s = NULL, *t = NULL;
        struct err e;

        CHECK_INT(listen_tcp("127.0.0.1", 0, 0, accept_and_close, NULL, &listener, &e), 0);
        unsigned port = listener_port(listener);
        CHECK_INT(stream_connect_tcp("127.0.0.1", port, MS_MAX, &s, &e), 0);
        (void) stream_connect_tcp("127.0.0.1", port, MS_MAX, &t, &e);
        CHECK_INT(coro_sleep(10), 0);
        CHECK_INT(accepted, 1);
        accepted = 0;
        stream_close(s);
        stream_close(t);
}

static void a_listener_closes_in_its_callback(void **state)
{
        accepted = 0;
        run(close_in_callback, NULL);
}

static void exhausted(void *arg)
{
        struct rlimit old, few;
        int fds[300], n = 0;
        struct sockaddr_in sin = { .sin_family = AF_INET };

        CHECK_INT(listen_tcp("127.0.0.1", 0, 0, on_accept, &accepted, &listener, NULL), 0);
        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sin.sin_port = htons((uint16_t) listener_port(listener));
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
        few = old;
        few.rlim_cur = 200;
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
        while (n < 300 && (fds[n] = dup(client)) >= 0)
                n++;
        CHECK(n > 0 && n < 300);
        CHECK_INT(connect(client, (struct sockaddr *) &sin, sizeof(sin)), 0);
        int64_t cpu = clock();
        CHECK_INT(coro_sleep(150), 0);
        CHECK_INT(accepted, 0);
        CHECK(clock() - cpu < CLOCKS_PER_SEC / 20); /* not spinning */
        while (n > 0)
                close(fds[--n]);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
        until_accepted(1); /* the one that waited is served, not dropped */
        drop_accepted();
        close(client);
        listener_close(listener);
}

static void out_of_descriptors_clients_wait(void **state)
{
        accepted = 0;
        run(exhausted, NULL);
}

static void leave_open(void *arg)
{
        CHECK_INT(listen_tcp("127.0.0.1", 0, 0, on_accept, &accepted, &listener, NULL), 0);
        loop_stop();
}

static void a_listener_outlives_the_loop(void **state)
{
        coro_start(leave_open, NULL, 0, "open");
        loop_run();
        loop_done();
        listener_close(listener);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(tcp_of_both_families),
                LOOP_TEST(refusals_have_reasons),
                LOOP_TEST(connecting_times_out),
                LOOP_TEST(connecting_is_cancelled),
                LOOP_TEST(unix_listeners),
                LOOP_TEST(a_full_unix_backlog_times_out),
                LOOP_TEST(many_connections),
                LOOP_TEST(a_listener_closes_in_its_callback),
                LOOP_TEST(out_of_descriptors_clients_wait),
                LOOP_TEST(a_listener_outlives_the_loop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
