/*
 * loop-test: what the tests of loop/ share. cmocka's assertions jump to the test's frame, which from a coroutine would
 * be a jump to another stack: inside coroutines CHECK is used, which ends the program.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "loop/stream.h"
#include "loop/wait.h"

#define CHECK(cond)                                                                \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        abort();                                                   \
                }                                                                  \
        } while (0)

#define CHECK_INT(a, b)                                                                                            \
        do {                                                                                                       \
                long long _a = (long long) (a), _b = (long long) (b);                                              \
                if (_a != _b) {                                                                                    \
                        fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #a, _a, _b, #b); \
                        abort();                                                                                   \
                }                                                                                                  \
        } while (0)

#define MS_MAX 20000 /* "long enough": only reached when something is broken */

static inline int loop_up(void **state)
{
        struct err e;

        (void) state;
        alarm(120);
        return loop_init(&e);
}

static inline int loop_down(void **state)
{
        (void) state;
        loop_done();
        return 0;
}

#define LOOP_TEST(fn) cmocka_unit_test_setup_teardown(fn, loop_up, loop_down)

struct run {
        void (*fn)(void *arg);
        void *arg;
        bool done;
};

static void run_main(void *arg)
{
        struct run *r = arg;

        r->fn(r->arg);
        r->done = true;
}

/* Runs fn in a coroutine until the loop has nothing left to do; fn must have come to its end. */
static inline void run(void (*fn)(void *arg), void *arg)
{
        struct run r = { fn, arg, false };

        assert_non_null(coro_start(run_main, &r, CORO_STACK_LARGE, "test"));
        loop_run();
        assert_true(r.done);
        assert_int_equal(coro_count(), 0);
}

static inline void make_pair(struct stream **a, struct stream **b)
{
        int fds[2];

        CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_INT(stream_from_fd(fds[0], a, NULL), 0);
        CHECK_INT(stream_from_fd(fds[1], b, NULL), 0);
}

/* A connected TCP pair over loopback, without the loop. */
static inline void make_tcp_fds(int fds[2])
{
        struct sockaddr_storage ss = { 0 };
        socklen_t len = sizeof(ss);
        unsigned char any[16] = { AF_INET & 0xff, AF_INET >> 8, 0, 0, 127, 0, 0, 1 };
        int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(l >= 0);
        CHECK_INT(bind(l, (struct sockaddr *) any, sizeof(any)), 0);
        CHECK_INT(listen(l, 1), 0);
        CHECK_INT(getsockname(l, (struct sockaddr *) &ss, &len), 0);
        fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_INT(connect(fds[0], (struct sockaddr *) &ss, len), 0);
        fds[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fds[1] >= 0);
        close(l);
}

static inline void make_tcp_pair(struct stream **a, struct stream **b)
{
        int fds[2];

        make_tcp_fds(fds);
        CHECK_INT(stream_from_fd(fds[0], a, NULL), 0);
        CHECK_INT(stream_from_fd(fds[1], b, NULL), 0);
}

/* Returns in the part of a turn that follows polling, where timers come before the next poll. */
static inline void after_polling(void)
{
        struct stream *a, *b;
        char c;

        make_pair(&a, &b);
        CHECK_INT(stream_read(a, &c, 1, 1), -ETIMEDOUT);
        CHECK_INT(stream_post(b, "x", 1, 1), 0);
        CHECK_INT(stream_read(a, &c, 1, MS_MAX), 1);
        stream_close(a);
        stream_close(b);
}
