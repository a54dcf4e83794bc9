#include "adapter/browser.h"
#include "adapter/callback.h"
#include "adapter/challenge.h"
#include "adapter/discover.h"
#include "adapter/fetch.h"
#include "adapter/oauth.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void challenges(void **state)
{
        static const struct {
                const char *text, *resource, *scope, *error;
                bool bearer;
        } rows[] = {
                { "Bearer resource_metadata=\"http://a/b\", scope=\"x y\"", "http://a/b", "x y", NULL, true },
                { "bearer error=insufficient_scope,scope=\"a\\\"b\"", NULL, "a\"b", "insufficient_scope", true },
                { "Basic realm=\"Bearer scope=x\", Bearer  error = \"invalid_token\"", NULL, NULL, "invalid_token",
                  true },
                { "Bearer error=\"e\", Digest scope=\"no\"", NULL, NULL, "e", true },
                { "Negotiate abc==, Bearer scope=\"s\"", NULL, "s", NULL, true },
                { "Bearer", NULL, NULL, NULL, true },
                { "Bearer scope=\"open", NULL, NULL, NULL, true },
                { "", NULL, NULL, NULL, false },
                { ",,, =", NULL, NULL, NULL, false },
                { "Basic scope=\"x\"", NULL, NULL, NULL, false },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct challenge c = { 0 };

                challenge_parse(&c, str_of(rows[i].text));
                assert_true(cstr_eq(c.resource_metadata, rows[i].resource));
                assert_true(cstr_eq(c.scope, rows[i].scope));
                assert_true(cstr_eq(c.error, rows[i].error));
                assert_int_equal(c.bearer, rows[i].bearer);
                challenge_done(&c);
        }
}

static void scopes(void **state)
{
        static const struct {
                const char *a, *b, *want;
        } rows[] = { { NULL, NULL, NULL },
                     { "", " ", NULL },
                     { "a b", "b c", "a b c" },
                     { NULL, "x x", "x" },
                     { "read", "readwrite", "read readwrite" } };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_free_ char *got = scope_union(rows[i].a, rows[i].b);

                assert_true(cstr_eq(got, rows[i].want));
        }
}

static void covers(void **state)
{
        static const struct {
                const char *resource, *endpoint;
                bool yes;
        } rows[] = {
                { "http://h:1/mcp", "http://h:1/mcp", true },   { "http://h:1", "http://h:1/mcp", true },
                { "http://h:1/", "http://h:1/mcp", true },      { "http://H:1/mcp/", "http://h:1/mcp", true },
                { "http://h:1/m", "http://h:1/mcp", false },    { "http://h:1/mcp/x", "http://h:1/mcp", false },
                { "https://h:1/mcp", "http://h:1/mcp", false }, { "http://h:2/mcp", "http://h:1/mcp", false },
                { "http://g:1/mcp", "http://h:1/mcp", false },  { "nonsense", "http://h:1/mcp", false },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct url u;

                assert_int_equal(url_parse(rows[i].endpoint, &u, NULL), 0);
                assert_int_equal(discover_covers(rows[i].resource, &u), rows[i].yes);
        }
}

static void addresses(void **state)
{
        static const struct {
                const char *issuer, *want[4];
        } rows[] = {
                { "http://h:1",
                  { "http://h:1/.well-known/oauth-authorization-server",
                    "http://h:1/.well-known/openid-configuration" } },
                { "https://h/t/",
                  { "https://h/.well-known/oauth-authorization-server/t",
                    "https://h/.well-known/openid-configuration/t", "https://h/t/.well-known/openid-configuration" } },
                { "file:///x", { NULL } },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(1024);
                unsigned n = 0;

                for (; discover_as_address(rows[i].issuer, n, &b); n++)
                        assert_string_equal(buf_cstr(&b), rows[i].want[n]);
                assert_null(rows[i].want[n]);
        }
}

static void safe_addresses(void **state)
{
        struct url plain, secure;

        assert_int_equal(url_parse("http://lan.example:7420/mcp", &plain, NULL), 0);
        assert_int_equal(url_parse("https://lan.example/mcp", &secure, NULL), 0);
        assert_true(fetch_is_safe("https://as.example/token", &secure));
        assert_true(fetch_is_safe("http://127.0.0.1:1/token", &secure));
        assert_true(fetch_is_safe("http://[::1]:1/token", &secure));
        assert_true(fetch_is_safe("http://lan.example:9/token", &plain));
        assert_false(fetch_is_safe("http://lan.example/token", &secure));
        assert_false(fetch_is_safe("http://other.example/token", &plain));
        assert_false(fetch_is_safe("javascript:x", &plain));
}

static void languages(void **state)
{
        static const struct {
                const char *accept;
                unsigned want;
        } rows[] = { { NULL, 0 },     { "", 0 },
                     { "ja", 1 },     { "ja-JP,en;q=0.9", 1 },
                     { "zh-TW", 2 },  { "zh-Hant-HK", 2 },
                     { "en,ja", 0 },  { "fr, ja;q=0.1", 1 },
                     { "jav", 0 },    { "en;q=0.5, zh;q=0.51", 2 },
                     { "ja;q=0", 0 }, { "*", 0 },
                     { ";;,,q=", 0 } };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
                assert_int_equal(callback_language(rows[i].accept), rows[i].want);
}

static void browser_commands(void **state)
{
        static const struct {
                const char *command, *want[5];
        } rows[] = { { "firefox", { "firefox", "L" } },
                     { "  open  -a Safari ", { "open", "-a", "Safari", "L" } },
                     { "x --url=%s;y -n", { "x", "--url=L;y", "-n" } },
                     { "", { NULL } } };
        char *argv[8];

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                bool ok = browser_words(rows[i].command, strlen(rows[i].command), "L", argv, ARRAY_LEN(argv));
                size_t n = 0;

                assert_int_equal(ok, rows[i].want[0] != NULL);
                for (; ok && argv[n]; n++)
                        assert_string_equal(argv[n], rows[i].want[n]);
                assert_null(rows[i].want[n]);
                if (ok)
                        browser_free_words(argv);
        }
        assert_false(browser_words("a b c d e f g h", 15, "L", argv, ARRAY_LEN(argv)));
}

/* RFC 7636 appendix B. */
static void links(void **state)
{
        struct as_meta m = { .authorize = (char *) (uintptr_t) "http://h/a?x=1",
                             .resource = (char *) (uintptr_t) "http://h/mcp" };
        _cleanup_free_ char *link = oauth_link(&m, "c&d", "http://127.0.0.1:1/callback", NULL, "st",
                                               "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");

        assert_non_null(strstr(link, "http://h/a?x=1&response_type=code&client_id=c%26d&"));
        assert_non_null(strstr(link, "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&"));
        assert_null(strstr(link, "scope="));
        assert_null(strstr(link, "dBjft"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(challenges),       cmocka_unit_test(scopes),    cmocka_unit_test(covers),
                cmocka_unit_test(addresses),        cmocka_unit_test(languages), cmocka_unit_test(safe_addresses),
                cmocka_unit_test(browser_commands), cmocka_unit_test(links),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
