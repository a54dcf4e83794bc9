#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/denied.h"

static void test_addresses(void **state)
{
        static const char *const opened[] = { "10.9.0.0/16", "192.168.1.7", NULL };
        static const struct {
                const char *text, *found; /* NULL: none */
                bool with_allow;
        } rows[] = {
                { "curl: (7) Failed to connect to 10.0.0.1 port 80", "10.0.0.1", false },
                { "connect to 172.31.255.254:22", "172.31.255.254", false },
                { "172.32.0.1 8.8.8.8 1.2.3", NULL, false },
                { "at 192.168.0.10.", "192.168.0.10", false },
                { "v10.0.0.1.5 999.1.1.1 10.0.0", NULL, false },
                { "10.9.3.4", NULL, true },
                { "10.9.3.4", "10.9.3.4", false },
                { "192.168.1.7", NULL, true },
                { "192.168.1.8", "192.168.1.8", true },
                { "100.64.0.1", "100.64.0.1", false },
                { "100.128.0.1 127.0.0.1", NULL, false },
                { "", NULL, false },
        };
        char out[16];

        (void) state;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                bool found = denied_address(str_of(rows[i].text), rows[i].with_allow ? opened : NULL, out);

                if (found != (rows[i].found != NULL))
                        fail_msg("%s", rows[i].text);
                if (found)
                        assert_string_equal(out, rows[i].found);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_addresses) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
