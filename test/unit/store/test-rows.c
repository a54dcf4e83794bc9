#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "scratch.h"
#include "store/accounts.h"
#include "store/boxes.h"
#include "store/secrets.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static char *account(struct scratch *s)
{
        char *a = NULL;

        assert_int_equal(accounts_first(s->db, &a, NULL), 0);
        return a;
}

static void insert(struct scratch *s, const char *acc, const char *id, const char *state, int64_t used)
{
        struct box_row row = { .id = (char *) id,
                               .account = (char *) acc,
                               .name = (char *) "n",
                               .goal = (char *) "g",
                               .image = (char *) "host",
                               .size = (char *) "small",
                               .state = (char *) state,
                               .services = (char *) "[]",
                               .repos = (char *) "[]",
                               .created_at = used,
                               .used_at = used };

        assert_int_equal(boxes_insert(s->db, &row, NULL), 0);
}

static void test_first_account_is_made_once(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s), *b = NULL;

        scratch_reopen(s);
        b = account(s);
        assert_string_equal(a, b);
}

static void test_foreign_box_answers_as_unknown(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        struct box_row row = { 0 };
        struct err mine = { 0 }, unknown = { 0 };

        insert(s, a, "box1", "running", 5);
        assert_int_equal(boxes_get(s->db, a, "box1", &row, NULL), 0);
        assert_string_equal(row.goal, "g");
        assert_int_equal(row.created_at, 5);
        box_row_done(&row);
        assert_int_equal(boxes_get(s->db, "stranger", "box1", &row, &mine), -ENOENT);
        assert_int_equal(boxes_get(s->db, "stranger", "boxX", &row, &unknown), -ENOENT);
        mine.msg[strcspn(mine.msg, "\"") + 4] = unknown.msg[strcspn(unknown.msg, "\"") + 4];
        assert_string_equal(mine.msg, unknown.msg);
        assert_int_equal(boxes_set_state(s->db, "box1", "deleted", NULL, NULL), 0);
        assert_int_equal(boxes_get(s->db, a, "box1", &row, NULL), -ENOENT);
}

static int collect(const struct box_row *b, void *arg)
{
        (void) strncat(arg, b->id, 8);
        return 0;
}

static void test_list_order_and_filter(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        char seen[64] = "";

        insert(s, a, "old", "running", 1);
        insert(s, a, "new", "running", 9);
        insert(s, a, "gone", "archived", 20);
        assert_int_equal(boxes_each(s->db, a, false, 100, collect, seen), 0);
        assert_string_equal(seen, "newold");
        seen[0] = '\0';
        assert_int_equal(boxes_each(s->db, a, true, 2, collect, seen), 0);
        assert_string_equal(seen, "gonenew");
        seen[0] = '\0';
        assert_int_equal(boxes_each(s->db, "stranger", true, 100, collect, seen), 0);
        assert_string_equal(seen, "");
}

static int last_step(const struct step *st, void *arg)
{
        struct step *out = arg;

        out->id++;
        out->exit_code = st->exit_code;
        out->has_exit = st->has_exit;
        out->oom_killed = st->oom_killed;
        out->started_at = (int64_t) strlen(st->command);
        return 0;
}

static int count_row(const struct box_row *row, void *arg)
{
        (void) row;
        ++*(int *) arg;
        return 0;
}

static void test_wiring_is_kept_and_links_are_found(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        struct box_row row = { 0 };
        int n = 0;

        insert(s, a, "box1", "running", 5);
        insert(s, a, "box2", "running", 6);
        insert(s, a, "box3", "running", 7);
        assert_int_equal(boxes_get(s->db, a, "box1", &row, NULL), 0);
        assert_string_equal(row.wiring, "{}");
        box_row_done(&row);
        assert_int_equal(boxes_set_wiring(s->db, "box1", "[{\"name\":\"db\",\"fromBox\":\"box2\"}]", "{\"x\":1}", NULL),
                         0);
        assert_int_equal(boxes_set_wiring(s->db, "box3", "[{\"name\":\"box2\"}]", "{}", NULL), 0);
        scratch_reopen(s);
        assert_int_equal(boxes_get(s->db, a, "box1", &row, NULL), 0);
        assert_string_equal(row.services, "[{\"name\":\"db\",\"fromBox\":\"box2\"}]");
        assert_string_equal(row.wiring, "{\"x\":1}");
        box_row_done(&row);
        assert_int_equal(boxes_linking(s->db, a, "box2", count_row, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(boxes_linking(s->db, "other", "box2", count_row, &n), 0);
        assert_int_equal(boxes_linking(s->db, a, "box1", count_row, &n), 0);
        assert_int_equal(boxes_set_state(s->db, "box1", "lost", NULL, NULL), 0);
        assert_int_equal(boxes_linking(s->db, a, "box2", count_row, &n), 0);
        assert_int_equal(n, 1);
}

static void test_steps_are_kept_and_bounded(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s), *big = xmalloc(20001);
        struct step st = { .box = "b", .tool = "sandbox_exec", .exec_id = "e1", .agent = "me", .started_at = 1 },
                    seen = { 0 };

        memset(big, 'x', 20000);
        big[20000] = '\0';
        insert(s, a, "b", "running", 1);
        st.command = big;
        assert_int_equal(steps_begin(s->db, &st, NULL), 0);
        st.ended_at = 2;
        st.exit_code = 137;
        st.has_exit = st.oom_killed = true;
        assert_int_equal(steps_end(s->db, &st, NULL), 0);
        assert_int_equal(steps_last(s->db, "b", 30, last_step, &seen), 0);
        assert_int_equal(seen.id, 1);
        assert_int_equal(seen.exit_code, 137);
        assert_true(seen.has_exit && seen.oom_killed);
        assert_int_equal(seen.started_at, 8192); /* the command is cut, not the record */
        _cleanup_free_ char *agent = steps_agent_of(s->db, "b", "e1");
        assert_string_equal(agent, "me");
        assert_null(steps_agent_of(s->db, "b", "other"));
        st.command = "true";
        for (int i = 0; i < 1200; i++)
                assert_int_equal(steps_begin(s->db, &st, NULL), 0);
        seen.id = 0;
        (void) steps_last(s->db, "b", 5000, last_step, &seen);
        assert_true(seen.id <= 1064);
        assert_true(seen.id >= 1000);
}

static void test_open_steps_are_closed_after_a_restart(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        struct step st = { .box = "b", .tool = "sandbox_exec", .command = "true", .started_at = 1 };
        struct query q;

        insert(s, a, "b", "running", 1);
        assert_int_equal(steps_begin(s->db, &st, NULL), 0);
        scratch_reopen(s);
        assert_int_equal(steps_close_open(s->db, "restarted"), 0);
        query(s->db, &q, "SELECT error FROM steps WHERE ended_at IS NOT NULL");
        assert_true(query_row(&q));
        assert_string_equal(col_str(&q, 0), "restarted");
        (void) query_end(&q, NULL);
}

static void test_keys(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s), *acc = NULL, *id = NULL;
        unsigned char hash[32] = { 1 }, other[32] = { 2 };

        assert_int_equal(keys_insert(s->db, "k1", a, "laptop", hash, "psbx_abcd…", NULL), 0);
        assert_int_equal(keys_insert(s->db, "k2", a, "copy", hash, "psbx_abcd…", NULL), -EEXIST);
        assert_int_equal(keys_find(s->db, hash, &acc, &id), 0);
        assert_string_equal(acc, a);
        assert_string_equal(id, "k1");
        char *none_acc = NULL, *none_id = NULL;
        assert_int_equal(keys_find(s->db, other, &none_acc, &none_id), -ENOENT);
        assert_int_equal(keys_revoke(s->db, "laptop", NULL), 1);
        assert_int_equal(keys_revoke(s->db, "laptop", NULL), 0);
        assert_int_equal(keys_find(s->db, hash, &none_acc, &none_id), -ENOENT);
}

static void test_agents_and_sessions(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        struct agent_row row;
        char version[16];

        assert_int_equal(agents_get(s->db, a, "x", &row), -ENOENT);
        assert_int_equal(agents_called(s->db, a, "x", "client/1"), 0);
        assert_int_equal(agents_left(s->db, a, "x"), 0);
        assert_int_equal(agents_get(s->db, a, "x", &row), 0);
        assert_true(row.left_at > 0);
        assert_int_equal(agents_heartbeat(s->db, a, "x", NULL), 0); /* it is back; its client is still known */
        assert_int_equal(agents_get(s->db, a, "x", &row), 0);
        assert_int_equal(row.left_at, 0);
        assert_string_equal(row.client, "client/1");

        assert_int_equal(sessions_insert(s->db, "s1", a, "2025-11-25", NULL), 0);
        scratch_reopen(s);
        assert_int_equal(sessions_find(s->db, "s1", a, version, NULL, 0), 0);
        assert_string_equal(version, "2025-11-25");
        assert_int_equal(sessions_find(s->db, "s1", "stranger", version, NULL, 0), -ENOENT);
        assert_int_equal(sessions_delete(s->db, "s1", "stranger"), -ENOENT);
        assert_int_equal(sessions_trim(s->db, wall_ms() + 1, 10), 0);
        assert_int_equal(sessions_find(s->db, "s1", a, version, NULL, 0), -ENOENT);
}

static int count_secret(const struct secret_row *row, void *arg)
{
        (void) row;
        ++*(int *) arg;
        return 0;
}

static int count_copy(const char *name, bool given, const void *sealed, size_t n, void *arg)
{
        int *counts = arg;

        assert_string_equal(name, "A");
        assert_true(n == 3 && memcmp(sealed, "\1\0\2", 3) == 0);
        counts[given]++;
        return 0;
}

static int count_box(const char *box, void *arg)
{
        assert_string_equal(box, "box1");
        ++*(int *) arg;
        return 0;
}

static void test_secrets(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        _cleanup_buf_ struct buf sealed = BUF_MAX(100);
        struct secret_row row;
        int n = 0;

        assert_int_equal(secrets_any(s->db), 0);
        assert_int_equal(secrets_put(s->db, a, "A", "\1\0\2", 3, 10, NULL), 0);
        assert_int_equal(secrets_put(s->db, a, "A", "\3\0", 2, 20, NULL), 0);
        assert_int_equal(secrets_put(s->db, a, "B", "x", 1, 30, NULL), 0);
        assert_int_equal(secrets_count(s->db, a), 2);
        assert_int_equal(secrets_each(s->db, a, count_secret, &n), 0);
        assert_int_equal(n, 2);
        assert_int_equal(secrets_used(s->db, a, "A", 40), 0);
        scratch_reopen(s);
        assert_int_equal(secrets_get(s->db, a, "A", &row, &sealed), 0);
        assert_string_equal(row.name, "A");
        assert_true(row.created_at == 10 && row.changed_at == 20 && row.used_at == 40);
        assert_true(sealed.len == 2 && memcmp(sealed.p, "\3\0", 2) == 0);
        assert_int_equal(secrets_get(s->db, "acc_nobody", "A", &row, NULL), -ENOENT);
        assert_int_equal(secrets_delete(s->db, "acc_nobody", "A"), -ENOENT);
        assert_int_equal(secrets_delete(s->db, a, "A"), 0);
        assert_int_equal(secrets_delete(s->db, a, "A"), -ENOENT);
        assert_int_equal(secrets_delete(s->db, a, "B"), 0);
        assert_int_equal(secrets_any(s->db), 0);
}

static void test_copies_live_as_long_as_their_box(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        int counts[2] = { 0, 0 }, ended = 0;

        insert(s, a, "box1", "running", 5);
        assert_true(box_secrets_add(s->db, "nosuchbox", "A", "\1\0\2", 3, 1, NULL) < 0);
        assert_int_equal(box_secrets_add(s->db, "box1", "A", "\1\0\2", 3, 1, NULL), 0);
        assert_int_equal(box_secrets_given(s->db, "box1", "A"), 0);
        assert_int_equal(box_secrets_add(s->db, "box1", "A", "\1\0\2", 3, 2, NULL), 0);
        assert_int_equal(box_secrets_each(s->db, "box1", count_copy, counts), 0);
        assert_true(counts[0] == 1 && counts[1] == 1);
        assert_int_equal(secrets_any(s->db), 1);
        assert_int_equal(box_secrets_ended(s->db, count_box, &ended), 0);
        assert_int_equal(ended, 0);
        assert_int_equal(boxes_set_state(s->db, "box1", "lost", "why", NULL), 0);
        assert_int_equal(box_secrets_ended(s->db, count_box, &ended), 0);
        assert_int_equal(ended, 1);
        assert_int_equal(boxes_delete(s->db, "box1", NULL), 0);
        assert_int_equal(secrets_any(s->db), 0);
}

static int count_id(const char *id, void *arg)
{
        unsigned *n = arg;

        (void) id;
        ++*n;
        return 0;
}

static void test_an_end_and_a_restore(void **state)
{
        struct scratch *s = *state;
        _cleanup_free_ char *a = account(s);
        struct box_row row = { 0 }, changed = { 0 };
        unsigned expired = 0;

        insert(s, a, "kept1", "running", 5);
        assert_int_equal(boxes_end(s->db, "kept1", "archived", "why", 1000, NULL), 0);
        assert_int_equal(boxes_get(s->db, a, "kept1", &row, NULL), 0);
        assert_string_equal(row.state, "archived");
        assert_int_equal(row.restorable_until, 1000);
        assert_true(row.ended_at > 0);
        box_row_done(&row);
        assert_int_equal(boxes_each_expired(s->db, 999, count_id, &expired), 0);
        assert_int_equal(expired, 0);
        assert_int_equal(boxes_each_expired(s->db, 1000, count_id, &expired), 0);
        assert_int_equal(expired, 1);
        changed = (struct box_row){ .id = (char *) "kept1",
                                    .name = (char *) "new",
                                    .goal = (char *) "another",
                                    .image = (char *) "host",
                                    .services = (char *) "[]" };
        assert_int_equal(boxes_restored(s->db, &changed, NULL), 0);
        assert_int_equal(boxes_get(s->db, a, "kept1", &row, NULL), 0);
        assert_string_equal(row.state, "running");
        assert_string_equal(row.name, "new");
        assert_string_equal(row.goal, "another");
        assert_int_equal(row.restorable_until, 0);
        assert_int_equal(row.ended_at, 0);
        assert_null(row.why);
        box_row_done(&row);
        assert_int_equal(boxes_used(s->db, "kept1", 1), 0); /* never backwards */
        assert_int_equal(boxes_get(s->db, a, "kept1", &row, NULL), 0);
        assert_true(row.used_at > 1);
        box_row_done(&row);
        /* lost without files: nothing to restore, nothing that expires */
        assert_int_equal(boxes_end(s->db, "kept1", "lost", NULL, 0, NULL), 0);
        expired = 0;
        assert_int_equal(boxes_each_expired(s->db, INT64_MAX, count_id, &expired), 0);
        assert_int_equal(expired, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_first_account_is_made_once, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_foreign_box_answers_as_unknown, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_list_order_and_filter, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_wiring_is_kept_and_links_are_found, scratch_setup,
                                                scratch_teardown),
                cmocka_unit_test_setup_teardown(test_steps_are_kept_and_bounded, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_open_steps_are_closed_after_a_restart, scratch_setup,
                                                scratch_teardown),
                cmocka_unit_test_setup_teardown(test_an_end_and_a_restore, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_keys, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_agents_and_sessions, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_secrets, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_copies_live_as_long_as_their_box, scratch_setup, scratch_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
