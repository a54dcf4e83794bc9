#include "test.h"

#include "auth/redirect.h"

static void test_kinds(void **state)
{
        static const struct {
                const char *uri;
                enum redirect_kind kind;
                const char *host;
        } rows[] = {
                /* what clients register (VS Code, Claude Code, Codex, Gemini, Cursor) */
                { "https://vscode.dev/redirect", REDIRECT_HTTPS, "vscode.dev" },
                { "http://127.0.0.1/", REDIRECT_LOOPBACK, "127.0.0.1" },
                { "http://127.0.0.1:33418/", REDIRECT_LOOPBACK, "127.0.0.1:33418" },
                { "http://localhost/callback", REDIRECT_LOOPBACK, "localhost" },
                { "http://127.0.0.1:43211/callback/AbCdEf012345", REDIRECT_LOOPBACK, "127.0.0.1:43211" },
                { "http://localhost:7777/oauth/callback", REDIRECT_LOOPBACK, "localhost:7777" },
                { "cursor://anysphere.cursor-mcp/oauth/callback", REDIRECT_APP, "cursor:" },
                { "com.example.app:/callback", REDIRECT_APP, "com.example.app:" },
                { "http://[::1]:5000/cb", REDIRECT_LOOPBACK, "[::1]:5000" },
                { "https://localhost/cb", REDIRECT_LOOPBACK, "localhost" },
                { "https://a.example:8443/cb?x=1&y=%20", REDIRECT_HTTPS, "a.example:8443" },
                { "HTTPS://A.example/", REDIRECT_HTTPS, "A.example" },
                /* what nobody may */
                { "http://example.com/cb", REDIRECT_BAD, NULL },
                { "javascript:alert(1)", REDIRECT_BAD, NULL },
                { "JavaScript://a.example/%0aalert(1)", REDIRECT_BAD, NULL },
                { "data:text/html,x", REDIRECT_BAD, NULL },
                { "vbscript:x", REDIRECT_BAD, NULL },
                { "file:///etc/passwd", REDIRECT_BAD, NULL },
                { "about:blank", REDIRECT_BAD, NULL },
                { "http://127.0.0.1/cb#f", REDIRECT_BAD, NULL },
                { "https://a.example/#", REDIRECT_BAD, NULL },
                { "http://127.0.0.1@evil.example/cb", REDIRECT_BAD, NULL },
                { "https://user:pw@a.example/", REDIRECT_BAD, NULL },
                { "https://a.example@b.example/", REDIRECT_BAD, NULL },
                { "http://127.0.0.1.evil.example/cb", REDIRECT_BAD, NULL },
                { "http://localhost.evil.example/cb", REDIRECT_BAD, NULL },
                { "http://127.0.0.1:1111@evil.example/callback", REDIRECT_BAD, NULL },
                { "http://127.1/", REDIRECT_BAD, NULL },
                { "http://2130706433/", REDIRECT_BAD, NULL },
                { "http://0x7f.0.0.1/", REDIRECT_BAD, NULL },
                { "http://[::ffff:127.0.0.1]/", REDIRECT_BAD, NULL },
                { "http://[::1/", REDIRECT_BAD, NULL },
                { "http://[::1]x/", REDIRECT_BAD, NULL },
                { "http://localhost:0/", REDIRECT_BAD, NULL },
                { "http://localhost:65536/", REDIRECT_BAD, NULL },
                { "http://localhost:/", REDIRECT_BAD, NULL },
                { "http://localhost:+1/", REDIRECT_BAD, NULL },
                { "http://loc%61lhost/", REDIRECT_BAD, NULL },
                { "https://a.example\\@b.example/", REDIRECT_BAD, NULL },
                { "https://a.example/\n", REDIRECT_BAD, NULL },
                { "https://a.example/ x", REDIRECT_BAD, NULL },
                { "https://*.example/", REDIRECT_BAD, NULL },
                { "https:///x", REDIRECT_BAD, NULL },
                { "https:a.example", REDIRECT_BAD, NULL },
                { "//a.example/", REDIRECT_BAD, NULL },
                { "xyz", REDIRECT_BAD, NULL },
                { "xyz:/cb", REDIRECT_BAD, NULL },
                { "x://y/cb", REDIRECT_BAD, NULL },
                { "app:///cb", REDIRECT_BAD, NULL },
                { "app://u@h/cb", REDIRECT_BAD, NULL },
                { "1a://h/cb", REDIRECT_BAD, NULL },
                { ":", REDIRECT_BAD, NULL },
                { "", REDIRECT_BAD, NULL },
                { "https://é.example/", REDIRECT_BAD, NULL },
        };

        (void) state;
        for (size_t i = 0; i < COUNT(rows); i++) {
                struct str host = { 0 };

                if (redirect_check(str_of(rows[i].uri), &host) != rows[i].kind)
                        fail_msg("%s", rows[i].uri);
                if (rows[i].host && !str_eq(host, str_of(rows[i].host)))
                        fail_msg("%s: %.*s", rows[i].uri, (int) host.n, host.p);
        }
}

static void test_matches(void **state)
{
        static const struct {
                const char *registered, *asked;
                bool ok;
        } rows[] = {
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:1111/cb", true },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:2222/cb", true },
                { "http://127.0.0.1/cb", "http://127.0.0.1:2222/cb", true },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1/cb", true },
                { "http://localhost/cb", "http://localhost:3333/cb", true },
                { "http://localhost/cb", "http://127.0.0.1:3333/cb", true },
                { "http://127.0.0.1:1/cb", "http://localhost:2/cb", true },
                { "http://[::1]/cb", "http://[::1]:9/cb", true },
                { "http://127.0.0.1:1111/cb", "https://127.0.0.1:1111/cb", false },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:1111/cb/", false },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:1111/cb?x=1", false },
                { "http://127.0.0.1:1111/cb?x=1", "http://127.0.0.1:2/cb?x=1", true },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:1111/CB", false },
                { "http://127.0.0.1:1111/callback", "http://127.0.0.1:1111/callback/../x", false },
                { "http://127.0.0.1:1111/cb", "http://127.0.0.1:1111@evil.example/cb", false },
                { "http://127.0.0.1:1111/cb", "http://evil.example/cb", false },
                { "https://a.example/cb", "https://a.example/cb", true },
                { "https://a.example/cb", "https://a.example:8443/cb", false },
                { "https://a.example/cb", "https://A.example/cb", false },
                { "https://a.example/cb", "https://a.example/cb#", false },
                { "cursor://x/cb", "cursor://x/cb", true },
                { "cursor://x/cb", "cursor://x/cb2", false },
                { "javascript:alert(1)", "javascript:alert(1)", false },
        };

        (void) state;
        for (size_t i = 0; i < COUNT(rows); i++)
                if (redirect_matches(str_of(rows[i].registered), str_of(rows[i].asked)) != rows[i].ok)
                        fail_msg("%s, %s", rows[i].registered, rows[i].asked);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_kinds), cmocka_unit_test(test_matches) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
