#include "guest/tar.h"
#include "guest/guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* What a header under test says; fields are strings so that malformed ones can be written. */
struct raw {
        const char *name, *mode, *size, *mtime, *link, *magic, *prefix;
        char flag;
};

static void seal(unsigned char b[TAR_BLOCK])
{
        unsigned sum = 0;

        memset(b + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
                sum += b[i];
        snprintf((char *) b + 148, 8, "%06o", sum);
}

static void set(unsigned char *at, const char *s, size_t n)
{
        if (s)
                memcpy(at, s, min_size(strlen(s), n));
}

static void add_raw(struct buf *out, struct raw r)
{
        unsigned char b[TAR_BLOCK] = { 0 };

        set(b, r.name, 100);
        set(b + 100, r.mode ? r.mode : "0000644", 8);
        set(b + 124, r.size ? r.size : "00000000000", 12);
        set(b + 136, r.mtime ? r.mtime : "00000000000", 12);
        b[156] = (unsigned char) r.flag;
        set(b + 157, r.link, 100);
        memcpy(b + 257, r.magic ? r.magic : "ustar\00000", 8);
        set(b + 345, r.prefix, 155);
        seal(b);
        assert_int_equal(buf_add(out, b, sizeof(b)), 0);
}

static void add_body(struct buf *out, const char *p, size_t n)
{
        assert_int_equal(buf_add(out, p, n), 0);
        assert_int_equal(tar_write_zeros(out, tar_padding(n)), 0);
}

static void add_long(struct buf *out, char flag, const char *body, size_t n)
{
        char size[32];

        snprintf(size, sizeof(size), "%011zo", n);
        add_raw(out, (struct raw){ .name = "././@LongLink", .flag = flag, .size = size, .magic = "ustar  \0" });
        add_body(out, body, n);
}

/* Reads everything in pieces of step bytes and writes what happened as text. */
static int events(const struct buf *in, size_t step, char *out, size_t cap, const char **why)
{
        struct tar_reader *r = malloc(sizeof(*r));
        size_t n = 0;
        int ev = TAR_MORE;

        out[0] = '\0';
        tar_reader_init(r);
        for (size_t off = 0; off < in->len || off == 0; off += step) {
                struct str piece = str_n(in->p + off, min_size(step, in->len - off)), data;

                while ((ev = tar_read(r, &piece, &data)) > TAR_MORE && ev != TAR_EOF) {
                        if (ev == TAR_HEADER)
                                n += (size_t) snprintf(out + n, cap - n, "[%c %s|%s|%llu|%o|%lld%s",
                                                       "fdsho"[r->entry.type], r -> entry.path, r->entry.link,
                                                       (unsigned long long) r->entry.size, r->entry.mode,
                                                       (long long) r->entry.mtime, r->entry.bad ? "|bad" : "");
                        else if (ev == TAR_DATA)
                                n += (size_t) snprintf(out + n, cap - n, "%s%.*s", out[n - 1] == '~' ? "" : "",
                                                       (int) data.n, data.p);
                        else
                                n += (size_t) snprintf(out + n, cap - n, "]");
                        assert_true(n < cap);
                }
                if (ev < 0 || ev == TAR_EOF)
                        break;
        }
        int result = ev < 0 ? ev : tar_read_finish(r);
        if (ev == TAR_EOF)
                snprintf(out + n, cap - n, ".");
        if (why)
                *why = r->why;
        free(r);
        return result;
}

static void expect(struct buf *in, const char *want)
{
        static const size_t steps[] = { 1, 7, 511, 512, 513, 4096, 1 << 20 };
        char got[32768];

        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                assert_int_equal(events(in, steps[i], got, sizeof(got), NULL), 0);
                assert_string_equal(got, want);
        }
        buf_clear(in);
}

static void expect_error(struct buf *in, const char *word)
{
        static const size_t steps[] = { 1, 512, 1 << 20 };
        char got[32768];
        const char *why;

        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                assert_int_equal(events(in, steps[i], got, sizeof(got), &why), -EPROTO);
                assert_non_null(why);
                assert_non_null(strstr(why, word));
        }
        buf_clear(in);
}

static void types_and_fields(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);

        add_raw(&b,
                (struct raw){
                        .name = "a", .flag = '0', .size = "00000000003", .mode = "0104755", .mtime = "00000000144" });
        add_body(&b, "xyz", 3);
        add_raw(&b, (struct raw){ .name = "d/", .flag = '5', .size = "00000000007" });
        add_raw(&b, (struct raw){ .name = "l", .flag = '2', .link = "../t", .size = "00000000007" });
        add_raw(&b, (struct raw){ .name = "h", .flag = '1', .link = "a", .size = "00000000003" });
        add_raw(&b, (struct raw){ .name = "c", .flag = '3' });
        add_raw(&b, (struct raw){ .name = "f", .flag = '6' });
        add_raw(&b, (struct raw){ .name = "v7dir/", .flag = '\0', .magic = "\0\0\0\0\0\0\0\0" });
        add_raw(&b, (struct raw){ .name = "old", .flag = '\0', .size = "1 ", .magic = "\0\0\0\0\0\0\0\0" });
        add_body(&b, "o", 1);
        add_raw(&b, (struct raw){ .name = "cont", .flag = '7', .size = "     0" });
        add_raw(&b, (struct raw){ .name = "what", .flag = 'Z', .size = "00000000002" });
        add_body(&b, "no", 2);
        tar_write_end(&b);
        buf_adds(&b, "garbage after the end");
        expect(&b, "[f a||3|4755|100xyz][d d/||0|644|0][s l|../t|0|644|0][h h|a|0|644|0][o c||0|644|0][o f||0|644|0]"
                   "[d v7dir/||0|644|0][f old||1|644|0o][f cont||0|644|0][o what||0|644|0].");
}

static void names(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        char name[101], prefix[156], want[600];

        memset(name, 'n', 100);
        memset(prefix, 'p', 155);
        name[100] = prefix[155] = '\0';
        add_raw(&b, (struct raw){ .name = name, .prefix = prefix, .flag = '0' });
        snprintf(want, sizeof(want), "[f %s/%s||0|644|0]", prefix, name);
        expect(&b, want);
        /* GNU's magic has no prefix there but times */
        add_raw(&b, (struct raw){ .name = "g", .prefix = "00000000001", .magic = "ustar  \0", .flag = '0' });
        expect(&b, "[f g||0|644|0]");
        add_long(&b, 'L', "a/very/long\0trailing", 20);
        add_long(&b, 'K', "target", 7);
        add_raw(&b, (struct raw){ .name = "cut", .flag = '2', .link = "cut", .magic = "ustar  \0" });
        add_raw(&b, (struct raw){ .name = "next", .flag = '0' });
        expect(&b, "[s a/very/long|target|0|644|0][f next||0|644|0]");
        add_long(&b, 'L', "", 0);
        add_raw(&b, (struct raw){ .name = "x", .flag = '0' });
        expect(&b, "[f ||0|644|0]");
        static char huge[TAR_NAME_MAX + 2];
        memset(huge, 'h', sizeof(huge));
        add_long(&b, 'L', huge, sizeof(huge));
        add_raw(&b, (struct raw){ .name = "x", .flag = '0', .size = "00000000001" });
        add_body(&b, "?", 1);
        add_raw(&b, (struct raw){ .name = "y", .flag = '0' });
        char got[16384];
        assert_int_equal(events(&b, 999, got, sizeof(got), NULL), 0);
        assert_non_null(strstr(got, "|bad][f y||0|644|0]"));
        assert_null(strchr(got, '?'));
}

static void pax(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        add_long(&b, 'x', "12 path=x/y\n14 mtime=12.9\n9 size=2\n", 12 + 14 + 9);
        add_raw(&b, (struct raw){ .name = "short", .flag = '0', .size = "00000000000" });
        add_body(&b, "ab", 2);
        add_raw(&b, (struct raw){ .name = "plain", .flag = '0' });
        expect(&b, "[f x/y||2|644|12ab][f plain||0|644|0]");
        add_long(&b, 'g', "11 path=no\n", 11);
        add_long(&b, 'x', "14 linkpath=l\n", 14);
        add_raw(&b, (struct raw){ .name = "s", .flag = '2', .link = "z" });
        expect(&b, "[s s|l|0|644|0]");
        /* a hard link in a pax archive may carry content: skipped, not mistaken for headers */
        add_long(&b, 'x', "12 path=h/h\n", 12);
        add_raw(&b, (struct raw){ .name = "h", .flag = '1', .link = "a", .size = "00000000003" });
        add_body(&b, "xyz", 3);
        add_raw(&b, (struct raw){ .name = "n", .flag = '0' });
        expect(&b, "[h h/h|a|0|644|0][f n||0|644|0]");
        add_long(&b, 'x', "22 GNU.sparse.major=1\n", 22);
        add_raw(&b, (struct raw){ .name = "sp", .flag = '0', .size = "00000000001" });
        add_body(&b, "?", 1);
        expect(&b, "[o sp||0|644|0|bad]");
        add_long(&b, 'x', "12 path=a\0b\n", 12);
        add_raw(&b, (struct raw){ .name = "z", .flag = '0' });
        expect(&b, "[o a||0|644|0|bad]");
}

static void bad_pax(void **state)
{
        static const char *const bad[] = {
                "path=x\n",     "x path=x\n",   "99 path=x\n",
                "9 path=xyz\n", "11 path=x\n",  "0 path=x\n",
                " path=x\n",    "6 path\n",     "123456789 path=x\n",
                "11 size=-1\n", "11 size=1x\n", "32 size=99999999999999999999999\n",
                "7 =xy",        "3 \n",
        };
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                add_long(&b, 'x', bad[i], strlen(bad[i]));
                add_raw(&b, (struct raw){ .name = "a", .flag = '0' });
                expect_error(&b, "pax");
        }
}

static void sparse(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        unsigned char ext[TAR_BLOCK] = { 0 };

        add_raw(&b, (struct raw){ .name = "sp", .flag = 'S', .size = "00000000001", .magic = "ustar  \0" });
        b.p[482] = 1;
        seal((unsigned char *) b.p);
        ext[504] = 1;
        buf_add(&b, ext, sizeof(ext));
        ext[504] = 0;
        buf_add(&b, ext, sizeof(ext));
        add_body(&b, "?", 1);
        add_raw(&b, (struct raw){ .name = "n", .flag = '0' });
        expect(&b, "[o sp||0|644|0|bad][f n||0|644|0]");
}

static void numbers(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        static const char *const bad[] = { "0000000000x", "-0000000001", "9", "\x80\x01\0\0\0\0\0\0\0\0\0\0",
                                           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" };
        unsigned char *h;

        add_raw(&b, (struct raw){ .name = "big", .flag = '0' });
        h = (unsigned char *) b.p;
        memcpy(h + 124, "\x80\0\0\0\0\0\0\0\0\0\0\2", 12);                       /* base-256: 2 */
        memcpy(h + 136, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 12); /* −2 */
        seal(h);
        add_body(&b, "ab", 2);
        expect(&b, "[f big||2|644|-2ab]");
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                add_raw(&b, (struct raw){ .name = "x", .flag = '0' });
                h = (unsigned char *) b.p;
                memset(h + 124, 0, 12);
                memcpy(h + 124, bad[i], i < 3 ? strlen(bad[i]) : 12);
                seal(h);
                expect_error(&b, "size");
        }
}

static void damage(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        char got[4096];

        add_raw(&b, (struct raw){ .name = "a", .flag = '0' });
        b.p[0] = 'b';
        expect_error(&b, "checksum");
        add_raw(&b, (struct raw){ .name = "a", .flag = '0', .size = "00000000005" });
        buf_adds(&b, "ab");
        expect_error(&b, "cut off");
        add_raw(&b, (struct raw){ .name = "a", .flag = '0' });
        buf_add(&b, "half a header", 13);
        expect_error(&b, "cut off");
        tar_write_zeros(&b, TAR_BLOCK);
        add_raw(&b, (struct raw){ .name = "a", .flag = '0' });
        expect_error(&b, "zeros");
        add_long(&b, 'L', "name", 4);
        expect_error(&b, "cut off");
        add_raw(&b, (struct raw){ .name = "x", .flag = 'L', .size = "00010000000" });
        expect_error(&b, "1 MiB");
        /* no end marker, and nothing at all: both happen and are fine */
        add_raw(&b, (struct raw){ .name = "a", .flag = '0' });
        expect(&b, "[f a||0|644|0]");
        assert_int_equal(events(&b, 512, got, sizeof(got), NULL), 0);
        /* a checksum computed over signed bytes, as old writers did */
        add_raw(&b, (struct raw){ .name = "\xe4\xf6", .flag = '0' });
        long sum = 0;
        memset(b.p + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
                sum += (signed char) b.p[i];
        snprintf(b.p + 148, 8, "%06lo", sum);
        expect(&b, "[f \xe4\xf6||0|644|0]");
}

static void clean(void **state)
{
        static const struct {
                const char *in, *out;
                long r;
        } table[] = {
                { "a", "a", 1 },
                { "./a", "a", 1 },
                { "a/", "a", 1 },
                { "a//b/./c/", "a/b/c", 5 },
                { "", "", 0 },
                { ".", "", 0 },
                { "./", "", 0 },
                { "...", "...", 3 },
                { "..a/b..", "..a/b..", 7 },
                { "/a", NULL, -EXDEV },
                { "/", NULL, -EXDEV },
                { "..", NULL, -EXDEV },
                { "a/..", NULL, -EXDEV },
                { "a/../b", NULL, -EXDEV },
                { "./../a", NULL, -EXDEV },
                { "a/b/..//c", NULL, -EXDEV },
        };
        char out[64];

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                assert_int_equal(tar_clean_path(table[i].in, strlen(table[i].in), out), table[i].r);
                if (table[i].out)
                        assert_string_equal(out, table[i].out);
                if (table[i].r > 0)
                        assert_true(guest_path_ok(out, (size_t) table[i].r));
        }
        assert_int_equal(tar_clean_path("a\0b", 3, out), -EINVAL);
}

static char *repeat(const char *unit, size_t n)
{
        char *s = xcalloc(n + 1, 1);

        for (size_t i = 0; i < n; i++)
                s[i] = unit[i % strlen(unit)];
        return s;
}

static void writing(void **state)
{
        static const size_t lengths[] = { 1, 99, 100, 101, 155, 156, 200, 255, 256, 257, 1000, 4096 };
        struct tar_reader *r = malloc(sizeof(*r));

        for (size_t i = 0; i < ARRAY_LEN(lengths) * 4; i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
                _cleanup_free_ char *path = repeat(i / ARRAY_LEN(lengths) % 2 ? "nameonly" : "dir/\xff\xc3",
                                                   lengths[i % ARRAY_LEN(lengths)]);
                _cleanup_free_ char *link = repeat("../", lengths[(i * 7) % ARRAY_LEN(lengths)]);
                bool symlink = i % 3 == 0;

                path[strlen(path) - 1] = 'z'; /* a slash would make it a folder */
                struct tar_entry e = { .type = symlink ? TAR_SYMLINK : TAR_FILE,
                                       .path = path,
                                       .path_len = strlen(path),
                                       .link = symlink ? link : "",
                                       .link_len = symlink ? strlen(link) : 0,
                                       .size = symlink      ? 0
                                               : i % 5 == 0 ? (uint64_t) 1 << 40
                                                            : 77777,
                                       .mode = 0755,
                                       .mtime = 1234567 };

                assert_int_equal(tar_write_header(&b, &e), 0);
                assert_int_equal(b.len % TAR_BLOCK, 0);
                struct str in = buf_str(&b), data;
                tar_reader_init(r);
                assert_int_equal(tar_read(r, &in, &data), TAR_HEADER);
                assert_int_equal(in.n, 0);
                assert_string_equal(r->entry.path, path);
                assert_string_equal(r->entry.link, symlink ? link : "");
                assert_true(r->entry.size == e.size && r->entry.mode == 0755 && r->entry.mtime == 1234567 &&
                            !r->entry.bad);
        }
        free(r);
        _cleanup_buf_ struct buf b = BUF_MAX(100000);
        _cleanup_free_ char *too_long = repeat("x", TAR_NAME_MAX + 1);
        assert_int_equal(tar_write_header(&b, &(struct tar_entry){ .type = TAR_FILE, .path = "", .link = "" }),
                         -EINVAL);
        assert_int_equal(tar_write_header(&b, &(struct tar_entry){ .type = TAR_OTHER, .path = "a", .path_len = 1 }),
                         -EINVAL);
        assert_int_equal(
                tar_write_header(&b, &(struct tar_entry){ .type = TAR_DIR, .path = "a", .path_len = 1, .size = 1 }),
                -EINVAL);
        assert_int_equal(tar_write_header(&b, &(struct tar_entry){ .path = too_long, .path_len = TAR_NAME_MAX + 1 }),
                         -EINVAL);
        assert_int_equal(b.len, 0);
        struct buf small = BUF_MAX(511);
        assert_int_equal(tar_write_header(&small, &(struct tar_entry){ .path = "a", .path_len = 1, .link = "" }),
                         -ENOBUFS);
        buf_done(&small);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(types_and_fields), cmocka_unit_test(names),  cmocka_unit_test(pax),
                cmocka_unit_test(bad_pax),          cmocka_unit_test(sparse), cmocka_unit_test(numbers),
                cmocka_unit_test(damage),           cmocka_unit_test(clean),  cmocka_unit_test(writing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
