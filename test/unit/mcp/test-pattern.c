#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mcp/pattern.h"

#include "base/mem.h"

#include <stdlib.h>

static void test_match(void **state)
{
        static const struct {
                const char *pattern, *text;
                int want;
        } rows[] = {
                { "^abc$", "abc", 1 },
                { "^abc$", "ab", 0 },
                { "^abc$", "abcd", 0 },
                { "^[a-z]+$", "", 0 },
                { "^[a-z]+$", "q", 1 },
                { "^[a-z]*$", "", 1 },
                { "^[A-Za-z0-9_-]{1,4}$", "a_-9", 1 },
                { "^[A-Za-z0-9_-]{1,4}$", "a_-99", 0 },
                { "^[A-Za-z0-9_-]{1,4}$", "a b", 0 },
                { "^[a-z][a-z0-9-]*$", "web-1", 1 },
                { "^[a-z][a-z0-9-]*$", "1web", 0 },
                { "^[a-z]{2}$", "ab", 1 },
                { "^[a-z]{2}$", "abc", 0 },
                { "^[a-z]{2,}$", "abcdef", 1 },
                { "^a?b$", "b", 1 },
                { "^a?b$", "aab", 0 },
                { "^a*a*a*b$", "aaab", 1 },
                { "^a*a*a*b$", "aaaa", 0 },
                { "^[a-z]*[a-c]{2}[a-z]{0,3}$", "zzabz", 1 },
                { "^[a-z]*[a-c]{2}[a-z]{0,3}$", "zzabzzzz", 0 },
                { "^a\\.b$", "a.b", 1 },
                { "^a\\.b$", "axb", 0 },
                { "^[a-z]+$", "\xc3\xa9", 0 },
                { "^$", "", 1 },
                { "^$", "x", 0 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct pattern *p = NULL;
                struct err e = { 0 };
                int r = pattern_compile(rows[i].pattern, &p, &e);

                if (r < 0)
                        fail_msg("%s: %s", rows[i].pattern, e.msg);
                if (pattern_match(p, str_of(rows[i].text)) != rows[i].want)
                        fail_msg("%s against \"%s\": not %d", rows[i].pattern, rows[i].text, rows[i].want);
                pattern_free(p);
        }
}

static void test_refused(void **state)
{
        static const char *const bad[] = {
                "",       "abc",  "^abc",  "abc$",    "^a.c$",      "^(a)$",   "^a|b$",
                "^[^a]$", "^[]$", "^[a$",  "^[z-a]$", "^a{2,1}$",   "^a{}$",   "^a{1$",
                "^\\d$",  "^*$",  "^a**$", "^a$b$",   "^\xc3\xa9$", "^[\\w]$", "^a{999999999999}$",
        };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct pattern *p = NULL;
                struct err e = { 0 };

                if (pattern_compile(bad[i], &p, &e) == 0)
                        fail_msg("%s was accepted", bad[i]);
        }
}

/* What makes a backtracking matcher take for ever is read in linear time here. */
static void test_long(void **state)
{
        struct pattern *p = NULL;
        size_t n = 1 << 20;
        char *text = xmalloc(n);

        memset(text, 'a', n);
        assert_int_equal(pattern_compile("^a*a*a*a*a*a*a*a*b$", &p, NULL), 0);
        assert_int_equal(pattern_match(p, str_n(text, n)), 0);
        text[n - 1] = 'b';
        assert_int_equal(pattern_match(p, str_n(text, n)), 1);
        mem_fail_after(1);
        assert_true(pattern_match(p, str_n(text, n)) < 0);
        mem_fail_after(0);
        free(text);
        pattern_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_match),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_long),
        };

        return cmocka_run_group_tests_name("mcp-pattern", tests, NULL, NULL);
}
