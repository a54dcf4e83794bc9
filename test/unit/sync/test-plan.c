#include "sync/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void three(struct tree *t)
{
        static const char *const names[] = { "a", "b", "c", "d" };

        tree_init(t);
        for (size_t i = 0; i < 4; i++) {
                struct entry *e = tree_add(t, names[i], 1);

                e->state = i == 1 ? ENTRY_GONE : ENTRY_OK;
                e->key.size = i * 1000;
                memset(e->digest, (int) i, sizeof e->digest);
        }
}

static void what_is_there_is_planned(void **state)
{
        struct buf b = BUF_MAX(4096);
        struct guest_entry g;
        struct tree t;
        uint32_t *map;
        size_t n, at = 0, seen = 0;

        three(&t);
        assert_int_equal(plan_encode(&t, &b, &map, &n), 0);
        assert_int_equal(n, 3);
        for (long used; at < b.len; at += (size_t) used, seen++) {
                used = guest_entry_decode((const unsigned char *) b.p + at, b.len - at, &g);
                assert_true(used > 0);
                assert_int_equal(g.size, t.v[map[seen]].key.size);
        }
        assert_int_equal(seen, 3);
        assert_int_equal(map[1], 2);
        free(map);
        buf_done(&b);
        tree_done(&t);
}

static int decode(const char *header, const uint32_t *indices, size_t count, struct plan *p)
{
        static const uint32_t map[] = { 0, 2, 3 };
        struct buf b = BUF_MAX(8192);
        uint32_t len = (uint32_t) strlen(header);
        struct err e = { 0 };
        int r;

        (void) buf_add(&b, &len, 4);
        (void) buf_adds(&b, header);
        (void) buf_add(&b, indices, count * 4);
        r = plan_decode(buf_str(&b), map, 3, p, &e);
        if (r < 0)
                assert_true(e.msg[0] != '\0');
        buf_done(&b);
        return r;
}

static void answers(void **state)
{
        static const uint32_t some[] = { 0, 2 }, twice[] = { 1, 1 }, beyond[] = { 3 }, back[] = { 2, 0 },
                              many[] = { 0, 1, 2, 3 };
        struct plan p;

        assert_int_equal(decode("{\"exists\":true,\"extraCount\":2,\"extras\":[\"YQ==\",\"Yi9j\"]}", some, 2, &p), 0);
        assert_int_equal(p.need_n, 2);
        assert_int_equal(p.need[1], 3);
        assert_true(p.exists);
        assert_int_equal(p.extras.len, 6);
        assert_memory_equal(p.extras.p, "a\0b/c", 6);
        plan_done(&p);
        assert_int_equal(decode("{}", NULL, 0, &p), 0);
        assert_false(p.exists);
        plan_done(&p);
        assert_int_equal(decode("{}", twice, 2, &p), -EPROTO);
        assert_int_equal(decode("{}", beyond, 1, &p), -EPROTO);
        assert_int_equal(decode("{}", back, 2, &p), -EPROTO);
        assert_int_equal(decode("{}", many, 4, &p), -EPROTO);
        assert_true(decode("{", NULL, 0, &p) < 0);
        assert_int_equal(decode("{\"extras\":[\"Li4vZXRj\"]}", NULL, 0, &p), -EPROTO); /* ../etc */
        assert_int_equal(decode("{\"extras\":[\"L2V0Yw==\"]}", NULL, 0, &p), -EPROTO); /* /etc */
        assert_int_equal(decode("{\"extras\":[\"?\"]}", NULL, 0, &p), -EPROTO);
        assert_int_equal(decode("{\"extras\":[3]}", NULL, 0, &p), -EPROTO);
        assert_int_equal(plan_decode(STR("\1\0\0"), NULL, 0, &p, NULL), -EPROTO);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_there_is_planned), cmocka_unit_test(answers) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
