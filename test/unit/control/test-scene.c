/* The host names of scenes: keys, labels, domains, and reading them back. */
#include "control/scene.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char origin[] = "http://127.0.0.1:7420";

static struct control control_with(const char *domain, unsigned char secret)
{
        struct control c = { .cfg = { .scene_domain = domain }, .origin = origin };

        memset(c.cfg.link_key, secret, sizeof c.cfg.link_key);
        return c;
}

static struct wires wires_of(const char *const *names)
{
        struct wires w = { .count = 0 };

        for (; names[w.count]; w.count++)
                (void) snprintf(w.wire[w.count].name, sizeof w.wire[0].name, "%s", names[w.count]);
        return w;
}

static void test_keys(void **state)
{
        struct control a = control_with(NULL, 1), b = control_with(NULL, 2);
        char one[SCENE_KEY_LEN + 1], again[SCENE_KEY_LEN + 1], other[SCENE_KEY_LEN + 1];

        (void) state;
        scene_key(&a, "box0000001", one);
        scene_key(&a, "box0000001", again);
        assert_string_equal(one, again);
        assert_int_equal(strlen(one), SCENE_KEY_LEN);
        assert_int_equal(strspn(one, "abcdefghijklmnopqrstuvwxyz234567"), SCENE_KEY_LEN);
        scene_key(&a, "box0000002", other);
        assert_string_not_equal(one, other);
        scene_key(&b, "box0000001", other);
        assert_string_not_equal(one, other);
        assert_true(scene_key_ok(&a, "box0000001", str_of(one)));
        assert_false(scene_key_ok(&a, "box0000002", str_of(one)));
        assert_false(scene_key_ok(&a, "box0000001", str_n(one, SCENE_KEY_LEN - 1)));
        assert_false(scene_key_ok(&a, "box0000001", STR("")));
        for (size_t i = 0; i < SCENE_KEY_LEN; i++) { /* every character counts, and none has a case */
                memcpy(again, one, sizeof one);
                again[i] = again[i] == 'a' ? 'b' : 'a';
                assert_false(scene_key_ok(&a, "box0000001", str_of(again)));
                memcpy(again, one, sizeof one);
                if (again[i] >= 'a')
                        again[i] = (char) (again[i] - 32);
                assert_true(scene_key_ok(&a, "box0000001", str_of(again)));
        }
}

static void test_labels(void **state)
{
        static const char *const names[] = { "web",
                                             "xn",
                                             "a--b-",
                                             "a-name-of-sixty-three-characters-which-is-what-a-label-may-have",
                                             "exactly-twenty-three-ch",
                                             NULL };
        struct control c = control_with(NULL, 1);
        struct wires w = wires_of(names);
        char label[SCENE_LABEL_MAX + 1];
        struct scene_name n;

        (void) state;
        for (size_t i = 0; i < w.count; i++) {
                scene_label(&c, "box0000001", &w, i, label);
                assert_in_range(strlen(label), 1, SCENE_LABEL_MAX);
                assert_int_not_equal(strncmp(label, "xn--", 4), 0);
                assert_true(scene_name_parse(str_of(label), &n));
                assert_true(str_eq(n.box, STR("box0000001")) && scene_key_ok(&c, "box0000001", n.key));
                assert_int_equal(scene_service_find(&w, n.service), i);
        }
        static const char *const bad[] = {
                "",         "web",       "web--box",     "--box--key",
                "a----key", "web-box-k", "------------", "a--0123456789012345678901234567890123--k"
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(scene_name_parse(str_of(bad[i]), &n) && n.key.n == SCENE_KEY_LEN);
        assert_int_equal(scene_service_find(&w, STR("5")), -ENOENT);
        assert_int_equal(scene_service_find(&w, STR("WEB")), 0);
        assert_int_equal(scene_service_find(&w, STR("")), -ENOENT);
}

static const char *origin_of(const char *domain)
{
        static const char *const names[] = { "web", NULL };
        static char text[300];
        _cleanup_buf_ struct buf b = BUF_MAX(400);
        struct control c = control_with(domain, 1);
        struct wires w = wires_of(names);

        assert_int_equal(scene_origin(&c, "box0000001", &w, 0, &b), 0);
        const char *dot = strchr(buf_cstr(&b), '.'), *sep = strstr(buf_cstr(&b), "://");
        (void) snprintf(text, sizeof text, "%.*s %s", (int) (sep - buf_cstr(&b)), buf_cstr(&b), dot);
        return text;
}

static void test_domains(void **state)
{
        static const struct {
                const char *domain, *host;
                bool is;
        } hosts[] = {
                { NULL, "a.localhost:7420", true },
                { NULL, "a.LOCALHOST", true },
                { NULL, "a.b.localhost", false },
                { NULL, "localhost:7420", false },
                { NULL, ".localhost", false },
                { NULL, "alocalhost", false },
                { NULL, "a.localhost.evil.example", false },
                { NULL, "", false },
                { NULL, "[::1]:7420", false },
                { "boxes.example.com", "a.boxes.example.com", true },
                { "boxes.example.com", "a.localhost", false },
                { "https://boxes.example.com:8443", "a.boxes.example.com:8443", true },
                { "https://boxes.example.com", "boxes.example.com", false },
        };

        (void) state;
        assert_string_equal(origin_of(NULL), "http .localhost:7420");
        assert_string_equal(origin_of("boxes.example.com"), "http .boxes.example.com:7420");
        assert_string_equal(origin_of("https://boxes.example.com"), "https .boxes.example.com");
        assert_string_equal(origin_of("https://boxes.example.com:8443"), "https .boxes.example.com:8443");
        assert_string_equal(origin_of("http://boxes.example.com"), "http .boxes.example.com");
        for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
                struct control c = control_with(hosts[i].domain, 1);
                struct str label = { NULL, 0 };

                assert_int_equal(scene_host_label(&c, str_of(hosts[i].host), &label), hosts[i].is);
                assert_true(!hosts[i].is || str_eq(label, STR("a")));
        }
        assert_true(scene_domain_ok("a.example") && scene_domain_ok("http://a.example:1") &&
                    scene_domain_ok("https://a"));
        static const char *const bad[] = { "",        "https://", "ftp://a", "a:0",   "a:",  "a/b",  "a..b c",
                                           "a:99999", ".a",       "a.",      "a@b.c", "a?b", "[::1]" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(scene_domain_ok(bad[i]));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_keys),
                cmocka_unit_test(test_labels),
                cmocka_unit_test(test_domains),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
