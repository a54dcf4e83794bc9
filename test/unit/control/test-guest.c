/* A box's daemon that lies: whatever it sends, the call ends with an answer or an error, and nothing else is touched.
 */
#include "scratch.h"
#include "control/exec.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "loop/loop.h"

#include <errno.h>
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

/* What the daemon says in answer to anything, from a process of its own; then it hangs up. */
static struct buf words = { .max = (size_t) 16 << 20 };
static pid_t liar;

static void frame(unsigned stream, unsigned flags, uint32_t length, const void *p, size_t n)
{
        unsigned char head[GUEST_HEADER_LEN] = { (unsigned char) stream, (unsigned char) flags };

        for (unsigned i = 0; i < 4; i++)
                head[4 + i] = (unsigned char) (length >> (8 * i));
        CHECK(buf_add(&words, head, sizeof head) == 0 && buf_add(&words, p, n) == 0);
}

static void control_frame(const char *json)
{
        frame(GUEST_CONTROL, 0, (uint32_t) strlen(json), json, strlen(json));
}

static int coroutine_fn lie(struct driver *d, const char *box, struct stream **ret, struct err *e)
{
        int pair[2];

        (void) d;
        (void) box;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        liar = fork();
        if (liar == 0) {
                char drop[4096];
                size_t at = 0;

                (void) close(pair[0]);
                while (at < words.len) {
                        ssize_t n = send(pair[1], words.p + at, words.len - at, MSG_NOSIGNAL);

                        if (n <= 0)
                                _exit(0);
                        at += (size_t) n;
                }
                (void) shutdown(pair[1], SHUT_WR);
                while (read(pair[1], drop, sizeof drop) > 0)
                        ;
                _exit(0);
        }
        (void) close(pair[1]);
        return stream_from_fd(pair[0], ret, e);
}

static const struct driver_ops ops = { .name = "liar", .connect = lie };

struct attempt {
        struct control *c;
        struct exec_result *res; /* NULL: the answer's data is dropped */
        struct json *answer;
        struct err e;
        int r;
};

static void coroutine_fn attempt_main(void *arg)
{
        struct attempt *a = arg;
        struct guest_op g = { 0 };

        a->r = guest_open(a->c, "box", json_obj(), &g, &a->e);
        g.idle_ms = 20000;
        if (a->r == 0 && a->res)
                a->r = exec_collect(a->c, &g, 0, a->res, &a->answer, &a->e);
        else if (a->r == 0)
                a->r = guest_finish(&g, &a->e);
        guest_close(&g);
        (void) waitpid(liar, NULL, 0);
        loop_stop();
}

static int attempt(struct attempt *a, struct exec_result *res)
{
        struct driver d = { .ops = &ops };
        struct control c = { .driver = &d };

        *a = (struct attempt){ .c = &c, .res = res, .r = 1 };
        CHECK(loop_init(&a->e) == 0);
        CHECK(coro_start(attempt_main, a, CORO_STACK_DEFAULT, "attempt"));
        loop_run();
        loop_done();
        buf_clear(&words);
        return a->r;
}

static void test_broken_frames(void **state)
{
        static const char *const texts[] = { "", "{", "nonsense", "[]]", "{\"a\":1,\"a\":2}", "\xff\xfe" };
        static const unsigned char reserved[GUEST_HEADER_LEN] = { 0, 0, 1, 0, 2, 0, 0, 0 };
        struct attempt a;

        (void) state;
        assert_int_equal(attempt(&a, NULL), -ECONNRESET); /* not a word */
        assert_non_null(strstr(a.e.msg, "without a result"));
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                control_frame(texts[i]);
                assert_true(attempt(&a, NULL) < 0);
                assert_true(a.e.msg[0]);
        }
        frame(9, 0, 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        frame(GUEST_STDOUT, 0x80, 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        CHECK(buf_add(&words, reserved, sizeof reserved) == 0);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        frame(GUEST_CONTROL, 0, 0xffffffffu, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO); /* refused by its length, before memory is asked for */
        frame(GUEST_STDOUT, 0, GUEST_FRAME_MAX + 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        frame(GUEST_STDOUT, 0, 100, "cut", 3);
        assert_true(attempt(&a, NULL) < 0);
        frame(GUEST_CONTROL, 0, 100, "{\"done\":true}", 13); /* cut in the middle is no success */
        assert_int_equal(attempt(&a, NULL), -ECONNRESET);
        control_frame("{\"event\":\"started\"}");
        assert_int_equal(attempt(&a, NULL), -ECONNRESET);
}

static void test_errors_are_bounded_words(void **state)
{
        _cleanup_buf_ struct buf json = BUF_MAX(1 << 20);
        struct attempt a;

        (void) state;
        CHECK(buf_adds(&json, "{\"done\":true,\"code\":\"ENOSPC\",\"error\":\"") == 0);
        for (int i = 0; i < 100000; i++)
                CHECK(buf_adds(&json, "x") == 0);
        CHECK(buf_adds(&json, "\"}") == 0);
        control_frame(buf_cstr(&json));
        assert_int_equal(attempt(&a, NULL), -ENOSPC);
        assert_in_range(strlen(a.e.msg), 100, ERR_MSG_MAX);
        control_frame("{\"done\":true,\"code\":\"EVIL\",\"error\":\"no\"}");
        assert_int_equal(attempt(&a, NULL), -EIO);
        control_frame("{\"done\":true,\"code\":7,\"error\":{\"a\":1}}"); /* an error of the wrong type is none */
        assert_int_equal(attempt(&a, NULL), 0);
        control_frame("{\"done\":\"yes\"}");
        assert_int_equal(attempt(&a, NULL), -ECONNRESET);
}

static void test_impossible_counts(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir);
        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
        struct objects *objects = NULL;
        struct exec_result res;
        struct attempt a;

        assert_int_equal(objects_open(folder, s->db, &objects, NULL), 0);
        exec_result_init(&res, objects);
        frame(GUEST_STDOUT, 0, 3, "a\xff\n", 3);
        frame(GUEST_DATA, 0, 1, "?", 1); /* no business here */
        control_frame("{\"done\":true,\"exitCode\":\"0\",\"stdoutOmitted\":-5,\"stdoutOmittedAt\":-9,\"stderrOmitted\":"
                      "9223372036854775807,"
                      "\"stderrOmittedAt\":9223372036854775807}");
        assert_int_equal(attempt(&a, &res), 0);
        assert_int_equal(res.out.total, 3);
        assert_false(output_text(&res.out, OUTPUT_INLINE, &text));
        assert_true(utf8_valid(buf_str(&text)));
        buf_clear(&text);
        assert_true(output_text(&res.err, OUTPUT_INLINE, &text));
        assert_in_range(text.len, 1, 200);
        json_unref(a.answer);
        exec_result_done(&res);
        objects_free(objects);
}

/* Far more output than it was asked for: what is kept of it stays bounded. */
static void test_a_flood(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir), *megabyte = xcalloc(1, GUEST_FRAME_MAX);
        struct objects *objects = NULL;
        struct exec_result res;
        struct attempt a;

        assert_int_equal(objects_open(folder, s->db, &objects, NULL), 0);
        exec_result_init(&res, objects);
        memset(megabyte, 'y', GUEST_FRAME_MAX);
        for (int i = 0; i < 8; i++)
                frame(GUEST_STDERR, 0, GUEST_FRAME_MAX, megabyte, GUEST_FRAME_MAX);
        control_frame("{\"done\":true,\"exitCode\":0}");
        assert_int_equal(attempt(&a, &res), 0);
        assert_int_equal(res.err.total, 8u << 20);
        assert_in_range(res.err.head.cap, 1, OUTPUT_INLINE);
        json_unref(a.answer);
        exec_result_done(&res);
        objects_free(objects);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_broken_frames),
                cmocka_unit_test(test_errors_are_bounded_words),
                cmocka_unit_test_setup_teardown(test_impossible_counts, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_a_flood, scratch_setup, scratch_teardown),
        };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        buf_done(&words);
        return r;
}
