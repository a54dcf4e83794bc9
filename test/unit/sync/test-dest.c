#include "sync/dest.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct good {
        const char *in, *path;
        bool folder;
};

static void accepted(void **state)
{
        static const struct good all[] = {
                { "repo", "repo", false },
                { "/work/repo", "repo", false },
                { "/work", "", true },
                { "/work/", "", true },
                { ".", "", true },
                { "./a//b/./c/", "a/b/c", true },
                { "a~b", "a~b", false },
                { "..a/b..", "..a/b..", false },
                { "caf\xc3\xa9", "caf\xc3\xa9", false },
                { "/work/work", "work", false },
        };

        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
                struct dest d;
                struct err e = { 0 };

                assert_int_equal(dest_parse(all[i].in, &d, &e), 0);
                assert_string_equal(d.path, all[i].path);
                assert_int_equal(d.folder, all[i].folder);
        }
}

static void refused(void **state)
{
        static const char *const all[] = { "",     "/",      "/etc", "/workx", "/work/..", "..",
                                           "a/..", "a/../b", "~",    "~/x",    "~root",    "//work/a" };

        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
                struct dest d;
                struct err e = { 0 };

                assert_int_equal(dest_parse(all[i], &d, &e), -EINVAL);
                assert_non_null(strstr(e.msg, "`dest`"));
        }
}

static void too_long(void **state)
{
        static char text[GUEST_PATH_MAX * 2];
        struct dest d;
        struct err e = { 0 };

        memset(text, 'a', 256);
        assert_int_equal(dest_parse(text, &d, &e), -EINVAL);
        for (size_t i = 0; i < sizeof text - 1; i++)
                text[i] = i % 2 ? '/' : 'a';
        assert_int_equal(dest_parse(text, &d, &e), -EINVAL);
}

static void parts(void **state)
{
        struct dest d;

        assert_int_equal(dest_parse("a/b/c", &d, NULL), 0);
        assert_string_equal(dest_base(&d), "c");
        assert_int_equal(dest_parent_len(&d), 3);
        assert_int_equal(dest_parse("c", &d, NULL), 0);
        assert_string_equal(dest_base(&d), "c");
        assert_int_equal(dest_parent_len(&d), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(accepted), cmocka_unit_test(refused),
                                            cmocka_unit_test(too_long), cmocka_unit_test(parts) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
