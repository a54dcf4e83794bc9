#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "web/front.h"

static const char *const extra[] = { "boxes.example.org", NULL };
static const struct front local = { .host = "127.0.0.1", .port = 7420 };
static const struct front public = { .host = "0.0.0.0", .port = 7420, .extra_hosts = extra };

/* Where scenes have ports: their pages are on the same host. */
static const struct front ported = {
        .host = "0.0.0.0", .port = 7520, .extra_hosts = extra, .scene_from = 7500, .scene_to = 7599
};

static void test_hosts(void **state)
{
        static const struct {
                const struct front *f;
                const char *host;
                bool ok;
        } rows[] = {
                { &local, "127.0.0.1:7420", true },
                { &local, "localhost:7420", true },
                { &local, "[::1]:7420", true },
                { &local, "LOCALHOST:7420", true },
                { &local, "127.0.0.1", false },
                { &local, "127.0.0.1:80", false },
                { &local, "evil.example.com", false },
                { &local, "evil.example.com:7420", false },
                { &local, "127.0.0.1.evil.example:7420", false },
                { &local, "localhost:7420x", false },
                { &local, "", false },
                { &local, ":7420", false },
                { &local, "localhost:99999", false },
                { &public, "boxes.example.org", true },
                { &public, "boxes.example.org:443", true },
                { &public, "x.boxes.example.org", false },
                { &public, "localhost:7420", true },
                { &public, "10.0.0.5:7420", false },
                { &ported, "boxes.example.org:7520", true },
                { &ported, "boxes.example.org:7499", true },
                { &ported, "boxes.example.org:443", true },
                { &ported, "boxes.example.org", true },
                { &ported, "boxes.example.org:7500", false },
                { &ported, "boxes.example.org:7599", false },
                { &ported, "localhost:7500", false },
                { &ported, "localhost:7520", true },
        };

        (void) state;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (front_host_ok(rows[i].f, str_of(rows[i].host)) != rows[i].ok)
                        fail_msg("%s", rows[i].host);
}

static void test_origins(void **state)
{
        static const struct {
                const char *origin;
                bool ok;
        } rows[] = {
                { "http://127.0.0.1:7420", true },
                { "http://localhost:7420", true },
                { "http://127.0.0.1:1", false },
                { "null", false },
                { "", false },
                { "http://evil.example.com", false },
                { "http://127.0.0.1.evil.example", false },
                { "file://", false },
                { "http://127.0.0.1", false },
                { "chrome-extension://127.0.0.1:7420", false },
        };

        (void) state;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (front_origin_ok(&local, str_of(rows[i].origin)) != rows[i].ok)
                        fail_msg("%s", rows[i].origin);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_hosts), cmocka_unit_test(test_origins) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
