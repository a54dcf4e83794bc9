#include "boxd/spool.h"

#include "base/file.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char at(uint64_t i)
{
        return (char) ((i * 2654435761u) >> 13);
}

static void write_n(struct spool *s, uint64_t n, size_t step)
{
        char piece[70000];

        while (n) {
                size_t k = n < step ? (size_t) n : step;

                for (size_t i = 0; i < k; i++)
                        piece[i] = at(s->total + i);
                spool_add(s, piece, k);
                n -= k;
        }
}

/* What is kept must be the stream with exactly the gaps it names. */
static void check(const struct kept *k, long (*read)(void *, uint64_t, void *, size_t), void *arg)
{
        uint64_t stream = 0;
        unsigned gap = 0;
        char piece[999];

        for (uint64_t off = 0; off <= k->len;) {
                while (gap < k->gaps && k->gap[gap].at == off)
                        stream += k->gap[gap++].len;
                if (off == k->len)
                        break;
                uint64_t stop = gap < k->gaps ? k->gap[gap].at : k->len;
                size_t want = stop - off < sizeof(piece) ? (size_t) (stop - off) : sizeof(piece);
                long n = read(arg, off, piece, want);
                assert_true(n > 0);
                for (long i = 0; i < n; i++)
                        assert_int_equal(piece[i], at(stream++));
                off += (uint64_t) n;
        }
        assert_int_equal(gap, k->gaps);
        assert_true(stream == k->total);
        assert_int_equal(read(arg, k->len, piece, 10), 0);
}

static void head_and_tail_in_memory(void **state)
{
        static const uint64_t sizes[] = {
                0, 1, 100, KEEP_EDGE - 1, KEEP_EDGE, KEEP_EDGE + 1, 2 * KEEP_EDGE, 2 * KEEP_EDGE + 1, 1000000
        };
        static const size_t steps[] = { 1, 1000, 16384, 70000 };

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (size_t j = 0; j < ARRAY_LEN(steps); j++) {
                        struct spool s;
                        struct kept k;

                        if (sizes[i] > 100000 && steps[j] == 1)
                                continue;
                        spool_init(&s);
                        write_n(&s, sizes[i], steps[j]);
                        spool_kept(&s, &k);
                        assert_true(k.total == sizes[i] &&
                                    k.len == (sizes[i] < 2 * KEEP_EDGE ? sizes[i] : 2 * KEEP_EDGE));
                        check(&k, spool_read, &s);
                        spool_done(&s);
                }
}

static void from_memory_to_a_file(void **state)
{
        static const uint64_t before[] = { 0, 10, KEEP_EDGE, KEEP_EDGE + 5, 2 * KEEP_EDGE, 100000 };
        static const uint64_t after[] = { 0, 10, 100000 };
        char dir[] = "/tmp/spool-XXXXXX";
        _cleanup_close_ int fd = open(mkdtemp(dir), O_PATH | O_DIRECTORY);

        for (size_t i = 0; i < ARRAY_LEN(before); i++)
                for (size_t j = 0; j < ARRAY_LEN(after); j++) {
                        struct spool s;
                        struct kept k;

                        spool_init(&s);
                        write_n(&s, before[i], 777);
                        spool_to_file(&s, fd, "x");
                        write_n(&s, after[j], 5000);
                        spool_kept(&s, &k);
                        check(&k, spool_read, &s);
                        spool_done(&s);
                }
        remove_tree(AT_FDCWD, dir);
}

static void beyond_the_limit(void **state)
{
        char dir[] = "/tmp/spool-XXXXXX";
        _cleanup_close_ int fd = open(mkdtemp(dir), O_PATH | O_DIRECTORY);
        struct spool s;
        struct kept k;
        unsigned char in[INLINE_MAX];
        int mem;

        spool_init(&s);
        write_n(&s, 50000, 60000);
        spool_to_file(&s, fd, "x");
        write_n(&s, SPOOL_MAX + 300000, 60000);
        spool_kept(&s, &k);
        assert_int_equal(k.gaps, 2);
        check(&k, spool_read, &s);
        assert_int_equal(spool_finish(&s, fd, "x", &k, in, sizeof(in), &mem), STORE_FILE);
        struct stat st;
        assert_int_equal(fstatat(fd, "x", &st, 0), 0);
        assert_true((uint64_t) st.st_size == k.len);
        spool_done(&s);
        remove_tree(AT_FDCWD, dir);
}

static void where_the_end_is_kept(void **state)
{
        char dir[] = "/tmp/spool-XXXXXX";
        _cleanup_close_ int fd = open(mkdtemp(dir), O_PATH | O_DIRECTORY);
        unsigned char in[INLINE_MAX];
        struct spool s;
        struct kept k;
        int mem;

        spool_init(&s);
        assert_int_equal(spool_finish(&s, fd, "x", &k, in, sizeof(in), &mem), STORE_NONE);
        write_n(&s, 100, 10);
        assert_int_equal(spool_finish(&s, fd, "x", &k, in, sizeof(in), &mem), STORE_INLINE);
        for (size_t i = 0; i < 100; i++)
                assert_int_equal((char) in[i], at(i));
        write_n(&s, 100000, 10000);
        assert_int_equal(spool_finish(&s, fd, "x", &k, in, sizeof(in), &mem), STORE_FILE);
        assert_int_equal(mem, -1);
        /* without a folder: a memory file */
        assert_int_equal(spool_finish(&s, -1, "x", &k, in, sizeof(in), &mem), STORE_MEMFD);
        assert_true(mem >= 0 && (uint64_t) lseek(mem, 0, SEEK_END) == k.len);
        close(mem);
        spool_done(&s);
        spool_init(&s);
        spool_to_file(&s, -2, "x");
        assert_int_equal(s.error, -2);
        spool_done(&s);
        remove_tree(AT_FDCWD, dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(head_and_tail_in_memory),
                cmocka_unit_test(from_memory_to_a_file),
                cmocka_unit_test(beyond_the_limit),
                cmocka_unit_test(where_the_end_is_kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
