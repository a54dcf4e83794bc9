/* A box's daemon that lies: whatever it sends, the call ends with an answer or an error, and nothing else is touched.
 */
#include "liar.h"
#include "scratch.h"
#include "control/exec.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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
        liar_reap();
        loop_stop();
}

static int attempt(struct attempt *a, struct exec_result *res)
{
        struct driver d = { .ops = &liar_ops };
        struct control c = { .driver = &d };

        *a = (struct attempt){ .c = &c, .res = res, .r = 1 };
        CHECK(loop_init(&a->e) == 0);
        CHECK(coro_start(attempt_main, a, CORO_STACK_DEFAULT, "attempt"));
        loop_run();
        loop_done();
        buf_clear(&liar_words);
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
                liar_control(texts[i]);
                assert_true(attempt(&a, NULL) < 0);
                assert_true(a.e.msg[0]);
        }
        liar_frame(9, 0, 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        liar_frame(GUEST_STDOUT, 0x80, 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        CHECK(buf_add(&liar_words, reserved, sizeof reserved) == 0);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        liar_frame(GUEST_CONTROL, 0, 0xffffffffu, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO); /* refused by its length, before memory is asked for */
        liar_frame(GUEST_STDOUT, 0, GUEST_FRAME_MAX + 1, "x", 1);
        assert_int_equal(attempt(&a, NULL), -EPROTO);
        liar_frame(GUEST_STDOUT, 0, 100, "cut", 3);
        assert_true(attempt(&a, NULL) < 0);
        liar_frame(GUEST_CONTROL, 0, 100, "{\"done\":true}", 13); /* cut in the middle is no success */
        assert_int_equal(attempt(&a, NULL), -ECONNRESET);
        liar_control("{\"event\":\"started\"}");
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
        liar_control(buf_cstr(&json));
        assert_int_equal(attempt(&a, NULL), -ENOSPC);
        assert_in_range(strlen(a.e.msg), 100, ERR_MSG_MAX);
        liar_control("{\"done\":true,\"code\":\"EVIL\",\"error\":\"no\"}");
        assert_int_equal(attempt(&a, NULL), -EIO);
        liar_control("{\"done\":true,\"code\":7,\"error\":{\"a\":1}}"); /* an error of the wrong type is none */
        assert_int_equal(attempt(&a, NULL), 0);
        liar_control("{\"done\":\"yes\"}");
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
        liar_frame(GUEST_STDOUT, 0, 3, "a\xff\n", 3);
        liar_frame(GUEST_DATA, 0, 1, "?", 1); /* no business here */
        liar_control("{\"done\":true,\"exitCode\":\"0\",\"stdoutOmitted\":-5,\"stdoutOmittedAt\":-9,\"stderrOmitted\":"
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
                liar_frame(GUEST_STDERR, 0, GUEST_FRAME_MAX, megabyte, GUEST_FRAME_MAX);
        liar_control("{\"done\":true,\"exitCode\":0}");
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

        buf_done(&liar_words);
        return r;
}
