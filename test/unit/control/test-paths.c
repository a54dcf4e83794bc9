#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/guest_client.h"

#include "base/mem.h"

#include <errno.h>

static void test_work_path(void **state)
{
        static const struct {
                const char *in, *out; /* out NULL: refused */
        } rows[] = {
                { "", "." },
                { ".", "." },
                { "./", "." },
                { "/work", "." },
                { "/work/", "." },
                { "repo", "repo" },
                { "repo/", "repo" },
                { "/work/repo/a", "repo/a" },
                { "./repo", "repo" },
                { "a b", "a b" },
                { "..", NULL },
                { "a/../b", NULL },
                { "a//b", NULL },
                { "a/./b", NULL },
                { "/etc", NULL },
                { "/workspace", NULL },
                { "~/x", NULL },
                { "~", NULL },
                { "/work/../etc", NULL },
                { "/work//x", NULL },
                { "...", "..." },
                { "a..b", "a..b" },
        };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *out = NULL;
                struct err e = { 0 };
                int r = work_path(rows[i].in, "dest", &out, &e);

                if (rows[i].out) {
                        assert_int_equal(r, 0);
                        assert_string_equal(out, rows[i].out);
                } else {
                        assert_int_equal(r, -EINVAL);
                        assert_null(out);
                        assert_non_null(strstr(e.msg, "`dest`"));   /* names the argument … */
                        assert_non_null(strstr(e.msg, rows[i].in)); /* … and the value seen */
                }
        }
}

static void test_agent_ids(void **state)
{
        (void) state;
        assert_true(agent_id_ok("aZ0_-"));
        assert_false(agent_id_ok(""));
        assert_false(agent_id_ok("a b"));
        assert_false(agent_id_ok("é"));
        assert_true(agent_id_ok("0123456789012345678901234567890123456789012345678901234567890123"));
        assert_false(agent_id_ok("01234567890123456789012345678901234567890123456789012345678901234"));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_work_path), cmocka_unit_test(test_agent_ids) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
