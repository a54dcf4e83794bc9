#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "scratch.h"
#include "store/migrations.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t single(struct db *db, const char *sql)
{
        struct query q;
        int64_t v = -1;

        query(db, &q, sql);
        if (query_row(&q))
                v = col_int(&q, 0);
        assert_int_equal(query_end(&q, NULL), 0);
        return v;
}

static void test_schema_is_current_and_strict(void **state)
{
        struct scratch *s = *state;
        struct query q;
        struct err e = { 0 };

        assert_int_equal(single(s->db, "PRAGMA user_version"), migration_count);
        query(s->db, &q, "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'n', 'no number')");
        assert_int_equal(query_run(&q, &e), -EEXIST); /* STRICT refuses the type */
        assert_non_null(e.msg);
        assert_int_equal(single(s->db, "SELECT count(*) FROM accounts"), 0);
}

static void test_file_is_private(void **state)
{
        struct scratch *s = *state;
        struct stat st;

        assert_int_equal(stat(s->path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_newer_database_is_refused(void **state)
{
        struct scratch *s = *state;
        struct db *db = NULL;
        struct err e = { 0 };
        struct query q;

        query(s->db, &q, "PRAGMA user_version = 9999");
        assert_int_equal(query_run(&q, NULL), 0);
        assert_int_equal(db_open(s->path, &db, &e), -EPROTO);
        assert_null(db);
        assert_non_null(strstr(e.msg, "newer release"));
}

static void test_constraint_and_rollback(void **state)
{
        struct scratch *s = *state;
        struct query q;

        assert_int_equal(db_begin(s->db, NULL), 0);
        query(s->db, &q, "INSERT INTO accounts (id, name, created_at) VALUES (?, 'n', 1)");
        query_str(&q, "a");
        assert_int_equal(query_run(&q, NULL), 0);
        query(s->db, &q, "INSERT INTO accounts (id, name, created_at) VALUES (?, 'n', 1)");
        query_str(&q, "a");
        assert_int_equal(query_run(&q, NULL), -EEXIST);
        db_rollback(s->db);
        assert_int_equal(single(s->db, "SELECT count(*) FROM accounts"), 0);
}

static void test_bad_sql_is_an_error_not_a_crash(void **state)
{
        struct scratch *s = *state;
        struct err e = { 0 };
        struct query q;

        query(s->db, &q, "SELECT x FROM nowhere");
        query_str(&q, "x");
        assert_false(query_row(&q));
        assert_true(query_end(&q, &e) < 0);
        assert_non_null(strstr(e.msg, "nowhere"));
}

/* What query_run answered is there after kill -9. */
static void test_kill_loses_nothing_that_was_answered(void **state)
{
        struct scratch *s = *state;
        int fd[2];

        assert_int_equal(pipe(fd), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct db *db = NULL;

                if (db_open(s->path, &db, NULL) < 0)
                        _exit(1);
                for (int i = 0;; i++) {
                        char id[16];
                        struct query q;

                        (void) snprintf(id, sizeof id, "k%d", i);
                        query(db, &q, "INSERT INTO accounts (id, name, created_at) VALUES (?, 'n', 1)");
                        query_str(&q, id);
                        if (query_run(&q, NULL) < 0 || write(fd[1], "x", 1) != 1)
                                _exit(2);
                }
        }
        (void) close(fd[1]);
        char c;
        int answered = 0;
        while (answered < 200 && read(fd[0], &c, 1) == 1)
                answered++;
        (void) kill(pid, SIGKILL);
        (void) waitpid(pid, NULL, 0);
        while (read(fd[0], &c, 1) == 1)
                answered++;
        (void) close(fd[0]);
        scratch_reopen(s);
        int64_t kept = single(s->db, "SELECT count(*) FROM accounts");
        assert_true(kept >= answered);
        assert_true(kept <= answered + 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_schema_is_current_and_strict, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_file_is_private, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_newer_database_is_refused, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_constraint_and_rollback, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_bad_sql_is_an_error_not_a_crash, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_kill_loses_nothing_that_was_answered, scratch_setup,
                                                scratch_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
