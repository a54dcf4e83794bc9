/* The text given to nft: one transaction, one table of this instance, nothing of another one. */
#include "boxhost/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static struct net_config config(void)
{
        struct net_config c = { .instance = "abcd1234", .dns_port = 5353 };

        assert_int_equal(net_range_parse("198.18.0.0/16", &c.subnet), 0);
        return c;
}

static void test_the_table_is_the_instances(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct net_config c = config();
        const char *text;
        char group[32];

        assert_int_equal(net_rules(&b, &c), 0);
        text = buf_cstr(&b);
        assert_true(strncmp(text,
                            "add table inet psbx_abcd1234\ndelete table inet psbx_abcd1234\ntable inet psbx_abcd1234 {",
                            80) == 0);
        for (const char *p = strstr(text, "psbx_"); p; p = strstr(p + 1, "psbx_"))
                assert_true(strncmp(p, "psbx_abcd1234", 13) == 0);
        assert_null(strstr(text, "flush"));
        snprintf(group, sizeof(group), "iifgroup %u", net_group("abcd1234"));
        assert_non_null(strstr(text, group));
        assert_null(strstr(text, "iifname \"psb*\" accept"));
        assert_string_equal(text + b.len - 4, " }\n}\n" + 1);
}

static void test_private_ranges_are_closed(void **state)
{
        static const char *const must[] = { "10.0.0.0/8",
                                            "172.16.0.0/12",
                                            "192.168.0.0/16",
                                            "169.254.0.0/16",
                                            "100.64.0.0/10",
                                            "127.0.0.0/8",
                                            "224.0.0.0/3",
                                            "198.18.0.0/15",
                                            "fib saddr . iif oif missing drop",
                                            "meta nfproto ipv6 drop",
                                            "masquerade" };
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct net_config c = config();

        assert_int_equal(net_rules(&b, &c), 0);
        for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++)
                assert_non_null(strstr(buf_cstr(&b), must[i]));
        assert_null(strstr(buf_cstr(&b), "@allowed"));
}

static void test_allowed_come_before_closed(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct net_config c = config();

        assert_int_equal(net_range_parse("10.1.2.0/24", &c.allow[c.allow_count++]), 0);
        assert_int_equal(net_range_parse("10.9.9.9", &c.allow[c.allow_count++]), 0);
        assert_int_equal(net_rules(&b, &c), 0);
        assert_non_null(strstr(buf_cstr(&b), "10.1.2.0/24, 10.9.9.9/32"));
        assert_true(strstr(buf_cstr(&b), "@allowed accept") < strstr(buf_cstr(&b), "@closed"));
}

static void test_no_forwarder_no_rule_for_it(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct net_config c = config();

        c.dns_port = 0;
        assert_int_equal(net_rules(&b, &c), 0);
        assert_null(strstr(buf_cstr(&b), "dnat ip to"));
}

static void test_wires_lead_to_one_socket_of_no_other_interface(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 16);
        struct net_config c = config();
        char led[160], kept[160];

        c.wire_port = 4711;
        assert_int_equal(net_rules(&b, &c), 0);
        snprintf(led, sizeof(led),
                 "iifgroup %u ip daddr 198.18.0.2-198.18.0.33 meta l4proto tcp dnat ip to 198.18.0.1:4711",
                 net_group("abcd1234"));
        snprintf(kept, sizeof(kept), "iifgroup != %u ip daddr 198.18.0.1 tcp dport 4711 reject with tcp reset",
                 net_group("abcd1234"));
        assert_non_null(strstr(buf_cstr(&b), led));
        assert_non_null(strstr(buf_cstr(&b), "ip daddr 198.18.0.1 ct status dnat tcp dport 4711 accept"));
        assert_non_null(strstr(buf_cstr(&b), kept));
        snprintf(led, sizeof(led), "iifgroup != %u accept", net_group("abcd1234"));
        assert_true(strstr(buf_cstr(&b), kept) < strstr(buf_cstr(&b), led));
        /* the addresses of names are no box's */
        assert_true(net_wire_address(&c.subnet, NET_WIRES_MAX - 1) < net_address(&c.subnet, 0));
}

static void test_a_small_buffer_is_an_error(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);
        struct net_config c = config();

        assert_true(net_rules(&b, &c) < 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_table_is_the_instances),
                cmocka_unit_test(test_private_ranges_are_closed),
                cmocka_unit_test(test_allowed_come_before_closed),
                cmocka_unit_test(test_no_forwarder_no_rule_for_it),
                cmocka_unit_test(test_wires_lead_to_one_socket_of_no_other_interface),
                cmocka_unit_test(test_a_small_buffer_is_an_error),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
