/* What a proxied head becomes where the service lies below a path, and is told nothing of who asks. */
#include "http/proxy_head.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static int outward(void *arg, struct str origin, struct buf *out)
{
        (void) arg;
        if (!str_eq(origin, STR("https://out.example")))
                return 0;
        return buf_adds(out, "http://api") < 0 ? -1 : 1;
}

static const struct proxy_policy below = { .host = "out.example", .base = "/v1", .outward = outward };

static const char *request(const char *target, const struct proxy_policy *p)
{
        static char text[2000];
        _cleanup_buf_ struct buf b = BUF_MAX(4000);
        static const char head[] = "GET / HTTP/1.1\r\nHost: api\r\nX-Forwarded-For: 1.2.3.4\r\nX-Own: a\r\n\r\n";
        static struct h1_head h;
        struct h1_error why;
        size_t scanned = 0;

        assert_true(h1_request_parse(head, sizeof head - 1, &scanned, &h, &why) > 0);
        assert_int_equal(proxy_request_head(&b, &h, str_of(target), "9.9.9.9", p, false, false), 0);
        (void) snprintf(text, sizeof text, "%s", buf_cstr(&b));
        return text;
}

static const char *location(const char *value, const struct proxy_policy *p)
{
        static char text[2000];
        _cleanup_buf_ struct buf b = BUF_MAX(4000);
        static struct h1_head h;
        struct h1_error why;
        char head[500];
        size_t scanned = 0;

        (void) snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n", value);
        assert_true(h1_response_parse(head, strlen(head), &scanned, STR("GET"), &h, &why) > 0);
        assert_int_equal(proxy_response_headers(&b, &h, p), 0);
        (void) snprintf(text, sizeof text, "%s", buf_cstr(&b));
        return text;
}

static void test_requests(void **state)
{
        static const struct proxy_policy plain = { .host = "out.example" },
                                         told = { .host = "h", .forwarded_host = "f", .forwarded_proto = "http" };

        (void) state;
        assert_string_equal(request("/a?b=c", &below),
                            "GET /v1/a?b=c HTTP/1.1\r\nHost: out.example\r\nX-Own: a\r\n\r\n");
        assert_string_equal(request("/", &below), "GET /v1/ HTTP/1.1\r\nHost: out.example\r\nX-Own: a\r\n\r\n");
        assert_non_null(strstr(request("*", &below), "GET * HTTP/1.1\r\n"));
        assert_non_null(strstr(request("/a", &plain), "GET /a HTTP/1.1\r\n"));
        assert_non_null(strstr(request("/a", &told), "X-Forwarded-For: 1.2.3.4, 9.9.9.9\r\nX-Forwarded-Host: f\r\n"));
}

static void test_locations(void **state)
{
        static const struct {
                const char *from, *to;
        } cases[] = {
                { "https://out.example/v1/x?y#z", "http://api/x?y#z" },
                { "https://out.example/v1", "http://api/" },
                { "https://out.example/v1?q", "http://api/?q" },
                { "https://out.example/v10/x", "http://api/v10/x" },
                { "https://out.example/", "http://api/" },
                { "https://elsewhere.example/v1/x", "https://elsewhere.example/v1/x" },
                { "/v1/x", "/x" },
                { "/v1", "/" },
                { "/v1?q", "/?q" },
                { "/other", "/other" },
                { "x", "x" },
        };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                char line[200];

                (void) snprintf(line, sizeof line, "Location: %s\r\n", cases[i].to);
                assert_string_equal(location(cases[i].from, &below), line);
        }
        static const struct proxy_policy plain = { .host = "h", .outward = outward };
        assert_string_equal(location("https://out.example/v1/x", &plain), "Location: http://api/v1/x\r\n");
        assert_string_equal(location("/v1/x", &plain), "Location: /v1/x\r\n");
}

/* Where one host has several services: each has its cookies under a name of its own. */
static void test_cookies_with_a_prefix(void **state)
{
        static const char *const private_cookies[] = { "psbx_", NULL };
        static const struct proxy_policy p = { .host = "h",
                                               .cookie_prefix = "s1-x-",
                                               .private_cookies = private_cookies };
        static const struct {
                const char *from, *to;
        } cases[] = {
                { "a=1; Path=/; Domain=x.example", "Set-Cookie: s1-x-a=1; Path=/; HttpOnly\r\n" },
                { "a=1; httponly; SameSite=Lax", "Set-Cookie: s1-x-a=1; SameSite=Lax; HttpOnly\r\n" },
                { "a=1", "Set-Cookie: s1-x-a=1; HttpOnly\r\n" },
                { "=psbx_1=x", "Set-Cookie: s1-x-=psbx_1=x; HttpOnly\r\n" },
                { "psbx_1_session=x; Path=/", "" },
        };
        static const char request_head[] = "GET / HTTP/1.1\r\nHost: a\r\nCookie: psbx_1=s; s1-x-a=1; b=2; s1-y-c=3;; "
                                           "s1-x-d=4\r\n\r\n";
        static struct h1_head h;
        struct h1_error why;
        size_t scanned = 0;
        char head[500];

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(4000);

                scanned = 0;
                (void) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nSet-Cookie: %s\r\n\r\n", cases[i].from);
                assert_true(h1_response_parse(head, strlen(head), &scanned, STR("GET"), &h, &why) > 0);
                assert_int_equal(proxy_response_headers(&b, &h, &p), 0);
                (void) snprintf(head, sizeof head, "%sVary: Cookie\r\n", cases[i].to);
                assert_string_equal(buf_cstr(&b), head);
        }
        _cleanup_buf_ struct buf b = BUF_MAX(4000);
        scanned = 0;
        assert_true(h1_request_parse(request_head, sizeof request_head - 1, &scanned, &h, &why) > 0);
        assert_int_equal(proxy_request_head(&b, &h, STR("/"), "9.9.9.9", &p, false, false), 0);
        assert_non_null(strstr(buf_cstr(&b), "\r\nCookie: a=1; d=4\r\n"));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_requests), cmocka_unit_test(test_locations),
                                            cmocka_unit_test(test_cookies_with_a_prefix) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
