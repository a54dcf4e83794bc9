#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Datagrams keep the borders of write calls, so a line in two writes shows. */
static int reader, saved_stderr;

static int setup(void **state)
{
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0)
                return -1;
        saved_stderr = dup(STDERR_FILENO);
        (void) dup2(pair[1], STDERR_FILENO);
        (void) close(pair[1]);
        reader = pair[0];
        log_setup("prog", LOG_LEVEL_DEBUG);
        return 0;
}

static int teardown(void **state)
{
        (void) dup2(saved_stderr, STDERR_FILENO);
        (void) close(saved_stderr);
        return close(reader);
}

/* The one line that was written; "" for none. */
static const char *line(void)
{
        static char text[10000];
        ssize_t n = recv(reader, text, sizeof text - 1, MSG_DONTWAIT);

        text[n < 0 ? 0 : n] = '\0';
        return text;
}

static void form(void **state)
{
        log_error("x %d", 1);
        assert_string_equal(line(), "prog: error: x 1\n");
        log_warning("y");
        assert_string_equal(line(), "prog: warning: y\n");
        log_info("z");
        assert_string_equal(line(), "prog: info: z\n");
        log_debug("d");
        assert_string_equal(line(), "prog: debug: d\n");
        log_info("%s", "");
        assert_string_equal(line(), "prog: info: \n");
        assert_string_equal(line(), "");
}

static void levels_filter(void **state)
{
        log_setup("prog", LOG_LEVEL_WARNING);
        assert_true(log_enabled(LOG_LEVEL_ERROR));
        assert_true(log_enabled(LOG_LEVEL_WARNING));
        assert_false(log_enabled(LOG_LEVEL_INFO));
        log_info("no");
        log_debug("no");
        assert_string_equal(line(), "");
        log_warning("yes");
        assert_string_equal(line(), "prog: warning: yes\n");
}

static void control_bytes_are_escaped(void **state)
{
        log_info("a%sb", "\nprog: error: forged");
        assert_string_equal(line(), "prog: info: a\\nprog: error: forgedb\n");
        assert_string_equal(line(), "");
        log_info("%s", "\r\t\x1b[31m\x7f\x01");
        assert_string_equal(line(), "prog: info: \\r\\t\\x1b[31m\\x7f\\x01\n");
        log_info("%s", "caf\xc3\xa9 \xf0\x9f\x98\x80 \xc2\xa0|");
        assert_string_equal(line(), "prog: info: caf\xc3\xa9 \xf0\x9f\x98\x80 \xc2\xa0|\n");
        log_info("%s", "\xc2\x9b"
                       "31m \xff \xc3");
        assert_string_equal(line(), "prog: info: \\xc2\\x9b31m \\xff \\xc3\n");
}

static void long_lines_are_cut(void **state)
{
        for (size_t n = 1900; n < 5000; n += n < 2200 ? 1 : 500)
                for (int kind = 0; kind < 3; kind++) {
                        static const char unit[3][3] = { "a", "\x01", "\xc3\xa9" };
                        _cleanup_free_ char *msg = xmalloc(n + 1);
                        size_t len = strlen(unit[kind]), used = 0;

                        for (; used + len <= n; used += len)
                                memcpy(msg + used, unit[kind], len);
                        msg[used] = '\0';
                        log_info("%s", msg);
                        const char *got = line();
                        size_t got_len = strlen(got);
                        assert_true(got_len <= 2048);
                        assert_int_equal(got[got_len - 1], '\n');
                        assert_true(utf8_valid(str_of(got)));
                        bool fits = 12 + (kind == 1 ? 4 * used : used) + 1 <= 2048;
                        assert_int_equal(memcmp(got + got_len - 4, "...\n", 4) != 0, fits);
                        assert_true(fits || got_len > 2040);
                }
}

static void errno_survives(void **state)
{
        errno = ENOTTY;
        log_info("x");
        assert_int_equal(errno, ENOTTY);
        (void) line();
}

static void program_names_are_bounded(void **state)
{
        char name[300];

        memset(name, 'n', sizeof name - 1);
        name[sizeof name - 1] = '\0';
        log_setup(name, LOG_LEVEL_INFO);
        log_info("x");
        const char *got = line();
        assert_true(strlen(got) < 100);
        assert_non_null(strstr(got, "n: info: x\n"));
}

static void level_names(void **state)
{
        enum log_level l = LOG_LEVEL_ERROR;

        assert_int_equal(log_level_parse("debug", &l), 0);
        assert_int_equal(l, LOG_LEVEL_DEBUG);
        assert_int_equal(log_level_parse("info", &l), 0);
        assert_int_equal(l, LOG_LEVEL_INFO);
        assert_int_equal(log_level_parse("warning", &l), 0);
        assert_int_equal(l, LOG_LEVEL_WARNING);
        assert_int_equal(log_level_parse("error", &l), 0);
        assert_int_equal(l, LOG_LEVEL_ERROR);
        assert_int_equal(log_level_parse("Debug", &l), -EINVAL);
        assert_int_equal(log_level_parse("", &l), -EINVAL);
        assert_int_equal(log_level_parse(NULL, &l), -EINVAL);
        assert_int_equal(l, LOG_LEVEL_ERROR);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(form, setup, teardown),
                cmocka_unit_test_setup_teardown(levels_filter, setup, teardown),
                cmocka_unit_test_setup_teardown(control_bytes_are_escaped, setup, teardown),
                cmocka_unit_test_setup_teardown(long_lines_are_cut, setup, teardown),
                cmocka_unit_test_setup_teardown(errno_survives, setup, teardown),
                cmocka_unit_test_setup_teardown(program_names_are_bounded, setup, teardown),
                cmocka_unit_test(level_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
