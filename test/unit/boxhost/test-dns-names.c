/* What the forwarder answers by itself, and that it leaves everything else alone. */
#include "boxhost/dns_names.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static struct dns_names table;

static void tell(unsigned index, const char *names, size_t n)
{
        unsigned char m[DNS_NAMES_MESSAGE_MAX];

        dns_names_take(&table, m, dns_names_message(index, names, n, m));
}

static int setup(void **state)
{
        (void) state;
        memset(&table, 0, sizeof(table));
        return net_range_parse("198.18.0.0/16", &table.subnet);
}

static int teardown(void **state)
{
        (void) state;
        dns_names_done(&table);
        return 0;
}

/* A question as resolvers send it. */
static size_t question(unsigned char *q, const char *name, unsigned type)
{
        size_t at = 12;

        memset(q, 0, 12);
        q[0] = 0xab;
        q[1] = 0xcd;
        q[2] = 1;
        q[5] = 1;
        for (const char *p = name; *p;) {
                size_t n = strcspn(p, ".");
                q[at++] = (unsigned char) n;
                memcpy(q + at, p, n);
                at += n;
                p += n + (p[n] == '.');
        }
        q[at++] = 0;
        q[at++] = (unsigned char) (type >> 8);
        q[at++] = (unsigned char) type;
        q[at++] = 0;
        q[at++] = 1;
        return at;
}

static size_t ask(unsigned index, const char *name, unsigned type, unsigned char out[512])
{
        unsigned char q[512];
        size_t n = question(q, name, type);

        return dns_names_answer(&table, net_address(&table.subnet, index), q, n, out, 512);
}

static void test_each_box_has_its_own(void **state)
{
        unsigned char a[512];

        (void) state;
        tell(3, "db\0front-end", 13);
        tell(4, "db", 3);
        size_t n = ask(3, "front-end", 1, a);
        assert_int_equal(n, 12 + 11 + 4 + 16);
        assert_memory_equal(a, "\xab\xcd\x85\x80\0\1\0\1\0\0\0\0", 12);
        assert_memory_equal(a + n - 16, "\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc6\x12\0\3", 16);
        assert_true(ask(3, "DB", 1, a) > 0);
        assert_memory_equal(a + 12 + 4 + 4 + 12, "\xc6\x12\0\2", 4);
        assert_true(ask(4, "db", 1, a) > 0);
        assert_int_equal(ask(4, "front-end", 1, a), 0);
        assert_int_equal(ask(5, "db", 1, a), 0);
        tell(3, NULL, 0);
        assert_int_equal(ask(3, "db", 1, a), 0);
        assert_true(ask(4, "db", 1, a) > 0);
}

static void test_other_types_are_empty_and_other_names_are_not_ours(void **state)
{
        unsigned char a[512];

        (void) state;
        tell(0, "db", 3);
        size_t n = ask(0, "db", 28, a);
        assert_int_equal(n, 12 + 4 + 4);
        assert_memory_equal(a + 2, "\x85\x80\0\1\0\0\0\0\0\0", 10);
        assert_int_equal(ask(0, "db.example", 1, a), 0);
        assert_int_equal(ask(0, "d", 1, a), 0);
        assert_int_equal(ask(0, "dbx", 1, a), 0);
        assert_int_equal(ask(0, "", 1, a), 0);
}

static void test_strangers_and_malformed_packets(void **state)
{
        unsigned char q[512], a[512];
        size_t n;

        (void) state;
        tell(0, "db", 3);
        n = question(q, "db", 1);
        assert_true(dns_names_answer(&table, net_address(&table.subnet, 0), q, n, a, sizeof(a)) > 0);
        assert_int_equal(dns_names_answer(&table, net_gateway(&table.subnet), q, n, a, sizeof(a)), 0);
        assert_int_equal(dns_names_answer(&table, 0, q, n, a, sizeof(a)), 0);
        assert_int_equal(dns_names_answer(&table, UINT32_MAX, q, n, a, sizeof(a)), 0);
        assert_int_equal(dns_names_answer(&table, net_address(&table.subnet, NET_INDEX_MAX), q, n, a, sizeof(a)), 0);
        for (size_t i = 0; i < n; i++) { /* cut anywhere; of the exact size, so that a read beyond is seen */
                unsigned char *cut = xmemdup(q, i + 1);
                size_t r = dns_names_answer(&table, net_address(&table.subnet, 0), cut, i, a, sizeof(a));
                freep(&cut);
                assert_int_equal(r, 0);
        }
        assert_int_equal(dns_names_answer(&table, net_address(&table.subnet, 0), q, n, a, n + 15), 0);
        q[2] = 0x29; /* another opcode */
        assert_int_equal(dns_names_answer(&table, net_address(&table.subnet, 0), q, n, a, sizeof(a)), 0);
        q[2] = 0x81; /* an answer */
        assert_int_equal(dns_names_answer(&table, net_address(&table.subnet, 0), q, n, a, sizeof(a)), 0);
        q[2] = 1;
        q[n - 1] = 3; /* another class */
        assert_int_equal(dns_names_answer(&table, net_address(&table.subnet, 0), q, n, a, sizeof(a)), 0);
}

static void test_messages_that_are_none(void **state)
{
        unsigned char a[512], m[DNS_NAMES_MESSAGE_MAX + 1] = { 0 };

        (void) state;
        tell(0, "db", 3);
        dns_names_take(&table, m, 3);
        dns_names_take(&table, m, sizeof(m));
        dns_names_take(&table, (const unsigned char *) "\0\0\0\0xy", 6);        /* no end */
        dns_names_take(&table, (const unsigned char *) "\xff\xff\xff\xffx", 6); /* no such box */
        assert_true(ask(0, "db", 1, a) > 0);
        assert_int_equal(ask(0, "xy", 1, a), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_each_box_has_its_own, setup, teardown),
                cmocka_unit_test_setup_teardown(test_other_types_are_empty_and_other_names_are_not_ours, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(test_strangers_and_malformed_packets, setup, teardown),
                cmocka_unit_test_setup_teardown(test_messages_that_are_none, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
