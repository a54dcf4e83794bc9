#include "sync/cache.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)

static char dir[64];

static struct cache_record record(uint64_t n)
{
        struct cache_record r = {
                .key = { .dev = 1, .ino = n, .size = n * 3, .mtime_ns = (int64_t) n + 1, .ctime_ns = 7 }
        };

        memset(r.digest, (int) n, sizeof r.digest);
        return r;
}

static void kept_and_found(void **state)
{
        struct cache_record v[100];
        size_t hint = 0;

        for (uint64_t i = 0; i < 100; i++)
                v[i] = record(i);
        assert_int_equal(cache_save(dir, "/root", v, 100), 0);
        struct cache *c = cache_open(dir, "/root");
        assert_int_equal(cache_len(c), 100);
        for (size_t i = 0; i < 100; i++) {
                const unsigned char *d = cache_find(c, &v[(i * 37) % 100].key, &hint);

                assert_non_null(d);
                assert_memory_equal(d, v[(i * 37) % 100].digest, HASH_LEN);
        }
        /* every part of the key counts */
        for (int part = 0; part < 5; part++) {
                struct cache_key k = v[5].key;
                uint64_t *p = (void *) &k;

                p[part]++;
                assert_null(cache_find(c, &k, &hint));
        }
        cache_free(c);
        c = cache_open(dir, "/other");
        assert_int_equal(cache_len(c), 0);
        assert_null(cache_find(c, &v[0].key, &hint));
        cache_free(c);
}

static void replaced_whole(void **state)
{
        struct cache_record v[3] = { record(1), record(2), record(3) };
        struct cache *c;

        assert_int_equal(cache_save(dir, "/damaged", v, 3), 0);
        c = cache_open(dir, "/damaged");
        assert_int_equal(cache_len(c), 3);
        cache_free(c);
        struct cache_record odd[2] = { record(8), record(9) };
        assert_int_equal(cache_save(dir, "/damaged", odd, 2), 0);
        c = cache_open(dir, "/damaged");
        assert_int_equal(cache_len(c), 2);
        cache_free(c);
        c = cache_open(NULL, "/damaged");
        assert_int_equal(cache_len(c), 0);
        cache_free(c);
}

static void racy_rule(void **state)
{
        struct cache_key k = { .mtime_ns = 100 * S + 5, .ctime_ns = 100 * S + 5 };

        assert_true(cache_racy(&k, 100 * S + 5));
        assert_true(cache_racy(&k, 100 * S + 50 * MS));
        assert_false(cache_racy(&k, 101 * S));
        assert_true(cache_racy(&k, 50 * S)); /* from the future */
        k.ctime_ns = 200 * S + 1;
        assert_true(cache_racy(&k, 200 * S + 2)); /* an old mtime can be set by hand, a ctime cannot */
        k = (struct cache_key){ .mtime_ns = 100 * S, .ctime_ns = 100 * S };
        assert_true(cache_racy(&k, 101 * S)); /* whole seconds: a coarse file system */
        assert_false(cache_racy(&k, 103 * S));
}

static int up(void **state)
{
        (void) snprintf(dir, sizeof dir, "/tmp/psbx-cache-test-%ld", (long) getpid());
        return 0;
}

static int down(void **state)
{
        return remove_tree(AT_FDCWD, dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(kept_and_found), cmocka_unit_test(replaced_whole),
                                            cmocka_unit_test(racy_rule) };

        return cmocka_run_group_tests(tests, up, down);
}
