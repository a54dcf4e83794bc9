#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/address.h"
#include "base/mem.h"

static void test_public(void **state)
{
        static const char *const closed[] = {
                "127.0.0.1",
                "127.255.0.1",
                "10.0.0.1",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.1.1",
                "169.254.169.254",
                "100.64.0.1",
                "0.0.0.0",
                "0.1.2.3",
                "192.0.0.1",
                "192.0.2.1",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.1",
                "224.0.0.1",
                "239.1.1.1",
                "240.0.0.1",
                "255.255.255.255",
                "::",
                "::1",
                "fe80::1",
                "fc00::1",
                "fd12::1",
                "ff02::1",
                "::ffff:127.0.0.1",
                "::ffff:8.8.8.8",
                "64:ff9b::7f00:1",
                "2001:db8::1",
                "2001::1",
                "2001:10::1",
                "2002:7f00:1::1",
                "3fff::1",
                "100::1",
                "::7f00:1",
                "localhost",
                "",
                "1.2.3",
        };
        static const char *const open[] = { "1.1.1.1",         "8.8.8.8",      "172.32.0.1",
                                            "100.128.0.1",     "192.0.1.1",    "198.20.0.1",
                                            "2606:4700::1111", "2a00:1450::1", "2001:4860::8888" };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(closed); i++)
                if (address_public(closed[i]))
                        fail_msg("%s", closed[i]);
        for (size_t i = 0; i < ARRAY_LEN(open); i++)
                if (!address_public(open[i]))
                        fail_msg("%s", open[i]);
}

static void test_ranges(void **state)
{
        static const struct {
                const char *address, *range;
                bool in;
        } cases[] = {
                { "10.1.2.3", "10.0.0.0/8", true },
                { "11.1.2.3", "10.0.0.0/8", false },
                { "10.1.2.3", "10.1.2.3", true },
                { "10.1.2.4", "10.1.2.3", false },
                { "10.1.2.3", "10.1.2.3/32", true },
                { "10.1.2.4", "10.1.2.3/32", false },
                { "10.1.2.3", "0.0.0.0/0", true },
                { "127.0.0.1", "127.0.0.0/8", true },
                { "192.168.1.1", "192.168.0.7/16", true },
                { "::1", "0.0.0.0/0", false },
                { "10.1.2.3", "10.0.0.0/33", false },
                { "10.1.2.3", "10.0.0.0/", false },
                { "10.1.2.3", "10.0.0.0/-1", false },
                { "10.1.2.3", "", false },
                { "10.1.2.3", "/8", false },
                { "10.1.2.3", "ten/8", false },
                { "10.1.2.3", "255.255.255.2555/0", false },
                { "", "0.0.0.0/0", false },
        };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                if (address_in(cases[i].address, cases[i].range) != cases[i].in)
                        fail_msg("%s in %s", cases[i].address, cases[i].range);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_public), cmocka_unit_test(test_ranges) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
