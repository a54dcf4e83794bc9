/* The ports of scenes: ranges, who has which, what a restart and a full range do. */
#include "scratch.h"
#include "control/scene.h"
#include "control/scene_ports.h"
#include "store/accounts.h"

#include "base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static void test_ranges(void **state)
{
        static const struct {
                const char *text;
                unsigned from, to;
        } good[] = { { "7500-7599", 7500, 7599 },
                     { "1024-1024", 1024, 1024 },
                     { "65535", 65535, 65535 },
                     { "1024-5119", 1024, 5119 } };
        static const char *const bad[] = { "",          "-",      "7500-",      "-1",         "80-90",
                                           "1024-5120", "2-1",    "9000-65536", "7600-7500",  "0x1f90-9000",
                                           "7500 7600", "1e4",    "7500-7600-", " 7500-7600", "-7500-7600",
                                           "7500--760", "+7500-", "7500-+7600" };
        unsigned from, to;

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                assert_int_equal(scene_ports_parse(good[i].text, &from, &to), 0);
                assert_int_equal(from, good[i].from);
                assert_int_equal(to, good[i].to);
        }
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (scene_ports_parse(bad[i], &from, &to) != -EINVAL)
                        fail_msg("%s", bad[i]);
}

/* ---- who listens ---- */

static bool listened[8], taken[8]; /* by port - 7500 */

static int open_port(void *arg, unsigned port, struct err *e)
{
        (void) arg;
        assert_in_range(port, 7500, 7507);
        assert_false(listened[port - 7500]);
        if (taken[port - 7500])
                return err_set(e, -EADDRINUSE, "port %u is taken", port);
        listened[port - 7500] = true;
        return 0;
}

static void close_port(void *arg, unsigned port)
{
        (void) arg;
        assert_true(listened[port - 7500]);
        listened[port - 7500] = false;
}

static const struct scene_ports_listener listener = { .open = open_port, .close = close_port };

static void insert_box(struct scratch *s, const char *id)
{
        _cleanup_free_ char *account = NULL;

        assert_int_equal(accounts_first(s->db, &account, NULL), 0);
        struct box_row row = { .id = (char *) id,
                               .account = account,
                               .name = (char *) "n",
                               .goal = (char *) "g",
                               .image = (char *) "host",
                               .size = (char *) "small",
                               .state = (char *) "running",
                               .services = (char *) "[]",
                               .repos = (char *) "[]" };
        assert_int_equal(boxes_insert(s->db, &row, NULL), 0);
}

static struct wires wires_of(const char *const *names)
{
        struct wires w = { .count = 0 };

        for (; names[w.count]; w.count++)
                (void) snprintf(w.wire[w.count].name, sizeof w.wire[0].name, "%s", names[w.count]);
        return w;
}

static struct scene_ports *begin(struct scratch *s, unsigned from, unsigned to)
{
        struct scene_ports *p = scene_ports_new(s->db, from, to);

        memset(listened, 0, sizeof listened);
        assert_int_equal(scene_ports_listen(p, &listener, NULL), 0);
        return p;
}

static void owner_is(const struct scene_ports *p, unsigned port, const char *box, const char *service)
{
        const char *b = NULL, *n = NULL;

        assert_int_equal(scene_port_owner(p, port, &b, &n), box != NULL);
        if (!box)
                return;
        assert_string_equal(b, box);
        assert_string_equal(n, service);
}

static void test_given_once_and_kept(void **state)
{
        static const char *const names[] = { "web", "api", NULL };
        struct wires w = wires_of(names);
        struct scratch *s = *state;

        insert_box(s, "box0000001");
        insert_box(s, "box0000002");
        struct scene_ports *p = begin(s, 7500, 7507);
        assert_int_equal(scene_port_find(p, "box0000001", "web"), 0);
        assert_int_equal(scene_port_give(p, "box0000001", &w, 0), 7500);
        assert_int_equal(scene_port_give(p, "box0000001", &w, 0), 7500);
        taken[1] = true; /* another server's */
        assert_int_equal(scene_port_give(p, "box0000001", &w, 1), 7502);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 0), 7503);
        owner_is(p, 7502, "box0000001", "api");
        owner_is(p, 7501, NULL, NULL);
        owner_is(p, 7499, NULL, NULL);
        owner_is(p, 7508, NULL, NULL);
        scene_ports_free(p);

        /* A restart keeps all but what somebody else has taken. */
        taken[1] = false;
        taken[3] = true;
        p = begin(s, 7500, 7507);
        assert_true(listened[0] && listened[2] && !listened[1] && !listened[3]);
        assert_int_equal(scene_port_find(p, "box0000001", "web"), 7500);
        assert_int_equal(scene_port_find(p, "box0000002", "web"), 0);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 0), 7504); /* those before rest */
        taken[3] = false;
        scene_ports_free(p);

        /* Another range drops what lies outside of it. */
        p = begin(s, 7501, 7503);
        assert_int_equal(scene_port_find(p, "box0000001", "web"), 0);
        assert_int_equal(scene_port_find(p, "box0000001", "api"), 7502);
        assert_int_equal(scene_port_find(p, "box0000002", "web"), 0);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 0), 7503);
        assert_int_equal(scene_port_give(p, "box0000001", &w, 0), 7501); /* round again */
        scene_ports_free(p);
}

static void test_freed_with_the_box(void **state)
{
        static const char *const names[] = { "web", "api", NULL }, *const others[] = { "db", NULL };
        struct wires w = wires_of(names), changed = wires_of(others);
        struct scratch *s = *state;

        insert_box(s, "box0000001");
        insert_box(s, "box0000002");
        struct scene_ports *p = begin(s, 7500, 7501);
        assert_int_equal(scene_port_give(p, "box0000001", &w, 0), 7500);
        assert_int_equal(scene_port_give(p, "box0000001", &w, 1), 7501);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 0), 0); /* full */
        assert_int_equal(boxes_set_state(s->db, "box0000001", "archived", "", NULL), 0);
        scene_ports_sweep(p);
        assert_true(listened[0] && listened[1]); /* archived boxes keep theirs */
        assert_int_equal(boxes_set_state(s->db, "box0000001", "deleted", "", NULL), 0);
        scene_ports_sweep(p);
        assert_true(!listened[0] && !listened[1]);
        owner_is(p, 7500, NULL, NULL);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 0), 7500);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 1), 7501);
        /* Restored with other services: the old ones' ports are free. */
        assert_int_not_equal(scene_port_give(p, "box0000002", &changed, 0), 0);
        assert_int_equal(scene_port_find(p, "box0000002", "web"), 0);
        assert_int_equal(listened[0] + listened[1], 1);
        scene_ports_free(p);

        /* Nobody listens: nothing is given. */
        p = scene_ports_new(s->db, 7500, 7501);
        assert_int_equal(scene_port_give(p, "box0000002", &w, 1), 0);
        scene_ports_free(p);
}

static void test_secrets_of_a_port(void **state)
{
        struct control c = { 0 };
        char one[SCENE_KEY_LEN + 1], other[SCENE_KEY_LEN + 1], key[SCENE_KEY_LEN + 1];

        (void) state;
        scene_key(&c, "box0000001", key);
        scene_port_key(&c, "pass", "box0000001", 7500, one);
        assert_int_equal(strspn(one, "abcdefghijklmnopqrstuvwxyz234567"), SCENE_KEY_LEN);
        assert_string_not_equal(one, key);
        scene_port_key(&c, "pass", "box0000001", 7501, other);
        assert_string_not_equal(one, other);
        scene_port_key(&c, "pass", "box0000002", 7500, other);
        assert_string_not_equal(one, other);
        scene_port_key(&c, "cookies", "box0000001", 7500, other);
        assert_string_not_equal(one, other);
        scene_port_key(&c, "pass", "box0000001", 7500, other);
        assert_string_equal(one, other);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ranges),
                cmocka_unit_test_setup_teardown(test_given_once_and_kept, scratch_setup, scratch_teardown),
                cmocka_unit_test_setup_teardown(test_freed_with_the_box, scratch_setup, scratch_teardown),
                cmocka_unit_test(test_secrets_of_a_port),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
