#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "scratch.h"
#include "control/output.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "store/accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct fixture {
        struct objects *objects;
        struct control control;
        char *account;
};

static void open_fixture(struct scratch *s, struct fixture *f)
{
        _cleanup_free_ char *folder = xasprintf("%s/objects", s->dir);

        *f = (struct fixture){ 0 };
        assert_int_equal(objects_open(folder, s->db, &f->objects, NULL), 0);
        assert_int_equal(accounts_first(s->db, &f->account, NULL), 0);
        f->control.origin = (char *) "http://127.0.0.1:1";
        f->control.objects = f->objects;
}

static void close_fixture(struct fixture *f)
{
        objects_free(f->objects);
        free(f->account);
}

/* Byte i of the test stream: long lines of different content, so that a misplaced piece shows. */
static char byte_at(size_t i)
{
        return i % 61 == 60 ? '\n' : (char) ('0' + i / 61 % 10);
}

static void feed(struct output *o, size_t total, size_t piece)
{
        _cleanup_free_ char *p = xmalloc(piece);

        for (size_t at = 0; at < total;) {
                size_t n = min_size(piece, total - at);

                for (size_t i = 0; i < n; i++)
                        p[i] = byte_at(at + i);
                output_add(o, p, n);
                at += n;
        }
}

static void check_object(struct fixture *f, struct output *o, size_t total)
{
        const char *why = NULL;
        _cleanup_free_ char *url = output_link(o, &f->control, f->account, "box", "stdout.txt", &why);
        struct object_row row;

        assert_non_null(url);
        assert_null(why);
        int fd = object_read(f->objects, o->object.id, &row, NULL);
        assert_true(fd >= 0);
        assert_int_equal(row.bytes, total);
        _cleanup_free_ char *p = xmalloc(total);
        assert_int_equal(read(fd, p, total), total);
        for (size_t i = 0; i < total; i++)
                if (p[i] != byte_at(i))
                        fail_msg("byte %zu differs", i);
        (void) close(fd);
}

static void test_sizes_and_pieces(void **state)
{
        const size_t sizes[] = { 0,
                                 1,
                                 100,
                                 OUTPUT_INLINE / 2,
                                 OUTPUT_INLINE / 2 + 1,
                                 OUTPUT_INLINE - 1,
                                 OUTPUT_INLINE,
                                 OUTPUT_INLINE + 1,
                                 100000,
                                 3000000 };
        const size_t pieces[] = { 1, 7, 4096, OUTPUT_INLINE / 2, OUTPUT_INLINE + 3, 1 << 20 };
        struct fixture f;

        open_fixture(*state, &f);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (size_t j = 0; j < ARRAY_LEN(pieces); j++) {
                        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
                        struct output o;
                        size_t total = sizes[i];

                        if (pieces[j] == 1 && total > 200000)
                                continue;
                        output_init(&o, f.objects);
                        feed(&o, total, pieces[j]);
                        assert_int_equal(o.total, total);
                        bool cut = output_text(&o, OUTPUT_INLINE, &text);
                        assert_int_equal(cut, total > OUTPUT_INLINE);
                        if (!cut) {
                                assert_int_equal(text.len, total);
                                for (size_t k = 0; k < total; k++)
                                        assert_int_equal(text.p[k], byte_at(k));
                        } else {
                                /* The last bytes of the text are the last bytes of the stream. */
                                for (size_t k = 1; k < 5000; k++)
                                        assert_int_equal(text.p[text.len - k], byte_at(total - k));
                                for (size_t k = 0; k < 5000; k++)
                                        assert_int_equal(text.p[k], byte_at(k));
                                assert_non_null(strstr(buf_cstr(&text), "bytes left out here"));
                                check_object(&f, &o, total);
                        }
                        output_done(&o);
                }
        close_fixture(&f);
}

static void test_count_of_left_out_bytes(void **state)
{
        struct fixture f;
        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
        struct output o;
        unsigned long long left_out = 0;
        size_t from = 0;

        open_fixture(*state, &f);
        output_init(&o, f.objects);
        feed(&o, 100000, 999);
        assert_true(output_text(&o, 10000, &text));
        const char *at = strstr(buf_cstr(&text), "[… ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "[… %llu bytes left out here, from byte %zu", &left_out, &from), 2);
        size_t marker = (size_t) (strstr(at, "…]\n") + strlen("…]\n") - at) + 1;
        assert_int_equal(text.len - marker + left_out, 100000);
        assert_int_equal(from, 5000);
        output_done(&o);
        close_fixture(&f);
}

static void test_invalid_utf8_is_replaced_in_text_only(void **state)
{
        struct fixture f;
        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
        struct output o;

        open_fixture(*state, &f);
        output_init(&o, f.objects);
        output_add(&o,
                   "a\xff\xfe"
                   "b\xe2\x82\xac",
                   7);
        assert_false(output_exact(&o));
        assert_false(output_text(&o, OUTPUT_INLINE, &text));
        assert_true(utf8_valid(buf_str(&text)));
        assert_non_null(strstr(buf_cstr(&text), "b\xe2\x82\xac"));
        const char *why = NULL;
        _cleanup_free_ char *url = output_link(&o, &f.control, f.account, "box", "stdout.txt", &why);
        struct object_row row;
        char raw[16];
        int fd = object_read(f.objects, o.object.id, &row, NULL);
        assert_int_equal(read(fd, raw, sizeof raw), 7);
        assert_memory_equal(raw,
                            "a\xff\xfe"
                            "b\xe2\x82\xac",
                            7);
        (void) close(fd);
        output_done(&o);
        close_fixture(&f);
}

static void test_cuts_do_not_split_characters(void **state)
{
        struct fixture f;
        struct output o;

        open_fixture(*state, &f);
        for (size_t shift = 0; shift < 3; shift++) {
                _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);

                output_init(&o, f.objects);
                output_add(&o, "abc", shift);
                for (int i = 0; i < 20000; i++)
                        output_add(&o, "\xe2\x82\xac", 3);
                assert_true(output_text(&o, 9001, &text));
                assert_null(strstr(buf_cstr(&text), "\xef\xbf\xbd"));
                output_done(&o);
        }
        close_fixture(&f);
}

static struct mask *mask_of(const char *value)
{
        struct mask_value v = { "TOKEN", str_of(value) };
        struct mask *m = NULL;

        assert_int_equal(mask_new(&v, 1, &m), 0);
        return m;
}

/* A value at every place of every cut: in the text, in the object behind the link, and between pieces. */
static void test_a_value_is_masked_before_anything_is_cut(void **state)
{
        static const char value[] = "0123456789-abcdef";
        _cleanup_mask_ struct mask *m = mask_of(value);
        struct scratch *s = *state;
        struct fixture f;

        open_fixture(s, &f);
        for (size_t before = 12288 - 20; before < 12288 + 4; before++) {
                _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
                struct output o;
                size_t half = before % (sizeof value - 1);

                output_init(&o, f.objects);
                output_mask(&o, m);
                for (size_t i = 0; i < before; i++)
                        output_add(&o, "x", 1);
                output_add(&o, value, half);
                output_add(&o, value + half, strlen(value) - half);
                for (int i = 0; i < 2000; i++)
                        output_add(&o, value, strlen(value));
                output_add(&o, value, 9); /* the command itself printed no more of it */
                output_end(&o);
                assert_int_equal(o.total, before + 2001 * strlen("[secret TOKEN]") + 9);
                assert_true(output_text(&o, OUTPUT_INLINE, &text));
                assert_null(strstr(buf_cstr(&text), "12345678-"));
                assert_null(strstr(buf_cstr(&text), "89-abc"));
                assert_true(o.storing);
                assert_int_equal(o.object.bytes, o.total);
                output_done(&o);
        }
        close_fixture(&f);
}

/* What a box's daemon left out between two pieces may have gone through a value. */
static void test_a_value_at_a_gap(void **state)
{
        static const char value[] = "0123456789-abcdef";
        _cleanup_mask_ struct mask *m = mask_of(value);
        struct scratch *s = *state;
        struct fixture f;

        open_fixture(s, &f);
        for (size_t cut = 1; cut < strlen(value); cut++) {
                _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
                struct output o;

                output_init(&o, f.objects);
                output_mask(&o, m);
                output_hold(&o);
                output_add(&o, "head ", 5);
                output_add(&o, value, cut);
                output_add(&o, value + cut, strlen(value) - cut);
                output_add(&o, " tail", 5);
                assert_int_equal(o.total, 0);
                output_release(&o, 1000, 5 + cut, 0);
                assert_true(output_text(&o, OUTPUT_INLINE, &text));
                assert_true(str_starts(buf_str(&text), STR("head ")) && str_ends(buf_str(&text), STR(" tail")));
                assert_non_null(strstr(buf_cstr(&text), "1000 bytes left out"));
                assert_null(strstr(buf_cstr(&text), "0123"));
                assert_null(strstr(buf_cstr(&text), "cdef"));
                assert_true(cut < MASK_FRAGMENT_MIN || strstr(buf_cstr(&text), "head [secret TOKEN]\n"));
                output_done(&o);
        }
        close_fixture(&f);
}

static void test_a_gap_without_a_mask(void **state)
{
        _cleanup_buf_ struct buf text = BUF_MAX(1 << 20);
        struct scratch *s = *state;
        struct fixture f;
        struct output o;

        open_fixture(s, &f);
        output_init(&o, f.objects);
        output_mask(&o, NULL);
        output_hold(&o);
        output_add(&o, "head", 4);
        output_add(&o, "tail", 4);
        assert_int_equal(o.total, 8);
        output_release(&o, 7, 4, 0);
        output_end(&o);
        assert_true(output_text(&o, OUTPUT_INLINE, &text));
        assert_string_equal(buf_cstr(&text), "head\n[… 7 bytes left out here, from byte 4 on …]\ntail");
        output_done(&o);
        close_fixture(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_sizes_and_pieces, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_count_of_left_out_bytes, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_invalid_utf8_is_replaced_in_text_only, scratch_setup,
                                                scratch_teardown),
                cmocka_unit_test_setup_teardown(test_cuts_do_not_split_characters, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_a_value_is_masked_before_anything_is_cut, scratch_setup,
                                                scratch_teardown),
                cmocka_unit_test_setup_teardown(test_a_value_at_a_gap, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_a_gap_without_a_mask, scratch_setup, scratch_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
