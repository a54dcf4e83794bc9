#include "sync/glob.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct one {
        const char *pattern, *path;
        bool is_dir, hit;
};

/* What git check-ignore says of the same pattern in a .gitignore at the top. */
static const struct one all[] = {
        { "*.o", "a.o", false, true },
        { "*.o", "src/deep/a.o", false, true },
        { "*.o", "a.oo", false, false },
        { "build", "build", true, true },
        { "build", "x/build/y", false, true },
        { "build", "builds", false, false },
        { "build/", "build", false, false },
        { "build/", "build", true, true },
        { "build/", "x/build/y", false, true },
        { "/build", "build/y", false, true },
        { "/build", "x/build", false, false },
        { "./build", "x/build", false, false },
        { "src/*.c", "src/a.c", false, true },
        { "src/*.c", "src/x/a.c", false, false },
        { "src/*.c", "y/src/a.c", false, false },
        { "src/**/a.c", "src/a.c", false, true },
        { "src/**/a.c", "src/x/y/a.c", false, true },
        { "**/a.c", "a.c", false, true },
        { "**/a.c", "x/a.c", false, true },
        { "src/**", "src", true, false },
        { "src/**", "src/x", false, true },
        { "a/**/b/**/c", "a/1/b/2/3/c", false, true },
        { "a/**/b/**/c", "a/1/c/2/3/b", false, false },
        { "?.c", "a.c", false, true },
        { "?.c", "ab.c", false, false },
        { "[a-c].x", "b.x", false, true },
        { "[!a-c].x", "b.x", false, false },
        { "[!a-c].x", "d.x", false, true },
        { "[]a].x", "].x", false, true },
        { "[a", "[a", false, true },
        { "\\*", "*", false, true },
        { "\\*", "x", false, false },
        { "\\!x", "!x", false, true },
        { "a**b", "axxb", false, true },
        { "foo bar", "x/foo bar", false, true },
        { "*", "any/thing", false, true },
        { "\xff*", "\xff\xfe", false, true },
};

static void table(void **state)
{
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
                struct globs g = { 0 };

                assert_int_equal(globs_add(&g, all[i].pattern, NULL), 0);
                if (globs_match(&g, str_of(all[i].path), all[i].is_dir) != all[i].hit)
                        fail_msg("%s against %s", all[i].pattern, all[i].path);
                globs_done(&g);
        }
}

static void refused(void **state)
{
        static char longer[GLOB_PATTERN_MAX + 2];
        struct globs g = { 0 };

        memset(longer, 'a', sizeof longer - 1);
        assert_int_equal(globs_add(&g, "", NULL), -EINVAL);
        assert_int_equal(globs_add(&g, "/", NULL), -EINVAL);
        assert_int_equal(globs_add(&g, "!a", NULL), -EINVAL);
        assert_int_equal(globs_add(&g, longer, NULL), -EINVAL);
        assert_false(globs_match(&g, STR("a"), false));
}

/* A pattern that makes backtracking matchers explode. */
static void no_explosion(void **state)
{
        struct globs g = { 0 };
        char name[256];
        int64_t begun = clock_ms();

        memset(name, 'a', sizeof name);
        assert_int_equal(globs_add(&g, "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", NULL), 0);
        assert_int_equal(globs_add(&g, "**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/b", NULL), 0);
        assert_false(globs_match(&g, str_n(name, sizeof name), false));
        for (size_t i = 1; i < sizeof name; i += 2)
                name[i] = '/';
        assert_false(globs_match(&g, str_n(name, sizeof name - 1), false));
        assert_true(clock_ms() - begun < 1000);
        globs_done(&g);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(table), cmocka_unit_test(refused),
                                            cmocka_unit_test(no_explosion) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
