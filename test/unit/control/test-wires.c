/* The wiring table: what rows hold, what each change does to it, and what is refused. */
#include "scratch.h"
#include "control/external.h"
#include "control/wires.h"

#include "base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static struct wires read_table(const char *services, const char *wiring)
{
        struct box_row row = { .services = (char *) services, .wiring = (char *) wiring };
        struct wires w;

        wires_read(&row, &w);
        return w;
}

static void test_rows_are_read_as_they_were_written(void **state)
{
        static const char services[] = "[{\"name\":\"a\",\"port\":80,\"targetPort\":3000,\"web\":true},"
                                       "{\"name\":\"b\",\"port\":5432,\"mode\":\"external\"},"
                                       "{\"name\":\"c\",\"port\":1,\"fromBox\":\"abcd\"}]";
        static const char wiring[] = "{\"externalBaseUrl\":\"http://x\",\"scenePaths\":[\"/api\",\"/b/\"]}";
        _cleanup_wires_ struct wires w = read_table(services, wiring);
        _cleanup_free_ char *s = wires_services_text(&w), *o = wires_wiring_text(&w);

        (void) state;
        assert_int_equal(w.count, 3);
        assert_int_equal(w.wire[0].mode, WIRE_BOX);
        assert_int_equal(w.wire[0].target_port, 3000);
        assert_true(w.wire[0].web && w.wire[0].target_given);
        assert_int_equal(w.wire[1].mode, WIRE_EXTERNAL);
        assert_int_equal(w.wire[1].target_port, 5432);
        assert_false(w.wire[1].target_given);
        assert_int_equal(w.wire[2].mode, WIRE_LINK);
        assert_string_equal(w.wire[2].from_box, "abcd");
        assert_string_equal(w.external_base_url, "http://x");
        assert_int_equal(w.scene_path_count, 2);
        assert_string_equal(s, services);
        assert_string_equal(o, wiring);
        assert_ptr_equal(wire_find(&w, "b"), &w.wire[1]);
        assert_null(wire_find(&w, "d"));
}

static void test_broken_rows_hold_what_is_whole(void **state)
{
        static const char *const none[] = { "",
                                            "x",
                                            "{}",
                                            "[1,null,[]]",
                                            "[{\"name\":\"a\"}]",
                                            "[{\"port\":1}]",
                                            "[{\"name\":\"a\",\"port\":0}]",
                                            "[{\"name\":\"a\",\"port\":65536}]" };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(none); i++) {
                _cleanup_wires_ struct wires w = read_table(none[i], none[i]);

                assert_int_equal(w.count, 0);
                assert_null(w.external_base_url);
        }
        _cleanup_wires_ struct wires w = read_table(NULL, NULL);
        assert_int_equal(w.count, 0);
}

static int change(struct wires *w, struct wire_change q, const char *words)
{
        struct err e = { 0 };
        _cleanup_free_ char *before = wires_services_text(w);
        int r = wires_change(w, &q, &e);

        if (r < 0) {
                _cleanup_free_ char *after = wires_services_text(w);

                assert_string_equal(before, after);
                assert_non_null(words);
                if (!strstr(err_text(&e), words))
                        fail_msg("%s in %s", words, err_text(&e));
        }
        return r;
}
#define CHANGE(w, words, ...) change(w, (struct wire_change){ __VA_ARGS__ }, words)

static void test_changes(void **state)
{
        _cleanup_wires_ struct wires w = { .count = 0 };

        (void) state;
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .port = 80, .target_port = 3000), 0);
        assert_int_equal(w.wire[0].mode, WIRE_BOX);
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .has_web = true, .web = true), 0);
        assert_true(w.wire[0].web);
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .port = 81, .from_box = "abcd"), 0);
        assert_int_equal(w.wire[0].mode, WIRE_LINK);
        assert_true(w.wire[0].web);
        assert_int_equal(w.wire[0].target_port, 81);
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .mode = "box"), 0);
        assert_int_equal(w.wire[0].mode, WIRE_BOX);
        assert_string_equal(w.wire[0].from_box, "");
        assert_int_equal(CHANGE(&w, "externalBaseUrl", .service = "web", .mode = "external"), -EINVAL);
        assert_int_equal(CHANGE(&w, "sideways", .service = "web", .mode = "sideways"), -EINVAL);
        assert_int_equal(CHANGE(&w, "localhost", .service = "localhost", .port = 1), -EINVAL);
        assert_int_equal(CHANGE(&w, "no service \"db\" (it has web)", .service = "db", .mode = "box"), -EINVAL);
        assert_int_equal(CHANGE(&w, "`port` is required", .service = "db", .target_port = 1), -EINVAL);
        assert_int_equal(CHANGE(&w, "`port` is required", .service = "web", .from_box = "abcd"), -EINVAL);
        assert_int_equal(CHANGE(&w, "exclude", .service = "web", .port = 1, .from_box = "abcd", .mode = "box"),
                         -EINVAL);
        /* declaring a linked name anew makes it the box's own */
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .port = 80, .from_box = "abcd"), 0);
        assert_int_equal(CHANGE(&w, NULL, .service = "web", .port = 80), 0);
        assert_int_equal(w.wire[0].mode, WIRE_BOX);
}

static void test_with_an_external_address_names_begin_there(void **state)
{
        _cleanup_wires_ struct wires w = { .external_base_url = xstrdup("http://x") };

        (void) state;
        assert_int_equal(CHANGE(&w, NULL, .service = "a", .port = 80), 0);
        assert_int_equal(w.wire[0].mode, WIRE_EXTERNAL);
        assert_int_equal(CHANGE(&w, NULL, .service = "a", .mode = "box"), 0);
        assert_int_equal(CHANGE(&w, NULL, .service = "a", .port = 81), 0);
        assert_int_equal(w.wire[0].mode, WIRE_BOX); /* a change of ports is none of the mode */
        assert_int_equal(CHANGE(&w, NULL, .service = "b", .port = 80, .mode = "box"), 0);
        assert_int_equal(w.wire[1].mode, WIRE_BOX);
}

static void test_so_many_and_no_more(void **state)
{
        _cleanup_wires_ struct wires w = { .count = 0 };
        char name[8];

        (void) state;
        for (int i = 0; i < WIRES_MAX; i++) {
                (void) snprintf(name, sizeof name, "n%d", i);
                assert_int_equal(CHANGE(&w, NULL, .service = name, .port = 1), 0);
        }
        assert_int_equal(CHANGE(&w, "32", .service = "more", .port = 1), -EINVAL);
        assert_int_equal(CHANGE(&w, NULL, .service = "n31", .port = 2), 0);
}

static int set_paths(struct wires *w, const char *text)
{
        _cleanup_json_ struct json *j = NULL;

        assert_int_equal(json_parse(text, strlen(text), &j, NULL), 0);
        return wires_set_scene_paths(w, j, NULL);
}

static void test_scene_paths(void **state)
{
        static const char *const bad[] = { "[\"api\"]",     "[\"\"]",        "[\"/a?b\"]",    "[\"/a#\"]",
                                           "[\"//a\"]",     "[\"/a//\"]",    "[\"/a/../b\"]", "[\"/..\"]",
                                           "[\"/./a\"]",    "[\"/a b\"]",    "[\"/%41\"]",    "[7]",
                                           "[\"/a\\\\b\"]", "[\"/\\u007f\"]" };
        _cleanup_wires_ struct wires w = { .count = 0 };

        (void) state;
        assert_int_equal(set_paths(&w, "[\"/api\"]"), -EINVAL);
        assert_int_equal(set_paths(&w, "[]"), 0);
        w.external_base_url = xstrdup("http://x");
        assert_int_equal(set_paths(&w, "[\"/api\",\"/auth/\",\"/é\"]"), 0);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(set_paths(&w, bad[i]), -EINVAL);
        assert_true(wires_scene_path(&w, STR("/api")));
        assert_true(wires_scene_path(&w, STR("/api/")));
        assert_true(wires_scene_path(&w, STR("/api/v1/x")));
        assert_true(wires_scene_path(&w, STR("/auth/x")));
        assert_false(wires_scene_path(&w, STR("/apis")));
        assert_false(wires_scene_path(&w, STR("/auth")));
        assert_false(wires_scene_path(&w, STR("/")));
        assert_false(wires_scene_path(&w, STR("/x/api")));
        assert_int_equal(set_paths(&w, "[\"/\"]"), 0);
        assert_true(wires_scene_path(&w, STR("/anything")));
}

static void test_external_addresses(void **state)
{
        static const char *const allow[] = { "127.0.0.0/8", "10.1.0.0/16", NULL };
        static const char *const good[] = { "http://example.com", "https://example.com:8443/base/", "http://1.1.1.1",
                                            "http://127.0.0.1:80", "http://10.1.2.3/x" };
        static const char *const bad[] = { "",
                                           "example.com",
                                           "ftp://example.com",
                                           "http://",
                                           "http://u:p@example.com",
                                           "http://example.com/?q",
                                           "http://example.com?q",
                                           "http://example.com/#f",
                                           "http://example.com/a/../b",
                                           "http://example.com/a/..",
                                           "http://example.com//",
                                           "http://example.com:0",
                                           "http://10.2.0.1",
                                           "http://169.254.169.254",
                                           "http://[::1]",
                                           "http://[::ffff:127.0.0.1]",
                                           "http://[fe80::1]",
                                           "http://0.0.0.0" };
        struct control c = { .cfg.allow_net = allow };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                _cleanup_free_ char *url = NULL;

                if (external_url_check(&c, good[i], &url, NULL) < 0)
                        fail_msg("%s", good[i]);
                assert_false(str_ends(str_of(url), STR("/")));
        }
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                _cleanup_free_ char *url = NULL;
                struct err e = { 0 };

                if (external_url_check(&c, bad[i], &url, &e) == 0)
                        fail_msg("%s", bad[i]);
                assert_non_null(strstr(err_text(&e), "externalBaseUrl"));
                assert_null(strstr(err_text(&e), "u:p"));
        }
        c.cfg.allow_net = NULL;
        assert_int_equal(external_address_check(&c, "127.0.0.1", NULL), -EACCES);
        assert_int_equal(external_address_check(&c, "1.1.1.1", NULL), 0);
        assert_int_equal(external_address_check(&c, "no address", NULL), -EACCES);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows_are_read_as_they_were_written),
                cmocka_unit_test(test_broken_rows_hold_what_is_whole),
                cmocka_unit_test(test_changes),
                cmocka_unit_test(test_with_an_external_address_names_begin_there),
                cmocka_unit_test(test_so_many_and_no_more),
                cmocka_unit_test(test_scene_paths),
                cmocka_unit_test(test_external_addresses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
