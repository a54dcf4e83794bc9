#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "http/url.h"

static void test_decode(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);

        assert_int_equal(url_decode(STR("a%2Fb+c%e4"), false, &b), 0);
        assert_string_equal(buf_cstr(&b), "a/b+c\xe4");
        buf_clear(&b);
        assert_int_equal(url_decode(STR("a+b%2B"), true, &b), 0);
        assert_string_equal(buf_cstr(&b), "a b+");
        static const char *const bad[] = { "%", "%4", "%4g", "%g4", "a%", "%00", "a%4", "%-1" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                buf_clear(&b);
                assert_int_equal(url_decode(str_of(bad[i]), false, &b), -EINVAL);
                assert_int_equal(b.len, 0);
        }
        assert_int_equal(url_decode(str_n("a\0", 2), false, &b), -EINVAL);
}

static void test_encode(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);

        assert_int_equal(url_encode(&b, STR("a-_.~ /%\xff")), 0);
        assert_string_equal(buf_cstr(&b), "a-_.~%20%2F%25%FF");
        b.max = b.len + 2;
        assert_int_equal(url_encode(&b, STR("x/")), -ENOBUFS);
        assert_string_equal(buf_cstr(&b), "a-_.~%20%2F%25%FF");
}

static void test_target(void **state)
{
        static const char *const bad[] = { "/..", "/a/../b", "/a/%2e%2e/b", "//a", "/a//b", "/a%2F/b",  "a",
                                           "",    "*",       "/%00",        "/%",  "/%2e.", "http://a/" };
        _cleanup_buf_ struct buf path = BUF_MAX(64);
        struct str query;

        assert_int_equal(url_split_target(STR("/a%20b/..c/d..?x=1?2"), &path, &query), 0);
        assert_string_equal(buf_cstr(&path), "/a b/..c/d..");
        assert_true(str_eq(query, STR("x=1?2")));
        buf_clear(&path);
        assert_int_equal(url_split_target(STR("/a/"), &path, &query), 0);
        assert_string_equal(buf_cstr(&path), "/a/");
        assert_int_equal(query.n, 0);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                buf_clear(&path);
                if (url_split_target(str_of(bad[i]), &path, &query) != -EINVAL)
                        fail_msg("%s was accepted", bad[i]);
                assert_int_equal(path.len, 0);
        }
}

static void test_query(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);

        assert_int_equal(url_query(STR("a=1&b%20c=x+y%26&d&e="), "b c", &b), 1);
        assert_string_equal(buf_cstr(&b), "x y&");
        buf_clear(&b);
        assert_int_equal(url_query(STR("a=1&d&e="), "d", &b), 1);
        assert_int_equal(url_query(STR("a=1&d&e="), "e", &b), 1);
        assert_int_equal(b.len, 0);
        assert_int_equal(url_query(STR("a=1&aa=2"), "aaa", &b), 0);
        assert_int_equal(url_query(STR(""), "a", &b), 0);
        assert_int_equal(url_query(STR("a=%"), "a", &b), -EINVAL);
        assert_int_equal(url_query(STR("%zz=1&a=2"), "a", &b), -EINVAL);
}

static void test_parse(void **state)
{
        static const char *const bad[] = { "",
                                           "ftp://a/",
                                           "http://",
                                           "http:///a",
                                           "http://u@a/",
                                           "http://a#b",
                                           "http://a/#b",
                                           "http://a:/",
                                           "http://a:0/",
                                           "http://a:65536",
                                           "http://a:x",
                                           "http://[::1",
                                           "http://[]/",
                                           "http://[::1]x/",
                                           "http://a b/",
                                           "http://a/ ",
                                           "http://a\n",
                                           "http://a/\xff",
                                           "//a",
                                           "http://a:+1/",
                                           "http://[g]/" };
        struct err e;
        struct url u;

        assert_int_equal(url_parse("http://localhost:8080/a?b", &u, &e), 0);
        assert_false(u.https);
        assert_string_equal(u.host, "localhost");
        assert_int_equal(u.port, 8080);
        assert_string_equal(u.path, "/a?b");
        assert_int_equal(url_parse("HTTPS://[::1]?q", &u, &e), 0);
        assert_true(u.https);
        assert_string_equal(u.host, "::1");
        assert_int_equal(u.port, 443);
        assert_string_equal(u.path, "/?q");
        assert_int_equal(url_parse("http://a", &u, NULL), 0);
        assert_string_equal(u.path, "/");
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (url_parse(bad[i], &u, &e) != -EINVAL)
                        fail_msg("%s was accepted", bad[i]);
        char *big = xcalloc(1, 4000);
        memset(big, 'a', 3999);
        memcpy(big, "http://a/", 9);
        assert_int_equal(url_parse(big, &u, &e), -EINVAL);
        memset(big, 'a', 3999);
        memcpy(big, "http://", 7);
        assert_int_equal(url_parse(big, &u, &e), -EINVAL);
        free(big);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_decode), cmocka_unit_test(test_encode), cmocka_unit_test(test_target),
                cmocka_unit_test(test_query),  cmocka_unit_test(test_parse),
        };

        return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
