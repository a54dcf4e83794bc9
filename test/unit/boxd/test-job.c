#include "boxd/job.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static int parse(const char *text, struct exec_args *a, struct json **ret)
{
        struct err e = { 0 };

        assert_int_equal(json_parse(text, strlen(text), ret, NULL), 0);
        return exec_args_parse(*ret, a, &e);
}

static void arguments(void **state)
{
        static const struct {
                const char *text;
                int r;
        } table[] = {
                { "{}", -EINVAL },
                { "{\"id\":\"a\"}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"true\"}", 0 },
                { "{\"id\":\"\",\"cmd\":\"true\"}", -EINVAL },
                { "{\"id\":\"a/b\",\"cmd\":\"true\"}", -EINVAL },
                { "{\"id\":\"a b\",\"cmd\":\"true\"}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":3}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"a\\u0000b\"}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"env\":[]}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"env\":{\"\":\"x\"}}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"env\":{\"A=\":\"x\"}}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"env\":{\"A\":\"\\u0000\"}}", -EINVAL },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"env\":{\"A\":\"x\"},\"timeoutMs\":5}", 0 },
                { "{\"id\":\"a\",\"cmd\":\"x\",\"timeoutMs\":-5}", -EINVAL },
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
                _cleanup_json_ struct json *j = NULL;
                struct exec_args a;

                assert_int_equal(parse(table[i].text, &a, &j), table[i].r);
        }
}

static void status(int raw, unsigned flags, const char *want)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1024);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        job_status_fields(&w, raw, flags);
        jw_end_all(&w);
        assert_string_equal(buf_cstr(&b), want);
}

static void statuses(void **state)
{
        status(0, 0, "{\"exitCode\":0,\"timedOut\":false,\"oomKilled\":false,\"sigkill\":false}");
        status(127 << 8, 0, "{\"exitCode\":127,\"timedOut\":false,\"oomKilled\":false,\"sigkill\":false}");
        status(SIGKILL, JOB_TIMED_OUT,
               "{\"exitCode\":137,\"signal\":\"SIGKILL\",\"timedOut\":true,\"oomKilled\":false,\"sigkill\":false}");
        status(SIGSEGV | 0x80, JOB_SIGKILLED,
               "{\"exitCode\":139,\"signal\":\"SIGSEGV\",\"timedOut\":false,\"oomKilled\":false,\"sigkill\":true}");
}

static void signal_names(void **state)
{
        char name[16];

        assert_string_equal(signal_name(SIGTERM, name), "SIGTERM");
        assert_string_equal(signal_name(SIGRTMIN + 1, name), "SIGRTMIN+1");
        assert_string_equal(signal_name(33, name), "SIG33");
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(arguments), cmocka_unit_test(statuses),
                                            cmocka_unit_test(signal_names) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
