#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/control.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

static struct control control_with_key(unsigned char k)
{
        struct control c = { .origin = (char *) "http://h:1" };

        c.cfg.link_key[0] = k;
        return c;
}

static void parts(const char *url, struct str *object, struct str *expires, struct str *signature)
{
        struct str s = str_of(url);

        s = str_n(s.p + strlen("http://h:1/v1/blobs/"), s.n - strlen("http://h:1/v1/blobs/"));
        *object = str_cut(&s, '/');
        (void) str_cut(&s, '=');
        *expires = str_cut(&s, '&');
        (void) str_cut(&s, '=');
        *signature = s;
}

static void test_round_trip_and_tampering(void **state)
{
        struct control c = control_with_key(1), other = control_with_key(2);
        _cleanup_free_ char *url = link_make(&c, "abc", "a b.txt", wall_ms() + 60000);
        struct str object, expires, signature;

        (void) state;
        assert_non_null(strstr(url, "/v1/blobs/abc/a%20b.txt?exp="));
        parts(url, &object, &expires, &signature);
        assert_int_equal(link_check(&c, object, expires, signature), 0);
        assert_int_equal(link_check(&other, object, expires, signature), -EACCES);
        assert_int_equal(link_check(&c, STR("abd"), expires, signature), -EACCES);
        assert_int_equal(link_check(&c, object, STR("99999999999"), signature), -EACCES);
        assert_int_equal(link_check(&c, object, expires, str_n(signature.p, signature.n - 1)), -EACCES);
        assert_int_equal(link_check(&c, object, expires, STR("")), -EACCES);
        assert_int_equal(link_check(&c, object, STR("-1"), signature), -EACCES);
        /* A longer time cannot be glued to a name that ends in digits. */
        assert_int_equal(link_check(&c, STR("abc\n1"), expires, signature), -EACCES);
}

static void test_expiry(void **state)
{
        struct control c = control_with_key(1);
        _cleanup_free_ char *url = link_make(&c, "abc", "n", wall_ms() - 5000);
        struct str object, expires, signature;

        (void) state;
        parts(url, &object, &expires, &signature);
        assert_int_equal(link_check(&c, object, expires, signature), -ETIME);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip_and_tampering),
                                            cmocka_unit_test(test_expiry) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
