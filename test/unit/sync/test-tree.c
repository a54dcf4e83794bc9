#include "sync/git.h"
#include "sync/tree.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void add(struct tree *t, const char *path, enum entry_state state, enum guest_kind kind)
{
        struct entry *e = tree_add(t, path, strlen(path));

        e->state = (uint8_t) state;
        e->kind = (uint8_t) kind;
}

static void parses_what_git_prints(void **state)
{
        static const char text[] =
                "? new file\0? nested/\0H 100644 aaaa 0\ta\0S 100755 bbbb 0\tsparse\0h 100644 cc 0\tassumed\0"
                "M 100644 dd 1\tconflict\0M 100644 ee 2\tconflict\0H 160000 ff 0\tvendor/mod\0? \xff\tx\0";
        struct buf b = BUF_MAX(4096);
        struct tree t;

        tree_init(&t);
        assert_int_equal(buf_add(&b, text, sizeof text - 1), 0);
        assert_int_equal(git_parse_list(&t, &b, NULL), 0);
        tree_sort(&t);
        assert_int_equal(t.n, 8);
        assert_int_equal(tree_find(&t, "nested", 6)->state, ENTRY_DIR);
        assert_true(tree_find(&t, "nested", 6)->nested);
        assert_true(tree_find(&t, "sparse", 6)->protected);
        assert_true(tree_find(&t, "assumed", 7)->protected);
        assert_false(tree_find(&t, "a", 1)->protected);
        assert_true(tree_find(&t, "vendor/mod", 10)->gitlink);
        assert_non_null(tree_find(&t, "conflict", 8));
        assert_non_null(tree_find(&t, "\xff\tx", 3));
        assert_non_null(tree_find(&t, "new file", 8));
        assert_null(tree_find(&t, "new", 3));
        tree_done(&t);
}

static void refuses_what_git_does_not_print(void **state)
{
        static const char *const bad[] = { "x", "H 1", "H 100644 a 0 path", "H 100644 a 0\t", "??" };

        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                struct buf b = BUF_MAX(4096);
                struct tree t;

                tree_init(&t);
                assert_int_equal(buf_add(&b, bad[i], strlen(bad[i]) + 1), 0);
                assert_int_equal(git_parse_list(&t, &b, NULL), -EPROTO);
                tree_done(&t);
        }
}

static void sorts_by_bytes_without_doubles(void **state)
{
        static const char *const names[] = { "b", "a/x", "a-b", "a", "\xff", "a", "B", "a.txt", "ab", "b" };
        static const char *const sorted[] = { "B", "a", "a-b", "a.txt", "a/x", "ab", "b", "\xff" };
        struct tree t;

        tree_init(&t);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                add(&t, names[i], ENTRY_NEW, GUEST_KIND_FILE);
        tree_sort(&t);
        assert_int_equal(t.n, sizeof sorted / sizeof sorted[0]);
        for (size_t i = 0; i < t.n; i++)
                assert_string_equal(t.v[i].path, sorted[i]);
        tree_done(&t);
        tree_init(&t); /* two sorted runs, as git lists them */
        add(&t, "m", ENTRY_NEW, GUEST_KIND_FILE);
        add(&t, "z", ENTRY_NEW, GUEST_KIND_FILE);
        add(&t, "a", ENTRY_NEW, GUEST_KIND_FILE);
        add(&t, "n", ENTRY_NEW, GUEST_KIND_FILE);
        add(&t, "zz", ENTRY_NEW, GUEST_KIND_FILE);
        tree_sort(&t);
        assert_string_equal(t.v[0].path, "a");
        assert_string_equal(t.v[1].path, "m");
        assert_string_equal(t.v[3].path, "z");
        assert_string_equal(t.v[4].path, "zz");
        tree_done(&t);
}

static void nothing_behind_a_link(void **state)
{
        struct tree t;

        tree_init(&t);
        add(&t, "src", ENTRY_OK, GUEST_KIND_LINK);
        add(&t, "src-other/x", ENTRY_OK, GUEST_KIND_FILE);
        add(&t, "src/a", ENTRY_OK, GUEST_KIND_FILE);
        add(&t, "src/d/b", ENTRY_OK, GUEST_KIND_FILE);
        add(&t, "z", ENTRY_OK, GUEST_KIND_FILE);
        tree_drop_behind_links(&t);
        assert_int_equal(tree_find(&t, "src", 3)->state, ENTRY_OK);
        assert_int_equal(tree_find(&t, "src-other/x", 11)->state, ENTRY_OK);
        assert_int_equal(tree_find(&t, "src/a", 5)->state, ENTRY_GONE);
        assert_int_equal(tree_find(&t, "src/d/b", 7)->state, ENTRY_GONE);
        assert_int_equal(tree_find(&t, "z", 1)->state, ENTRY_OK);
        assert_true(tree_blocked(&t, "src/new", 7));
        assert_false(tree_blocked(&t, "src", 3));
        tree_done(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(parses_what_git_prints),
                                            cmocka_unit_test(refuses_what_git_does_not_print),
                                            cmocka_unit_test(sorts_by_bytes_without_doubles),
                                            cmocka_unit_test(nothing_behind_a_link) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
