#include "loop-test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "loop/child.h"

static size_t descriptors(void)
{
        size_t n = 0;

        for (int fd = 0; fd < 1000; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

#define SH(script)                       \
        (const char *const[])            \
        {                                \
                "sh", "-c", script, NULL \
        }

static int run_sh(const char *script, const char *in, struct buf *out, int64_t timeout, struct err *e)
{
        const char *const argv[] = { "sh", "-c", script, NULL };
        struct child_spec spec = { .argv = argv, .new_session = true };

        *e = (struct err){ 0 };
        return child_run(&spec, in, in ? strlen(in) : 0, out, timeout, e);
}

static void statuses(void *arg)
{
        static const struct {
                const char *script;
                int status;
        } cases[] = {
                { "exit 0", 0 },          { "exit 7", 7 },
                { "exit 127", 127 },      { "exit 255", 255 },
                { "kill -9 $$", 137 },    { "kill -TERM $$", 143 },
                { "kill -SEGV $$", 139 }, { "no-such-command-anywhere", 127 },
        };
        struct err e;

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                _cleanup_buf_ struct buf out = BUF_MAX(1000);

                CHECK_INT(run_sh(cases[i].script, NULL, &out, MS_MAX, &e), cases[i].status);
        }
}

static void exit_statuses_are_the_shells(void **state)
{
        run(statuses, NULL);
}

static void output(void *arg)
{
        _cleanup_buf_ struct buf out = BUF_MAX((size_t) 16 << 20);
        struct err e;

        /* 10 MiB, and more on stderr than a pipe holds. */
        CHECK_INT(run_sh("head -c 10485760 /dev/zero | tr '\\0' x; echo first line >&2; head -c 300000 /dev/zero >&2",
                         NULL, &out, MS_MAX, &e),
                  0);
        CHECK_INT(out.len, 10485760);
        CHECK(out.p[0] == 'x' && out.p[10485759] == 'x');
        CHECK(strncmp(e.msg, "first line", 10) == 0);
        buf_clear(&out);
        CHECK_INT(run_sh("echo some words >&2; exit 3", NULL, &out, MS_MAX, &e), 3);
        CHECK(strcmp(e.msg, "some words") == 0);
        CHECK_INT(out.len, 0);
        CHECK_INT(run_sh("cat; cat >&2", "into", &out, MS_MAX, &e), 0);
        CHECK(str_eq(buf_str(&out), STR("into")));
}

static void output_is_collected(void **state)
{
        run(output, NULL);
}

static void input(void *arg)
{
        size_t n = (size_t) 3 << 20;
        _cleanup_free_ char *big = xmalloc(n + 1);
        _cleanup_buf_ struct buf out = BUF_MAX((size_t) 4 << 20);
        struct err e;

        memset(big, 'y', n);
        big[n] = '\0';
        CHECK_INT(run_sh("cat", big, &out, MS_MAX, &e), 0);
        CHECK_INT(out.len, n);
        /* A child that reads nothing of its input. */
        buf_clear(&out);
        CHECK_INT(run_sh("exec <&-; sleep 0.05; echo done; exit 4", big, &out, MS_MAX, &e), 4);
        CHECK(str_eq(buf_str(&out), STR("done\n")));
}

static void input_is_written_while_output_is_read(void **state)
{
        run(input, NULL);
}

static void bounds(void *arg)
{
        struct err e;

        {
                _cleanup_buf_ struct buf out = BUF_MAX(1000);
                int64_t t = clock_ms();

                CHECK_INT(run_sh("while :; do echo more; done", NULL, &out, MS_MAX, &e), -ENOBUFS);
                CHECK_INT(run_sh("echo x; sleep 100", NULL, &out, 50, &e), -ENOBUFS);
                buf_clear(&out);
                CHECK_INT(run_sh("echo x; sleep 100", NULL, &out, 50, &e), -ETIMEDOUT);
                CHECK(strstr(e.msg, "sh"));
                CHECK(clock_ms() - t < 10000);
        }
        _cleanup_buf_ struct buf exact = BUF_MAX(5);
        CHECK_INT(run_sh("printf 12345", NULL, &exact, MS_MAX, &e), 0);
        CHECK_INT(exact.len, 5);
        buf_clear(&exact);
        CHECK_INT(run_sh("printf 123456", NULL, &exact, MS_MAX, &e), -ENOBUFS);
        const char *const none[] = { "/no/such/program", NULL };
        struct child_spec spec = { .argv = none };
        CHECK_INT(child_run(&spec, NULL, 0, &exact, MS_MAX, &e), -ENOENT);
        CHECK(strstr(e.msg, "/no/such/program"));
        spec.argv = SH("pwd");
        spec.cwd = "/no/such/folder";
        CHECK_INT(child_run(&spec, NULL, 0, &exact, MS_MAX, &e), -ENOENT);
        const char *const denied[] = { "/dev/null", NULL };
        spec = (struct child_spec){ .argv = denied };
        CHECK_INT(child_run(&spec, NULL, 0, &exact, MS_MAX, &e), -EACCES);
}

static void limits_and_failures(void **state)
{
        run(bounds, NULL);
}

static void surroundings(void *arg)
{
        _cleanup_buf_ struct buf out = BUF_MAX(10000);
        const char *const env[] = { "ONE=1", "PATH=/usr/bin:/bin", NULL };
        struct child_spec spec = { .argv = SH("echo $ONE-$HOME-$(pwd)"), .env = env, .cwd = "/usr" };
        struct err e;
        sigset_t some;

        CHECK_INT(child_run(&spec, NULL, 0, &out, MS_MAX, &e), 0);
        CHECK(str_eq(buf_str(&out), STR("1--/usr\n")));
        /* Nothing blocked, nothing ignored, whatever holds here. */
        sigemptyset(&some);
        sigaddset(&some, SIGUSR2);
        sigprocmask(SIG_BLOCK, &some, NULL);
        signal(SIGHUP, SIG_IGN);
        buf_clear(&out);
        spec = (struct child_spec){ .argv = SH("grep -E 'SigBlk|SigIgn' /proc/self/status") };
        CHECK_INT(child_run(&spec, NULL, 0, &out, MS_MAX, &e), 0);
        unsigned long long blocked = 1, ignored = 1;
        CHECK_INT(sscanf(buf_cstr(&out), "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
        CHECK_INT(blocked, 0);
        CHECK_INT(ignored & ~(3ull << 31), 0); /* 32 and 33 are the C library's own */
        sigprocmask(SIG_UNBLOCK, &some, NULL);
        signal(SIGHUP, SIG_DFL);
        /* A session of its own, or not. */
        buf_clear(&out);
        spec = (struct child_spec){ .argv = SH("cut -d' ' -f1,6 /proc/$$/stat"), .new_session = true };
        CHECK_INT(child_run(&spec, NULL, 0, &out, MS_MAX, &e), 0);
        long pid = 0, session = 0;
        CHECK_INT(sscanf(buf_cstr(&out), "%ld %ld", &pid, &session), 2);
        CHECK_INT(pid, session);
}

static void surroundings_are_clean(void **state)
{
        run(surroundings, NULL);
}

/* Descriptors that this program should not have left open are closed in the child all the same. */
static void no_leak(void *arg)
{
        _cleanup_buf_ struct buf out = BUF_MAX(10000);
        struct child_spec spec = { .argv = SH("ls /proc/self/fd | tr '\\n' ' '") };
        struct err e;
        int sloppy = open("/dev/null", O_RDONLY);
        size_t before = descriptors();

        CHECK(sloppy >= 0);
        for (int i = 0; i < 30; i++) {
                buf_clear(&out);
                CHECK_INT(child_run(&spec, NULL, 0, &out, MS_MAX, &e), 0);
                CHECK(str_eq(buf_str(&out), STR("0 1 2 3 "))); /* 3 is ls's own */
        }
        CHECK_INT(descriptors(), before);
        /* Failures leave none either. */
        spec.argv = (const char *const[]){ "/no/such/program", NULL };
        for (int i = 0; i < 10; i++)
                CHECK_INT(child_run(&spec, "x", 1, &out, MS_MAX, &e), -ENOENT);
        CHECK_INT(descriptors(), before);
        close(sloppy);
}

static void no_descriptor_leaks(void **state)
{
        run(no_leak, NULL);
}

static void extra(void *arg)
{
        struct child *c = NULL;
        struct stream *s;
        struct err e;
        char text[10] = { 0 };
        int fds[2], more[2];

        CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_INT(pipe2(more, O_CLOEXEC), 0);
        const int pass[] = { fds[1], more[1] };
        struct child_spec spec = { .argv = SH("echo three >&3; echo four >&4"), .extra = pass, .extra_n = 2 };
        CHECK_INT(child_spawn(&spec, &c, &e), 0);
        CHECK_INT(child_wait(c, MS_MAX), 0);
        child_free(c);
        close(fds[1]);
        close(more[1]);
        CHECK_INT(stream_from_fd(fds[0], &s, &e), 0);
        CHECK_INT(stream_read(s, text, 10, MS_MAX), 6);
        CHECK(strcmp(text, "three\n") == 0);
        stream_close(s);
        CHECK_INT(read(more[0], text, 10), 5);
        close(more[0]);
        spec.extra_n = CHILD_EXTRA_MAX + 1;
        CHECK_INT(child_spawn(&spec, &c, &e), -E2BIG);
}

static void extra_descriptors_are_passed(void **state)
{
        run(extra, NULL);
}

/* Descriptors 0 to 2 of this program may be closed: the pipes then get those numbers. */
static void without_stdio(void **state)
{
        pid_t pid = fork();
        int st;

        if (pid == 0) {
                int keep = fcntl(2, F_DUPFD_CLOEXEC, 10);

                close(0);
                close(1);
                close(2);
                run(output, NULL);
                dup2(keep, 2);
                _exit(42);
        }
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_int_equal(WEXITSTATUS(st), 42);
}

static void talk(void *arg)
{
        struct child_spec spec = { .argv = SH("while read l; do echo \"<$l>\"; done; echo bye"),
                                   .io = { CHILD_PIPE, CHILD_PIPE, CHILD_INHERIT } };
        struct child *c = NULL;
        struct err e;
        char text[100];

        CHECK_INT(child_spawn(&spec, &c, &e), 0);
        CHECK(child_pid(c) > 0);
        CHECK(child_stdio(c, 2) == NULL);
        for (int i = 0; i < 20; i++) {
                CHECK_INT(stream_write(child_stdio(c, 0), "ping\n", 5, MS_MAX), 0);
                CHECK_INT(stream_read_full(child_stdio(c, 1), text, 7, MS_MAX), 0);
                CHECK(memcmp(text, "<ping>\n", 7) == 0);
        }
        CHECK_INT(child_wait(c, 10), -ETIMEDOUT);
        struct stream *in = child_take_stdio(c, 0);
        CHECK(child_stdio(c, 0) == NULL && child_take_stdio(c, 0) == NULL);
        stream_close(in);
        CHECK_INT(stream_read_full(child_stdio(c, 1), text, 4, MS_MAX), 0);
        CHECK_INT(stream_read(child_stdio(c, 1), text, 4, MS_MAX), 0);
        CHECK_INT(child_wait(c, MS_MAX), 0);
        CHECK_INT(child_wait(c, 0), 0); /* the status stays */
        CHECK_INT(child_kill(c, SIGTERM), -ESRCH);
        child_freep(&c);
        child_freep(&c);
}

static void conversations(void **state)
{
        run(talk, NULL);
}

static void kill_group(void *arg)
{
        struct child_spec spec = { .argv = SH("sleep 1000 & sleep 1000 & echo $!; wait"),
                                   .io = { CHILD_NULL, CHILD_PIPE, CHILD_NULL },
                                   .new_session = true };
        struct child *c = NULL;
        struct err e;
        char text[100] = { 0 };

        CHECK_INT(child_spawn(&spec, &c, &e), 0);
        CHECK(stream_read(child_stdio(c, 1), text, sizeof(text) - 1, MS_MAX) > 0);
        pid_t grandchild = (pid_t) strtol(text, NULL, 10);
        CHECK_INT(kill(grandchild, 0), 0);
        CHECK_INT(child_kill(c, SIGTERM), 0);
        CHECK_INT(child_wait(c, MS_MAX), 128 + SIGTERM);
        /* The pipe ends only when all of the group are gone. */
        CHECK_INT(stream_read(child_stdio(c, 1), text, 1, MS_MAX), 0);
        child_free(c);
}

static void a_group_is_killed(void **state)
{
        run(kill_group, NULL);
}

static pid_t dropped;

static void drop(void *arg)
{
        struct child_spec spec = { .argv = SH("sleep 1000"), .new_session = true };
        struct child *c = NULL;
        struct err e;

        CHECK_INT(child_spawn(&spec, &c, &e), 0);
        dropped = child_pid(c);
        child_free(c);
        if (arg)
                loop_stop();
}

static void a_dropped_child_is_killed_and_reaped(void **state)
{
        run(drop, NULL); /* the loop stays until it is reaped */
        assert_int_equal(waitpid(dropped, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        coro_start(drop, (void *) 1, 0, "drop");
        loop_run();
        loop_done(); /* waits too */
        assert_int_equal(waitpid(dropped, NULL, WNOHANG), -1);
}

static struct child *kept;

static void keep(void *arg)
{
        struct child_spec spec = { .argv = SH("sleep 1000"), .new_session = true };
        struct err e;

        CHECK_INT(child_spawn(&spec, &kept, &e), 0);
        dropped = child_pid(kept);
        loop_stop();
}

static void a_child_outlives_the_loop(void **state)
{
        coro_start(keep, NULL, 0, "keep");
        loop_run();
        loop_done();
        child_free(kept);
        assert_int_equal(waitpid(dropped, NULL, WNOHANG), -1);
}

struct waiting {
        struct child *c;
        int result;
        bool done;
};

static void wait_child(void *arg)
{
        struct waiting *w = arg;

        w->result = child_wait(w->c, -1);
        w->done = true;
}

static void cancelled_wait(void *arg)
{
        struct child_spec spec = { .argv = SH("sleep 1000") };
        struct waiting w = { 0 }, x;
        struct err e;

        CHECK_INT(child_spawn(&spec, &w.c, &e), 0);
        x = w;
        struct coro *c = coro_start(wait_child, &w, 0, "wait");
        coro_start(wait_child, &x, 0, "wait");
        CHECK_INT(coro_sleep(5), 0);
        coro_cancel(c);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(w.done && w.result == -ECANCELED && !x.done);
        child_free(w.c); /* freed below a waiter */
        CHECK_INT(coro_sleep(5), 0);
        CHECK(x.done && x.result == -ECANCELED);
}

static void waits_end(void **state)
{
        run(cancelled_wait, NULL);
}

static void run_cancelled(void *arg)
{
        struct waiting *w = arg;
        _cleanup_buf_ struct buf out = BUF_MAX(100);
        struct err e;

        w->result = run_sh("echo x; sleep 1000", NULL, &out, -1, &e);
        w->done = true;
}

static void cancel_run(void *arg)
{
        struct waiting w = { 0 };
        struct coro *c = coro_start(run_cancelled, &w, 0, "run");

        CHECK_INT(coro_sleep(30), 0);
        coro_cancel(c);
        CHECK_INT(coro_sleep(5), 0);
        CHECK(w.done);
        CHECK_INT(w.result, -ECANCELED);
}

static void a_run_is_cancelled(void **state)
{
        run(cancel_run, NULL);
}

static void many_body(void *arg)
{
        _cleanup_buf_ struct buf out = BUF_MAX(100);
        struct err e;
        int *left = arg;

        CHECK_INT(run_sh("echo hello", NULL, &out, MS_MAX, &e), 0);
        CHECK(str_eq(buf_str(&out), STR("hello\n")));
        --*left;
}

static void many_at_once(void **state)
{
        int left = 100;

        for (int i = 0; i < 100; i++)
                assert_non_null(coro_start(many_body, &left, 0, "many"));
        loop_run();
        assert_int_equal(left, 0);
}

/* Without pidfd (macOS, old kernels) SIGCHLD does it: forced by leaving no number for another descriptor. */
static void by_signal(void *arg)
{
        struct child_spec spec = { .argv = SH("sleep 0.03; exit 5") };
        struct rlimit old, none;
        struct child *c = NULL;
        struct err e;
        int fds[1100], n = 0;

        CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
        none = old;
        none.rlim_cur = 100;
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
        while (n < 1100 && (fds[n] = dup(2)) >= 0)
                n++;
        CHECK_INT(child_spawn(&spec, &c, &e), 0);
        while (n > 0)
                close(fds[--n]);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
        CHECK_INT(child_wait(c, MS_MAX), 5);
        child_free(c);
}

static void children_are_reaped_by_signal_too(void **state)
{
        run(by_signal, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(exit_statuses_are_the_shells),
                LOOP_TEST(output_is_collected),
                LOOP_TEST(input_is_written_while_output_is_read),
                LOOP_TEST(limits_and_failures),
                LOOP_TEST(surroundings_are_clean),
                LOOP_TEST(no_descriptor_leaks),
                LOOP_TEST(extra_descriptors_are_passed),
                LOOP_TEST(without_stdio),
                LOOP_TEST(conversations),
                LOOP_TEST(a_group_is_killed),
                LOOP_TEST(a_dropped_child_is_killed_and_reaped),
                LOOP_TEST(a_child_outlives_the_loop),
                LOOP_TEST(waits_end),
                LOOP_TEST(a_run_is_cancelled),
                LOOP_TEST(many_at_once),
                LOOP_TEST(children_are_reaped_by_signal_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
