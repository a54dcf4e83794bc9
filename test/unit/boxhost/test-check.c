/* What is accepted as a box's name, host name, variables, sizes, image and addresses. */
#include "boxhost/box.h"
#include "boxhost/idmap.h"
#include "boxhost/image.h"
#include "boxhost/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

static void test_ids(void **state)
{
        assert_true(box_id_ok("abcd"));
        assert_true(box_id_ok("0123456789abcdefghijklmnopqrstuv"));
        assert_false(box_id_ok(""));
        assert_false(box_id_ok("abc"));
        assert_false(box_id_ok("0123456789abcdefghijklmnopqrstuvw"));
        assert_false(box_id_ok("Abcd"));
        assert_false(box_id_ok("ab/d"));
        assert_false(box_id_ok("...."));
        assert_false(box_id_ok("ab-d"));
        assert_false(box_id_ok("abcd\n"));
        assert_false(box_id_ok("ab\xc3\xa9"));
}

static void test_host_names(void **state)
{
        char longest[65];

        memset(longest, 'a', 63);
        longest[63] = '\0';
        assert_true(box_hostname_ok(longest));
        longest[63] = 'a';
        longest[64] = '\0';
        assert_false(box_hostname_ok(longest));
        assert_true(box_hostname_ok("a"));
        assert_true(box_hostname_ok("My-Box-1"));
        assert_false(box_hostname_ok(""));
        assert_false(box_hostname_ok("-a"));
        assert_false(box_hostname_ok("a-"));
        assert_false(box_hostname_ok("a.b"));
        assert_false(box_hostname_ok("a b"));
        assert_false(box_hostname_ok("a\n127.0.0.1 evil"));
}

static void test_variables(void **state)
{
        assert_true(box_env_ok("A=b"));
        assert_true(box_env_ok("_a1="));
        assert_false(box_env_ok("=b"));
        assert_false(box_env_ok("A"));
        assert_false(box_env_ok("1A=b"));
        assert_false(box_env_ok("A B=c"));
        assert_false(box_env_ok("A.B=c"));
}

static void test_sizes(void **state)
{
        struct box_size s = { .cpus = NAN, .memory = 0, .pids = 0, .disk = 0 };

        box_size_clamp(&s);
        assert_true(s.cpus > 0 && s.cpus < 1);
        assert_int_equal(s.memory, 32 << 20);
        assert_int_equal(s.pids, 16);
        assert_int_equal(s.disk, 64 << 20);
        s = (struct box_size){ .cpus = INFINITY, .memory = UINT64_MAX, .pids = UINT64_MAX, .disk = UINT64_MAX };
        box_size_clamp(&s);
        assert_true(s.cpus >= 1 && s.cpus < 1e5);
        assert_true(s.memory <= 1ULL << 44 && s.disk <= 1ULL << 43 && s.pids <= 1U << 20);
        s = (struct box_size){ .cpus = -1, .memory = (100 << 20) + 1, .pids = 100, .disk = (100 << 20) + 1 };
        box_size_clamp(&s);
        assert_int_equal(s.memory % 4096, 0);
        assert_int_equal(s.disk % (1 << 20), 0);
        assert_int_equal(s.pids, 100);
}

static void test_image_names(void **state)
{
        assert_true(image_name_ok("host"));
        assert_true(image_name_ok("debian-12_x.y"));
        assert_false(image_name_ok(""));
        assert_false(image_name_ok("."));
        assert_false(image_name_ok(".."));
        assert_false(image_name_ok("../host"));
        assert_false(image_name_ok("a/b"));
        assert_false(image_name_ok(".hidden"));
        assert_false(image_name_ok("0123456789012345678901234567890123456789012345678901234567890123456789"));
}

static void test_ranges(void **state)
{
        struct net_range r;

        assert_int_equal(net_range_parse("10.1.2.3/8", &r), 0);
        assert_int_equal(r.address, 10U << 24);
        assert_int_equal(r.bits, 8);
        assert_int_equal(net_range_parse("192.0.2.7", &r), 0);
        assert_int_equal(r.bits, 32);
        assert_int_equal(net_range_parse("0.0.0.0/0", &r), 0);
        assert_int_equal(r.address, 0);
        assert_int_equal(net_range_parse("10.0.0.0/33", &r), -EINVAL);
        assert_int_equal(net_range_parse("10.0.0.0/", &r), -EINVAL);
        assert_int_equal(net_range_parse("10.0.0", &r), -EINVAL);
        assert_int_equal(net_range_parse("", &r), -EINVAL);
        assert_int_equal(net_range_parse("10.0.0.0/8; drop", &r), -EINVAL);
        assert_int_equal(net_range_parse("::1/128", &r), -EINVAL);
}

static void test_what_follows_from_an_index(void **state)
{
        struct net_range subnet;
        char text[INET_ADDRSTRLEN];

        assert_int_equal(net_range_parse("198.18.0.0/16", &subnet), 0);
        net_print(net_gateway(&subnet), text);
        assert_string_equal(text, "198.18.0.1");
        net_print(net_address(&subnet, 0), text);
        assert_string_equal(text, "198.18.1.0");
        net_print(net_address(&subnet, NET_INDEX_MAX - 1), text);
        assert_string_equal(text, "198.18.16.255");
        assert_int_equal(idmap_base(0), 0x70000000);
        assert_int_equal(idmap_base(1) - idmap_base(0), 65536);
        assert_true(idmap_base(NET_INDEX_MAX - 1) + (uint64_t) IDMAP_COUNT <=
                    0x80000000ULL); /* uids stay positive as int */
}

static void test_groups_differ_and_stay(void **state)
{
        assert_int_equal(net_group("abcdefgh"), net_group("abcdefgh"));
        assert_int_not_equal(net_group("abcdefgh"), net_group("abcdefgi"));
        assert_true(net_group("") > 0xffff && net_group("zzzzzzzz") <= INT32_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ids),
                cmocka_unit_test(test_host_names),
                cmocka_unit_test(test_variables),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_image_names),
                cmocka_unit_test(test_ranges),
                cmocka_unit_test(test_what_follows_from_an_index),
                cmocka_unit_test(test_groups_differ_and_stay),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
