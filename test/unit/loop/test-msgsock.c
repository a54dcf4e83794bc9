#include "loop-test.h"

static void make(struct msgsock **a, struct msgsock **b)
{
        int fds[2];

        CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_INT(msgsock_from_fd(fds[0], a, NULL), 0);
        CHECK_INT(msgsock_from_fd(fds[1], b, NULL), 0);
}

static void whole_messages(void *arg)
{
        struct msgsock *a, *b;
        static char big[60000], got[65536];

        make(&a, &b);
        CHECK_INT(msgsock_send(a, "one", 3, MS_MAX), 0);
        CHECK_INT(msgsock_send(a, "three", 5, MS_MAX), 0);
        memset(big, 'b', sizeof(big));
        CHECK_INT(msgsock_send(a, big, sizeof(big), MS_MAX), 0);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), MS_MAX), 3);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), MS_MAX), 5);
        CHECK(memcmp(got, "three", 5) == 0);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), MS_MAX), sizeof(big));
        CHECK(memcmp(got, big, sizeof(big)) == 0);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), 10), -ETIMEDOUT);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), 0), -ETIMEDOUT);
        CHECK_INT(msgsock_send(a, "longer than asked for", 21, MS_MAX), 0);
        CHECK_INT(msgsock_recv(b, got, 4, MS_MAX), -EMSGSIZE); /* a cut message is no message */
        CHECK_INT(msgsock_send(a, "next", 4, MS_MAX), 0);
        CHECK_INT(msgsock_recv(b, got, 4, MS_MAX), 4);
        CHECK_INT(msgsock_send(a, "last", 4, MS_MAX), 0);
        msgsock_close(a);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), MS_MAX), 4);
        CHECK_INT(msgsock_recv(b, got, sizeof(got), MS_MAX), 0);
        CHECK_INT(msgsock_send(b, "x", 1, MS_MAX), -EPIPE);
        msgsock_close(b);
        msgsock_close(NULL);
}

/* A descriptor goes to whoever asks for it, and to nobody by accident. */
static void with_descriptor(int to, const char *text)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { { 0 } };
        struct iovec iov = { (void *) text, strlen(text) };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        int pair[2];

        CHECK_INT(pipe(pair), 0);
        CHECK_INT(write(pair[1], "x", 1), 1);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof pair[0]);
        memcpy(CMSG_DATA(c), &pair[0], sizeof pair[0]);
        CHECK_INT(sendmsg(to, &msg, MSG_NOSIGNAL), (int) strlen(text));
        close(pair[0]);
        close(pair[1]);
}

static void descriptors(void *arg)
{
        struct msgsock *m;
        int fds[2], fd = 7;
        char got[16];

        CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_INT(msgsock_from_fd(fds[1], &m, NULL), 0);
        with_descriptor(fds[0], "one");
        CHECK_INT(msgsock_recv_fd(m, got, sizeof(got), &fd, MS_MAX), 3);
        CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
        CHECK_INT(read(fd, got, sizeof(got)), 1);
        close(fd);
        CHECK_INT(send(fds[0], "none", 4, 0), 4);
        CHECK_INT(msgsock_recv_fd(m, got, sizeof(got), &fd, MS_MAX), 4);
        CHECK_INT(fd, -1);
        int next = dup(0);
        close(next);
        with_descriptor(fds[0], "dropped");
        CHECK_INT(msgsock_recv(m, got, sizeof(got), MS_MAX), 7);
        with_descriptor(fds[0], "longer than asked for");
        CHECK_INT(msgsock_recv_fd(m, got, 4, &fd, MS_MAX), -EMSGSIZE);
        CHECK_INT(fd, -1);
        int after = dup(0); /* neither of the two stayed open */
        CHECK_INT(after, next);
        close(after);
        close(fds[0]);
        msgsock_close(m);
}

static void descriptors_come_with_messages(void **state)
{
        run(descriptors, NULL);
}

static void messages_stay_whole(void **state)
{
        run(whole_messages, NULL);
}

struct waiting {
        struct msgsock *m;
        int kind, result;
        bool done;
};

static void wait_on(void *arg)
{
        struct waiting *w = arg;
        static char block[10000];

        if (w->kind == 0)
                w->result = (int) msgsock_recv(w->m, block, sizeof(block), -1);
        else
                while ((w->result = msgsock_send(w->m, block, sizeof(block), -1)) == 0)
                        ;
        w->done = true;
}

static void ends(void *arg)
{
        for (int how = 0; how < 2; how++) {
                struct waiting r = { .kind = 0 }, w = { .kind = 1 };
                struct msgsock *other;
                char c[10];

                make(&r.m, &other);
                w.m = r.m;
                struct coro *cr = coro_start(wait_on, &r, 0, "recv");
                struct coro *cw = coro_start(wait_on, &w, 0, "send");
                CHECK_INT(coro_sleep(5), 0);
                CHECK(!r.done && !w.done);
                CHECK_INT(msgsock_recv(r.m, c, 1, MS_MAX), -EBUSY);
                if (how == 0) {
                        msgsock_close(r.m);
                } else {
                        coro_cancel(cr);
                        coro_cancel(cw);
                }
                CHECK_INT(coro_sleep(5), 0);
                CHECK(r.done && w.done);
                CHECK_INT(r.result, -ECANCELED);
                CHECK_INT(w.result, -ECANCELED);
                if (how == 1)
                        msgsock_close(r.m);
                msgsock_close(other);
        }
}

static void closing_and_cancelling_end_waits(void **state)
{
        run(ends, NULL);
}

static void send_many(void *arg)
{
        struct waiting *w = arg;

        for (int i = 0; i < 3000; i++)
                CHECK_INT(msgsock_send(w->m, &i, sizeof(i), MS_MAX), 0);
        w->done = true;
}

static void flow(void *arg)
{
        struct waiting w = { .kind = 0 };
        struct msgsock *b;

        make(&w.m, &b);
        coro_start(send_many, &w, 0, "send");
        CHECK_INT(coro_sleep(5), 0);
        CHECK(!w.done); /* the kernel keeps only so many */
        for (int i = 0, v; i < 3000; i++) {
                CHECK_INT(msgsock_recv(b, &v, sizeof(v), MS_MAX), sizeof(v));
                CHECK_INT(v, i);
        }
        CHECK_INT(coro_sleep(5), 0);
        CHECK(w.done);
        msgsock_close(w.m);
        msgsock_close(b);
}

static void senders_wait(void **state)
{
        run(flow, NULL);
}

static struct msgsock *left_a, *left_b;

static void leave(void *arg)
{
        char c;

        make(&left_a, &left_b);
        CHECK_INT(msgsock_recv(left_a, &c, 1, 2), -ETIMEDOUT);
}

static void idle_ones_keep_no_loop(void **state)
{
        run(leave, NULL);
        loop_done();
        msgsock_close(left_a);
        msgsock_close(left_b);
}

static void not_a_socket(void **state)
{
        struct msgsock *m;
        struct err e;

        assert_int_equal(msgsock_from_fd(12345, &m, &e), -EBADF);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LOOP_TEST(messages_stay_whole),
                LOOP_TEST(descriptors_come_with_messages),
                LOOP_TEST(closing_and_cancelling_end_waits),
                LOOP_TEST(senders_wait),
                LOOP_TEST(idle_ones_keep_no_loop),
                LOOP_TEST(not_a_socket),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
