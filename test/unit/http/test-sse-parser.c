#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "http/client.h"

static int write_down(const char *event, const char *id, struct str data, void *arg)
{
        struct buf *out = arg;

        (void) buf_addf(out, "%s/%s/", event, id);
        (void) buf_addstr(out, data);
        (void) buf_adds(out, ";");
        return 0;
}

static void check(const char *in, const char *expect)
{
        size_t n = strlen(in);

        for (size_t cut = 0; cut <= n; cut++) {
                _cleanup_buf_ struct buf out = BUF_MAX(1000);
                struct sse_parser p;

                sse_parser_init(&p, 100);
                assert_int_equal(sse_parser_feed(&p, in, cut, write_down, &out), 0);
                assert_int_equal(sse_parser_feed(&p, in + cut, n - cut, write_down, &out), 0);
                assert_string_equal(buf_cstr(&out), expect);
                sse_parser_done(&p);
        }
}

static void test_events(void **state)
{
        check("data: a\n\n", "message//a;");
        check("data:a\ndata:  b\n\n", "message//a\n b;");
        check("data: a\r\ndata: b\r\n\r\n", "message//a\nb;");
        check("data: a\rdata: b\r\r", "message//a\nb;");
        check("\xef\xbb\xbf"
              "data: a\n\n",
              "message//a;");
        check("event: x\nid: 7\ndata: a\n\ndata: b\n\n", "x/7/a;message/7/b;");
        check("event: x\n\ndata: b\n\n", "message//b;");
        check(": comment\n\n:\ndata\n\n", "message//;");
        check("data: unfinished\n", "");
        check("nonsense: a\nDATA: b\n\n", "");
        check("id: 1\nid\ndata: a\n\n", "message//a;");
}

static int stop(const char *event, const char *id, struct str data, void *arg)
{
        return -ECANCELED;
}

static void test_limits(void **state)
{
        static const char x[] = "data: 0123456789\n";
        struct sse_parser p;
        int r = 0;

        sse_parser_init(&p, 100);
        for (int i = 0; r == 0 && i < 20; i++)
                r = sse_parser_feed(&p, x, sizeof x - 1, write_down, NULL);
        assert_int_equal(r, -EMSGSIZE);
        sse_parser_done(&p);

        sse_parser_init(&p, 100);
        for (int i = 0, k = 0; i < 200 && k == 0; i++)
                r = k = sse_parser_feed(&p, "d", 1, write_down, NULL);
        assert_int_equal(r, -EMSGSIZE);
        sse_parser_done(&p);

        sse_parser_init(&p, 1000);
        char *big = xcalloc(1, 400);
        memset(big, 'i', 300);
        memcpy(big, "id:", 3);
        big[299] = '\n';
        assert_int_equal(sse_parser_feed(&p, big, 300, write_down, NULL), -EMSGSIZE);
        free(big);
        sse_parser_done(&p);

        sse_parser_init(&p, 100);
        assert_int_equal(sse_parser_feed(&p, "retry: 250\nretry: x\ndata: a\n\n", 29, stop, NULL), -ECANCELED);
        assert_int_equal(p.retry, 250);
        sse_parser_done(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_events), cmocka_unit_test(test_limits) };

        return cmocka_run_group_tests_name("sse-parser", tests, NULL, NULL);
}
