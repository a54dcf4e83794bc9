#include "base/mask.h"
#include "base/b64.h"
#include "mask-naive.h"

#include <errno.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define VALUE "p4ss \"w0rd\"/é$1"

static struct mask *make(const struct mask_value *v, size_t n)
{
        struct mask *m = NULL;

        assert_int_equal(mask_new(v, n, &m), 0);
        return m;
}

static struct mask *one(const char *name, const char *value)
{
        struct mask_value v = { name, str_of(value) };

        return make(&v, 1);
}

static void expect_cut(struct mask *m, const char *text, unsigned cuts, const char *want)
{
        _cleanup_buf_ struct buf out = BUF_MAX(1 << 20);

        assert_int_equal(mask_text(m, str_of(text), cuts, &out), 0);
        assert_string_equal(buf_cstr(&out), want);
}

static void expect(struct mask *m, const char *text, const char *want)
{
        expect_cut(m, text, 0, want);
}

static void plain(void **state)
{
        _cleanup_mask_ struct mask *m = one("TOKEN", "hunter2-hunter3");

        expect(m, "", "");
        expect(m, "hunter2-hunter", "hunter2-hunter");
        expect(m, "hunter2-hunter3", "[secret TOKEN]");
        expect(m, "a hunter2-hunter3 b\n", "a [secret TOKEN] b\n");
        expect(m, "hunter2-hunter3hunter2-hunter3", "[secret TOKEN][secret TOKEN]");
        expect(m, "hunter2-hunter2-hunter3", "hunter2-[secret TOKEN]");
        assert_true(mask_hits(m, STR("xxhunter2-hunter3")));
        assert_false(mask_hits(m, STR("hunter2-hunter")));
        assert_false(mask_hits(NULL, STR("hunter2-hunter3")));
}

static void spellings(void **state)
{
        static const char *const all[] = {
                VALUE,
                "p4ss \\\"w0rd\\\"/é$1",
                "p4ss \\\"w0rd\\\"/\\u00e9$1",
                "p4ss \\\"w0rd\\\"/é\\$1",
                "p4ss%20%22w0rd%22%2F%C3%A9%241",
                "p4ss%20%22w0rd%22%2f%c3%a9%241",
                "p4ss%20%22w0rd%22/%C3%A9%241",
                "p4ss+%22w0rd%22%2F%C3%A9%241",
                "p4ss%20%22w0rd%22/%C3%A9$1",
                "70347373202277307264222fc3a92431",
                "70347373202277307264222FC3A92431",
                "70347373202277307264222\nFC3A92431",
        };
        _cleanup_mask_ struct mask *m = one("T", VALUE);

        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                _cleanup_free_ char *text = xasprintf("<%s>", all[i]);

                expect(m, text, "<[secret T]>");
        }
        _cleanup_mask_ struct mask *quoted = one("Q", "it's a secret");
        expect(quoted, "X='it'\\''s a secret'", "X='[secret Q]'");
        expect(quoted, "$'it\\'s a secret' \"it's a secret\"", "$'[secret Q]' \"[secret Q]\"");
        expect(quoted, "it%27s%20a%20secret it's%20a%20secret", "[secret Q] [secret Q]");
}

/* At every place in a longer text, in both alphabets, in lines of every length: no byte of it can be told. */
static void base64(void **state)
{
        static const char value[] = "\xff\xfe secret value \xfb\xef\xbf"; /* has both + and / */
        _cleanup_mask_ struct mask *m = one("B", value);

        for (size_t before = 0; before < 7; before++)
                for (size_t after = 0; after < 4; after++)
                        for (int url = 0; url < 2; url++)
                                for (size_t line = 5; line < 80; line++) {
                                        _cleanup_buf_ struct buf raw = BUF_MAX(200), text = BUF_MAX(400),
                                                                 lines = BUF_MAX(800), out = BUF_MAX(1000);

                                        for (size_t i = 0; i < before; i++)
                                                (void) buf_addc(&raw, (char) ('a' + i));
                                        (void) buf_adds(&raw, value);
                                        for (size_t i = 0; i < after; i++)
                                                (void) buf_addc(&raw, 'z');
                                        (void) (url ? b64url_encode : b64_encode)(&text, raw.p, raw.len);
                                        for (size_t i = 0; i < text.len; i++) {
                                                (void) buf_addc(&lines, text.p[i]);
                                                if (i % line == line - 1)
                                                        (void) buf_adds(&lines, line & 1 ? "\r\n" : "\n");
                                        }
                                        assert_int_equal(mask_text(m, buf_str(&lines), 0, &out), 0);
                                        assert_true(str_has(buf_str(&out), STR("[secret B]")));
                                        /* What is left belongs to the text around it, and a part of a byte. */
                                        size_t left = out.len - strlen("[secret B]");
                                        assert_true(left <= (before + after) * 4 / 3 + 12 + (lines.len - text.len));
                                }
}

static void lines_of_a_key(void **state)
{
        _cleanup_mask_ struct mask *m = one("PEM", "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nshort\nhkiG9w0BAQEFAASC\n");

        expect(m, "head: MIIEvQIBADANBgkq\n", "head: [secret PEM]\n");
        expect(m, "short", "short");
        expect(m, "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nshort\nhkiG9w0BAQEFAASC\n", "[secret PEM]");
        expect(m, "-----BEGIN KEY-----\\nMIIEvQIBADANBgkq\\nshort\\nhkiG9w0BAQEFAASC\\n", "[secret PEM]");
}

static void several(void **state)
{
        const struct mask_value v[] = {
                { "A", STR("abcdef") }, { "B", STR("defghi") }, { "C", STR("abcdefghijk") }, { "S", STR("short") }
        };
        _cleanup_mask_ struct mask *m = make(v, ARRAY_LEN(v));

        expect(m, "abcdef", "[secret A]");
        expect(m, "abcdefghi", "[secret A]");
        expect(m, "abcdefghijkl", "[secret A]l"); /* what begins first and is whole first gives the name */
        expect(m, "xdefghix", "x[secret B]x");
        expect(m, "abcdefabcdef", "[secret A][secret A]");
        expect(m, "short", "short");
}

static void cut_off(void **state)
{
        _cleanup_mask_ struct mask *m = one("T", "0123456789abcdef");

        expect_cut(m, "x 0123456", 0, "x 0123456");
        expect_cut(m, "x 0123456", MASK_CUT_AFTER, "x [secret T]");
        expect_cut(m, "x 012", MASK_CUT_AFTER, "x 012");
        expect_cut(m, "9abcdef x", 0, "9abcdef x");
        expect_cut(m, "9abcdef x", MASK_CUT_BEFORE, "[secret T] x");
        expect_cut(m, "def x", MASK_CUT_BEFORE, "def x");
        expect_cut(m, "cdef 0123456789abcdef 0123", MASK_CUT_BEFORE | MASK_CUT_AFTER,
                   "[secret T] [secret T] [secret T]");
        expect_cut(m, "M0NTY3\nODlhYmNkZWY= x", MASK_CUT_BEFORE,
                   "[secret T]Y= x"); /* base64 of the rest: Y has bits of what could follow */
        expect_cut(m, "MDEyMzQ1\nNj", MASK_CUT_AFTER, "[secret T]");
        expect_cut(m, "got \"0123456789abc\"; and 0123456 is no more", MASK_CUT_INSIDE,
                   "got \"[secret T]\"; and 0123456 is no more");
        expect_cut(m, "0123456780123456789abcdef", MASK_CUT_INSIDE, "[secret T][secret T]");
}

struct sum {
        struct buf b;
};

static void add(const void *p, size_t n, void *arg)
{
        struct sum *s = arg;

        assert_int_equal(buf_add(&s->b, p, n), 0);
}

static unsigned next(unsigned *seed)
{
        return *seed = *seed * 1103515245 + 12345, *seed >> 16;
}

/* Small alphabets make everything overlap with everything. */
static void like_the_naive_one(void **state)
{
        unsigned seed = 7;

        for (int round = 0; round < 1500; round++) {
                char values[4][24], text[400];
                struct mask_value v[4];
                size_t n = 1 + next(&seed) % 4, len = next(&seed) % sizeof text;
                const char *alphabet = round % 3 == 0 ? "ab" : round % 3 == 1 ? "a6b1\n" : "YWJhYg\n\ra";
                static const char *const names[] = { "A", "B", "C", "D" };

                for (size_t i = 0; i < n; i++) {
                        size_t m = 6 + next(&seed) % 12;

                        for (size_t k = 0; k < m; k++)
                                values[i][k] = "ab"[next(&seed) % 2];
                        v[i] = (struct mask_value){ names[i], str_n(values[i], m) };
                }
                for (size_t i = 0; i < len; i++)
                        text[i] = alphabet[next(&seed) % strlen(alphabet)];
                for (size_t i = 0; i + 24 < len; i += 24 + next(&seed) % 60) { /* and some that are there for sure */
                        size_t which = next(&seed) % n;

                        memcpy(text + i, v[which].value.p, v[which].value.n);
                }
                _cleanup_mask_ struct mask *m = make(v, n);
                _cleanup_buf_ struct buf want = BUF_MAX(1 << 16), whole = BUF_MAX(1 << 16);
                struct sum pieces = { BUF_MAX(1 << 16) };
                struct mask_stream s;
                naive_mask(v, n, str_n(text, len), &want);
                assert_int_equal(mask_text(m, str_n(text, len), 0, &whole), 0);
                assert_int_equal(whole.len, want.len);
                assert_memory_equal(whole.p ? whole.p : "", want.p ? want.p : "", want.len);
                mask_begin(&s, m);
                for (size_t at = 0; at < len;) {
                        size_t part = min_size(1 + next(&seed) % 9, len - at);

                        mask_feed(&s, text + at, part, add, &pieces);
                        at += part;
                }
                mask_end(&s, false, add, &pieces);
                mask_done(&s);
                assert_int_equal(pieces.b.len, want.len);
                assert_memory_equal(pieces.b.p ? pieces.b.p : "", want.p ? want.p : "", want.len);
                buf_done(&pieces.b);
        }
}

struct count {
        uint64_t bytes, held_max, fed;
};

static void tally(const void *p, size_t n, void *arg)
{
        ((struct count *) arg)->bytes += n;
}

/* What is held back stays bounded, whatever comes: also for one occurrence without end. */
static void bounded(void **state)
{
        static char a[16384];
        struct mask_stream s;
        struct count c = { 0 };

        memset(a, 'a', sizeof a);
        struct mask_value v = { "A", str_n(a, 8000) };
        _cleanup_mask_ struct mask *m = make(&v, 1);
        mask_begin(&s, m);
        for (int i = 0; i < 500; i++)
                mask_feed(&s, a, sizeof a, tally, &c);
        assert_true(s.pend.cap < (1 << 18) && s.cap_spans < 100);
        mask_end(&s, false, tally, &c);
        mask_done(&s);
        assert_int_equal(c.bytes, strlen("[secret A]"));
}

static void nothing_to_mask(void **state)
{
        struct mask_stream s;
        struct count c = { 0 };

        mask_begin(&s, NULL);
        mask_feed(&s, "text", 4, tally, &c);
        assert_int_equal(c.bytes, 4);
        assert_null(s.pend.p);
        mask_end(&s, true, tally, &c);
        mask_done(&s);
        _cleanup_free_ char *copy = mask_cstr(NULL, "text"), *none = mask_cstr(NULL, NULL);
        assert_string_equal(copy, "text");
        assert_null(none);
        _cleanup_mask_ struct mask *m = one("T", "0123456789");
        _cleanup_free_ char *empty = mask_cstr(m, ""), *masked = mask_cstr(m, "a 0123456789");
        assert_string_equal(empty, "");
        assert_string_equal(masked, "a [secret T]");
}

static void too_much(void **state)
{
        static char big[1 << 20];
        struct mask_value v = { "A", str_n(big, sizeof big) };
        struct mask *m = NULL;

        for (size_t i = 0; i < sizeof big; i++)
                big[i] = (char) ('!' + i % 90);
        assert_int_equal(mask_new(&v, 1, &m), -E2BIG);
        assert_null(m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(plain),           cmocka_unit_test(spellings),
                cmocka_unit_test(base64),          cmocka_unit_test(lines_of_a_key),
                cmocka_unit_test(several),         cmocka_unit_test(cut_off),
                cmocka_unit_test(bounded),         cmocka_unit_test(like_the_naive_one),
                cmocka_unit_test(nothing_to_mask), cmocka_unit_test(too_much),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
