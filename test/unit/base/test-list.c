#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct item {
        int value;
        struct list node;
};

static int sum(const struct list *head)
{
        int n = 0;

        list_for_each (it, head)
                n = n * 10 + list_entry(it, struct item, node)->value;
        return n;
}

static void order_and_removal(void **state)
{
        struct item a = { .value = 1 }, b = { .value = 2 }, c = { .value = 3 };
        struct list head;

        list_init(&head);
        assert_true(list_empty(&head));
        assert_int_equal(sum(&head), 0);
        list_append(&head, &a.node);
        list_append(&head, &b.node);
        list_append(&head, &c.node);
        assert_false(list_empty(&head));
        assert_int_equal(sum(&head), 123);
        list_remove(&b.node);
        assert_int_equal(sum(&head), 13);
        list_append(&head, &b.node);
        assert_int_equal(sum(&head), 132);
        list_remove(&a.node);
        list_remove(&b.node);
        list_remove(&c.node);
        assert_true(list_empty(&head));
        assert_ptr_equal(head.prev, &head);
}

static void removing_twice_is_harmless(void **state)
{
        struct item a = { .value = 1 }, b = { .value = 2 };
        struct list head;

        list_init(&head);
        assert_false(list_linked(&a.node));
        list_remove(&a.node);
        list_append(&head, &a.node);
        list_append(&head, &b.node);
        assert_true(list_linked(&a.node));
        list_remove(&a.node);
        assert_false(list_linked(&a.node));
        list_remove(&a.node);
        assert_int_equal(sum(&head), 2);
}

static void removal_while_walking(void **state)
{
        struct item items[9] = { { 0 } };
        struct list head;

        list_init(&head);
        for (int i = 0; i < 9; i++) {
                items[i].value = i + 1;
                list_append(&head, &items[i].node);
        }
        list_for_each_safe (it, &head)
                if (list_entry(it, struct item, node)->value % 2 == 0)
                        list_remove(it);
        assert_int_equal(sum(&head), 13579);
        list_for_each_safe (it, &head)
                list_remove(it);
        assert_true(list_empty(&head));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(order_and_removal),
                cmocka_unit_test(removing_twice_is_harmless),
                cmocka_unit_test(removal_while_walking),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
