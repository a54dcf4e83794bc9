#include "boxd/cache.h"

#include "base/file.h"
#include "base/mem.h"

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

static struct stat some(ino_t ino, int64_t mtime_ns)
{
        return (struct stat){ .st_dev = 1,
                              .st_ino = ino,
                              .st_size = 10,
                              .st_mode = S_IFREG,
                              .st_mtim = { mtime_ns / 1000000000, mtime_ns % 1000000000 },
                              .st_ctim = { 5, 6 } };
}

static void digest_for(uint64_t n, unsigned char out[HASH_LEN])
{
        hash_of(&n, sizeof(n), out);
}

static bool has(const char *path, const struct stat *st, uint64_t n)
{
        struct cache *c = cache_open(path);
        unsigned char got[HASH_LEN], want[HASH_LEN];

        digest_for(n, want);
        bool ok = cache_get(c, st, got) && memcmp(got, want, HASH_LEN) == 0;
        cache_free(c);
        return ok;
}

static void add(const char *path, const struct stat *st, int64_t read_ns, uint64_t n)
{
        struct cache *c = cache_open(path);
        unsigned char d[HASH_LEN];

        digest_for(n, d);
        cache_put(c, st, read_ns, d);
        assert_int_equal(cache_save(c), 0);
        cache_free(c);
}

static void the_racy_rule(void **state)
{
        char dir[] = "/tmp/cache-XXXXXX";
        _cleanup_free_ char *path = xasprintf("%s/digests", mkdtemp(dir));
        struct stat st = some(7, 1000);

        add(path, &st, 1000, 1); /* read within the tick of the last change: worthless */
        assert_false(has(path, &st, 1));
        add(path, &st, 999, 1);
        assert_false(has(path, &st, 1));
        add(path, &st, 1001, 1);
        assert_true(has(path, &st, 1));
        remove_tree(AT_FDCWD, dir);
}

static void every_part_of_the_key_counts(void **state)
{
        char dir[] = "/tmp/cache-XXXXXX";
        _cleanup_free_ char *path = xasprintf("%s/digests", mkdtemp(dir));
        struct stat st = some(7, 1000), other;

        add(path, &st, 2000, 1);
        assert_true(has(path, &st, 1));
        other = st, other.st_ino++;
        assert_false(has(path, &other, 1));
        other = st, other.st_dev++;
        assert_false(has(path, &other, 1));
        other = st, other.st_size++;
        assert_false(has(path, &other, 1));
        other = st, other.st_mtim.tv_nsec++;
        assert_false(has(path, &other, 1));
        other = st, other.st_ctim.tv_nsec++;
        assert_false(has(path, &other, 1));
        remove_tree(AT_FDCWD, dir);
}

static void additions_merge(void **state)
{
        char dir[] = "/tmp/cache-XXXXXX";
        _cleanup_free_ char *path = xasprintf("%s/deep/er/digests", mkdtemp(dir));
        struct cache *a = cache_open(path), *b = cache_open(path);
        unsigned char d[HASH_LEN];

        for (unsigned i = 0; i < 1000; i++) {
                struct stat st = some(i * 7919 % 1000 + 1, 1000);

                digest_for(st.st_ino, d);
                cache_put(i % 2 ? a : b, &st, 2000, d);
        }
        assert_int_equal(cache_save(a), 0);
        assert_int_equal(cache_save(b), 0);
        cache_free(a);
        cache_free(b);
        for (unsigned i = 1; i <= 1000; i++) {
                struct stat st = some(i, 1000);

                assert_true(has(path, &st, i));
        }
        /* a newer digest for the same file replaces the older one, also within one run */
        struct stat st = some(5, 1500);
        struct cache *c = cache_open(path);
        digest_for(77, d);
        cache_put(c, &st, 2000, d);
        digest_for(78, d);
        cache_put(c, &st, 2000, d);
        cache_save(c);
        cache_free(c);
        assert_true(has(path, &st, 78));
        st = some(5, 1000);
        assert_false(has(path, &st, 5));
        remove_tree(AT_FDCWD, dir);
}

static void damage_costs_time_only(void **state)
{
        char dir[] = "/tmp/cache-XXXXXX";
        _cleanup_free_ char *path = xasprintf("%s/digests", mkdtemp(dir));
        struct stat st = some(7, 1000);

        for (unsigned at = 0; at < 96; at += 5) {
                add(path, &st, 2000, 1);
                assert_true(has(path, &st, 1));
                int fd = open(path, O_RDWR);
                unsigned char byte;
                assert_int_equal(pread(fd, &byte, 1, at), 1);
                byte ^= 0x40;
                assert_int_equal(pwrite(fd, &byte, 1, at), 1);
                close(fd);
                if (at < 8 || at >= 16) /* the count is not needed */
                        assert_false(has(path, &st, 1));
                unlink(path);
        }
        add(path, &st, 2000, 1);
        assert_int_equal(truncate(path, 50), 0);
        assert_false(has(path, &st, 1));
        assert_int_equal(truncate(path, 0), 0);
        assert_false(has(path, &st, 1));
        remove_tree(AT_FDCWD, dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_racy_rule),
                cmocka_unit_test(every_part_of_the_key_counts),
                cmocka_unit_test(additions_merge),
                cmocka_unit_test(damage_costs_time_only),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
