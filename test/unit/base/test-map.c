#include "base/map.h"
#include "base/ids.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void put_get_del(void **state)
{
        _cleanup_(map_freep) struct map *m = map_new();
        int a, b;

        assert_null(map_get(m, STR("k")));
        assert_null(map_del(m, STR("k")));
        assert_null(map_put(m, STR("k"), &a));
        assert_ptr_equal(map_get(m, STR("k")), &a);
        assert_ptr_equal(map_put(m, STR("k"), &b), &a);
        assert_int_equal(map_len(m), 1);
        assert_ptr_equal(map_del(m, STR("k")), &b);
        assert_null(map_get(m, STR("k")));
        assert_int_equal(map_len(m), 0);
}

static void keys_are_bytes_and_copied(void **state)
{
        _cleanup_(map_freep) struct map *m = map_new();
        char key[] = "key";
        int a, b, c, d;

        map_put(m, str_of(key), &a);
        key[0] = 'x';
        assert_ptr_equal(map_get(m, STR("key")), &a);
        assert_null(map_get(m, str_of(key)));
        map_put(m, STR("a\0b"), &b);
        map_put(m, STR("a\0c"), &c);
        map_put(m, str_n(NULL, 0), &d);
        assert_null(map_get(m, STR("a")));
        assert_ptr_equal(map_get(m, STR("a\0b")), &b);
        assert_ptr_equal(map_get(m, STR("a\0c")), &c);
        assert_ptr_equal(map_get(m, STR("")), &d);
        assert_int_equal(map_len(m), 4);
}

static void null_values_have_a_place(void **state)
{
        _cleanup_(map_freep) struct map *m = map_new();

        map_put(m, STR("k"), NULL);
        assert_int_equal(map_len(m), 1);
        map_del(m, STR("k"));
        assert_int_equal(map_len(m), 0);
}

#define MODEL 2000

/* Random operations beside an array that says what must come out. */
static void model(void **state)
{
        static int values[MODEL];
        bool there[MODEL] = { false };
        size_t len = 0;
        _cleanup_(map_freep) struct map *m = map_new();

        for (int i = 0; i < 100000; i++) {
                uint32_t random;
                char key[16];

                random_bytes(&random, sizeof random);
                size_t k = (random >> 2) % MODEL;
                struct str s = str_n(key, (size_t) snprintf(key, sizeof key, "key%zu", k));
                void *want = there[k] ? &values[k] : NULL;
                if (random % 4 == 0) {
                        assert_ptr_equal(map_del(m, s), want);
                        len -= there[k];
                        there[k] = false;
                } else if (random % 4 == 1) {
                        assert_ptr_equal(map_put(m, s, &values[k]), want);
                        len += !there[k];
                        there[k] = true;
                } else {
                        assert_ptr_equal(map_get(m, s), want);
                }
                assert_int_equal(map_len(m), len);
        }
}

static int count(struct str key, void *value, void *arg)
{
        assert_int_equal(key.n, sizeof(int));
        ((unsigned char *) arg)[*(int *) value]++;
        return 0;
}

static int stop(struct str key, void *value, void *arg)
{
        return ++*(int *) arg == 3 ? 77 : 0;
}

static int remove_odd(struct str key, void *value, void *arg)
{
        if (*(int *) value % 2)
                assert_ptr_equal(map_del(arg, key), value);
        return 0;
}

static int remove_all(struct str key, void *value, void *arg)
{
        assert_ptr_equal(map_del(arg, key), value);
        return 0;
}

static void visiting(void **state)
{
        static int values[5000];
        unsigned char seen[5000] = { 0 };
        int calls = 0;
        _cleanup_(map_freep) struct map *m = map_new();

        assert_int_equal(map_each(m, count, seen), 0);
        for (int i = 0; i < 5000; i++) {
                values[i] = i;
                map_put(m, str_n((const char *) &i, sizeof i), &values[i]);
        }
        assert_int_equal(map_each(m, count, seen), 0);
        for (int i = 0; i < 5000; i++)
                assert_int_equal(seen[i], 1);
        assert_int_equal(map_each(m, stop, &calls), 77);
        assert_int_equal(calls, 3);

        memset(seen, 0, sizeof seen);
        assert_int_equal(map_each(m, remove_odd, m), 0);
        assert_int_equal(map_len(m), 2500);
        assert_int_equal(map_each(m, count, seen), 0);
        for (int i = 0; i < 5000; i++)
                assert_int_equal(seen[i], i % 2 == 0);
        assert_int_equal(map_each(m, remove_all, m), 0);
        assert_int_equal(map_len(m), 0);
}

static void freeing_nothing(void **state)
{
        struct map *none = NULL;

        map_free(none);
        map_freep(&none);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(put_get_del),
                cmocka_unit_test(keys_are_bytes_and_copied),
                cmocka_unit_test(null_values_have_a_place),
                cmocka_unit_test(model),
                cmocka_unit_test(visiting),
                cmocka_unit_test(freeing_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
