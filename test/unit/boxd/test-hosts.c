#include "boxd/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define BEGIN "# boxd: begin (rewritten by the control server; edit outside of this part)\n"
#define END "# boxd: end\n"

static void merged(const char *old, const char *part, const char *want)
{
        _cleanup_buf_ struct buf out = BUF_MAX(4096);

        assert_int_equal(hosts_merge(&out, str_of(old), str_of(part)), 0);
        assert_string_equal(buf_cstr(&out), want);
}

static void merging(void **state)
{
        merged("", "", "");
        merged("a\n", "", "a\n");
        merged("a", "x\n", "a\n" BEGIN "x\n" END);
        merged("a\n" BEGIN "x\n" END "b\n", "y\n", "a\nb\n" BEGIN "y\n" END);
        merged("a\n" BEGIN "x\n" END "b\n", "", "a\nb\n");
        merged("a\n" BEGIN "x\n", "y\n",
               "a\nx\n" BEGIN "y\n" END); /* the end was cut off: nothing of the user's is lost */
        merged(END "a\n", "", "a\n");
}

static void names(void **state)
{
        char longest[255];

        assert_true(hosts_name_ok("api"));
        assert_true(hosts_name_ok("a-b.c_d.9"));
        assert_false(hosts_name_ok(""));
        assert_false(hosts_name_ok("a b"));
        assert_false(hosts_name_ok("a\nb"));
        assert_false(hosts_name_ok("#"));
        for (size_t i = 0; i < sizeof(longest); i++)
                longest[i] = 'a';
        longest[254] = '\0';
        assert_false(hosts_name_ok(longest));
        longest[253] = '\0';
        assert_true(hosts_name_ok(longest));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(merging), cmocka_unit_test(names) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
