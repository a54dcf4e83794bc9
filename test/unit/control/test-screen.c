/* A shot from a box whose daemon, or whose X server behind it, lies: an error within bounds, or a picture of what it
 * says. */
#include "liar.h"

#include "control/screen.h"

#include "base/mem.h"
#include "guest/guest.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void frame(enum guest_stream stream, const void *p, size_t n)
{
        liar_frame(stream, 0, (uint32_t) n, p, n);
}

struct attempt {
        struct control *c;
        struct shot shot;
        struct err e;
        int r;
};

static void coroutine_fn attempt_main(void *arg)
{
        struct attempt *a = arg;

        a->r = screen_shot(a->c, "box", &(struct rfb_region){ 0 }, PICTURE_ANY, &a->shot, &a->e);
        liar_reap();
        loop_stop();
}

static int attempt(struct attempt *a)
{
        struct driver d = { .ops = &liar_ops };
        struct control c = { .driver = &d };

        sem_init_n(&c.shots, 1);
        *a = (struct attempt){ .c = &c, .r = 1 };
        CHECK(loop_init(&a->e) == 0);
        CHECK(coro_start(attempt_main, a, CORO_STACK_DEFAULT, "attempt"));
        loop_run();
        loop_done();
        buf_clear(&liar_words);
        assert_int_equal(c.shots.free, 1); /* whatever happened, the next one may look */
        if (a->r < 0)
                assert_null(a->shot.image.bytes.p);
        return a->r;
}

#define HELLO                                        \
        "RFB 003.008\n\1\1\0\0\0\0"                  \
        "\0\2\0\2"                                   \
        "\40\30\0\1\0\377\0\377\0\377\20\10\0\0\0\0" \
        "\0\0\0\3box"
#define UPDATE "\0\0\0\1\0\0\0\0\0\2\0\2\0\0\0\0abc0abc0abc0abc0"

static void test_truth_in_small_pieces(void **state)
{
        static const char all[] = HELLO UPDATE;
        struct attempt a;

        (void) state;
        liar_control("{\"event\":\"connected\"}");
        for (size_t i = 0; i < sizeof all - 1; i++)
                frame(GUEST_DATA, all + i, 1);
        assert_int_equal(attempt(&a), 0);
        assert_int_equal(a.shot.screen[0], 2);
        assert_int_equal(a.shot.image.width, 2);
        assert_int_equal(a.shot.image.format, PICTURE_PNG);
        shot_done(&a.shot);
}

static void test_lies(void **state)
{
        struct attempt a;

        (void) state;
        assert_int_equal(attempt(&a), -ECONNRESET); /* not a word */
        liar_control("{\"event\":\"maybe\"}");
        assert_int_equal(attempt(&a), -EPROTO);
        liar_control("{\"done\":true}");
        assert_int_equal(attempt(&a), -EPROTO);
        liar_control("{\"done\":true,\"error\":\"no X server here\",\"code\":\"ENOENT\"}");
        assert_int_equal(attempt(&a), -ENOENT);
        assert_non_null(strstr(a.e.msg, "no X server here"));
        frame(GUEST_DATA, HELLO UPDATE, sizeof(HELLO UPDATE) - 1); /* before it is connected */
        assert_int_equal(attempt(&a), -EPROTO);
        liar_control("{\"event\":\"connected\"}");
        frame(GUEST_DATA, HELLO, sizeof(HELLO) - 1);
        frame(GUEST_STDOUT, UPDATE, sizeof(UPDATE) - 1); /* on another stream */
        assert_true(attempt(&a) < 0);
        liar_control("{\"event\":\"connected\"}");
        frame(GUEST_DATA, HELLO, sizeof(HELLO) - 1);
        liar_control("{\"done\":true}"); /* in the middle of it */
        assert_int_equal(attempt(&a), -ECONNRESET);
        liar_control("{\"event\":\"connected\"}");
        frame(GUEST_DATA, "HTTP/1.1 400 Bad Request\r\n", 26);
        assert_int_equal(attempt(&a), -EPROTO);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_truth_in_small_pieces),
                cmocka_unit_test(test_lies),
        };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        buf_done(&liar_words);
        return r;
}
