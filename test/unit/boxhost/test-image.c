/* Images: lists of packages, apt's sources and settings, and what a build's output says. */
#include "boxhost/image.h"
#include "boxhost/image_progress.h"
#include "boxhost/image_recipe.h"
#include "boxhost/image_sources.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static void test_versions(void **state)
{
        assert_true(image_version_ok("v-abc123"));
        assert_false(image_version_ok("v-"));
        assert_false(image_version_ok("rootfs"));
        assert_false(image_version_ok("v-../../etc"));
        assert_false(image_version_ok("v-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void test_a_list(void **state)
{
        struct image_recipe r;
        struct err e = { 0 };

        assert_int_equal(image_recipe_parse(STR("# words\n%disk 77\ngit # one\n\n  g++\r\nlibc6.1-dev"), &r, &e), 0);
        assert_string_equal(buf_cstr(&r.packages), "git,g++,libc6.1-dev");
        assert_int_equal(r.count, 3);
        assert_int_equal(r.disk_mib, 77);
        image_recipe_done(&r);
        assert_int_equal(image_recipe_parse(STR(""), &r, &e), 0);
        assert_int_equal(r.count, 0);
        image_recipe_done(&r);
}

static void test_bad_lists(void **state)
{
        static const struct {
                const char *text, *says;
        } bad[] = { { "git\n?essential", "line 2" },
                    { "git,curl", "git,curl" },
                    { "-o", "-o" },
                    { "Git", "Git" },
                    { "g", "`g`" },
                    { "%disk", "%disk" },
                    { "%disk 99999999999", "%disk" },
                    { "%hook rm", "%disk N" },
                    { "git curl", "git curl" },
                    { "a\x1b[2Jb", "line 1" },
                    { "./local.deb", "./local.deb" },
                    { "git=1.0", "git=1.0" } };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct image_recipe r;
                struct err e = { 0 };
                assert_int_equal(image_recipe_parse(str_of(bad[i].text), &r, &e), -EINVAL);
                assert_non_null(strstr(e.msg, bad[i].says));
        }
}

static void test_our_own_recipes(void **state)
{
        _cleanup_buf_ struct buf releases = BUF_MAX(256);
        static const char *const names[] = { "bookworm", "trixie" };

        assert_true(image_recipe_known("debian"));
        assert_false(image_recipe_known("host"));
        image_recipe_releases("debian", &releases);
        assert_string_equal(buf_cstr(&releases), "bookworm, trixie");
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                struct image_recipe r;
                struct err e = { 0 };
                assert_int_equal(image_recipe_parse(str_of(image_recipe_file("debian", names[i])), &r, &e), 0);
                assert_true(r.count > 20 && r.disk_mib > 1000);
                assert_non_null(strstr(buf_cstr(&r.packages), "chromium"));
                image_recipe_done(&r);
        }
}

static bool is_known(const char *release, void *arg)
{
        (void) arg;
        return strcmp(release, "bookworm") == 0 || strcmp(release, "trixie") == 0;
}

static void test_sources(void **state)
{
        static const char text[] =
                "somebody|nodistro|nodistro|main|/usr/share/keyrings/other.gpg|https://packages.test/node/\n"
                "Debian|bookworm|stable|main|$(SIGNED_BY)|http://mirror.test/debian/\n"
                "Debian|bookworm|stable|main|$(SIGNED_BY)|http://mirror.test/debian/\n"
                "Debian|bookworm|stable|non-free|$(SIGNED_BY)|http://mirror.test/debian/\n"
                "Debian|bookworm-updates|bookworm-updates|main|/etc/apt/keyrings/own.gpg|http://mirror.test/debian/\n"
                "Debian-Security|bookworm-security|bookworm-security|main|$(SIGNED_BY)|http://mirror.test/security/\n"
                "Debian|trixie|trixie|main|$(SIGNED_BY)|http://mirror.test/debian/\n"
                "Docker CE|bookworm|bookworm|stable|/etc/apt/keyrings/docker.asc|https://download.test/\n";
        struct image_sources s;
        struct err e = { 0 };
        const char *lines;

        image_sources_init(&s);
        assert_int_equal(image_sources_parse(&s, str_of(text), is_known, NULL, &e), 0);
        assert_string_equal(s.release, "bookworm");
        lines = buf_cstr(&s.lines);
        assert_non_null(strstr(lines, "http://mirror.test/debian/ stable main\n"));
        assert_non_null(strstr(
                lines, "deb [signed-by=/etc/apt/keyrings/own.gpg] http://mirror.test/debian/ bookworm-updates main\n"));
        assert_non_null(strstr(lines, "http://mirror.test/security/ bookworm-security main\n"));
        assert_null(strstr(lines, "packages.test"));
        assert_null(strstr(lines, "download.test"));
        assert_null(strstr(lines, "trixie"));
        assert_null(strstr(lines, "$("));
        assert_ptr_equal(strstr(strstr(lines, " stable ") + 1, " stable "), NULL);
        assert_string_equal(buf_cstr(&s.keys), "/etc/apt/keyrings/own.gpg\n");
        image_sources_done(&s);
}

static void test_no_sources(void **state)
{
        static const char *const texts[] = { "", "\n\n", "|||||",
                                             "Ubuntu|jammy|jammy|main|$(SIGNED_BY)|http://mirror.test/\n",
                                             "Debian|buster|buster|main|$(SIGNED_BY)|http://mirror.test/\n" };

        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                struct image_sources s;
                struct err e = { 0 };
                image_sources_init(&s);
                assert_int_equal(image_sources_parse(&s, str_of(texts[i]), is_known, NULL, &e), -ENOENT);
                assert_non_null(strstr(e.msg, "/etc/apt"));
                image_sources_done(&s);
        }
}

static void test_settings(void **state)
{
        static const char text[] = "APT::Architecture \"amd64\";\nAcquire::http \"\";\n"
                                   "Acquire::http::Proxy \"http://name:secret@proxy.test:3128\";\n"
                                   "Acquire::https::Proxy \"http://proxy.test:3128\";\n"
                                   "Acquire::https::mirror.test::Proxy \"http://127.0.0.1:3142\";\n"
                                   "Acquire::https::mirror.test::SslKey \"/etc/ssl/private/me.pem\";\n"
                                   "Acquire::Check-Valid-Until \"false\";\nDPkg::Post-Invoke:: \"rm -rf /\";\n";
        struct image_sources s;

        image_sources_init(&s);
        image_settings_parse(&s, str_of(text));
        assert_non_null(strstr(buf_cstr(&s.settings), "name:secret@proxy.test"));
        assert_non_null(strstr(buf_cstr(&s.settings), "SslKey"));
        assert_non_null(strstr(buf_cstr(&s.settings), "Install-Recommends"));
        assert_null(strstr(buf_cstr(&s.settings), "Post-Invoke"));
        assert_null(strstr(buf_cstr(&s.kept), "secret"));
        assert_null(strstr(buf_cstr(&s.kept), "SslKey"));
        assert_null(strstr(buf_cstr(&s.kept), "127.0.0.1"));
        assert_non_null(strstr(buf_cstr(&s.kept), "Acquire::https::Proxy \"http://proxy.test:3128\";\n"));
        assert_non_null(strstr(buf_cstr(&s.kept), "Acquire::Check-Valid-Until \"false\";\n"));
        image_sources_done(&s);
}

static void feed(struct image_progress *p, const char *text)
{
        for (struct str rest = str_of(text); rest.n > 0;)
                (void) image_progress_line(p, str_cut(&rest, '\n'));
}

static void test_progress(void **state)
{
        struct image_progress p;

        image_progress_init(&p);
        assert_non_null(p.stage);
        feed(&p, "I: running apt-get update...\nGet:1 http://mirror.test bookworm InRelease [151 kB]\n");
        assert_string_equal(p.stage, "reading the package lists");
        assert_int_equal(p.total, 0);
        feed(&p, "0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded.\nNeed to get 448 MB of archives.\n"
                 "After this operation, 1,656 MB of additional disk space will be used.\nGet:1 http://mirror.test git "
                 "[1 kB]\n");
        assert_string_equal(p.stage, "downloading packages");
        assert_int_equal(p.done, 1);
        assert_int_equal(p.total, 3);
        assert_true(p.disk_bytes == 1656000000ULL);
        feed(&p, "Unpacking git (1) ...\nSetting up git (1) ...\nUnpacking curl (1) ...\n");
        assert_string_equal(p.stage, "unpacking packages");
        assert_int_equal(p.done, 2);
        feed(&p, "  Upgrading: 0, Installing: 811, Removing: 0, Not Upgrading: 0\n  Space needed: 2.5 kB / 9 GB "
                 "available\n");
        assert_int_equal(p.packages, 811);
        assert_true(p.disk_bytes == 1656002000ULL);
        feed(&p, "Setting up a (1) ...\nI: cleaning package lists and apt cache...\n");
        assert_string_equal(p.stage, "cleaning up");
        assert_int_equal(p.kind, FAULT_OTHER);
        assert_int_equal(p.fault[0], '\0');
}

static void test_faults(void **state)
{
        static const struct {
                const char *text;
                enum image_fault kind;
                const char *fault, *advice;
        } cases[] = {
                { "Err:1 http://mirror.test bookworm InRelease\n  Temporary failure resolving 'mirror.test'\nE: "
                  "mmdebstrap failed to run",
                  FAULT_NETWORK, "Temporary failure resolving", "apt-get update" },
                { "E: Unable to locate package nope\nE: run_chroot failed", FAULT_PACKAGE, "nope",
                  "does not have that package" },
                { "dpkg: error processing archive\nE: cannot copy: No space left on device", FAULT_SPACE, "No space",
                  "--state" },
                { "W: GPG error: NO_PUBKEY 0123\nE: x", FAULT_KEY, "NO_PUBKEY", "debian-archive-keyring" },
                { "E: first\nE: second\nE: mmdebstrap failed to run", FAULT_OTHER, "E: first", "log" },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct image_progress p;
                image_progress_init(&p);
                feed(&p, cases[i].text);
                assert_int_equal(p.kind, cases[i].kind);
                assert_non_null(strstr(p.fault, cases[i].fault));
                assert_non_null(strstr(image_progress_advice(&p), cases[i].advice));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_versions),  cmocka_unit_test(test_a_list),
                cmocka_unit_test(test_bad_lists), cmocka_unit_test(test_our_own_recipes),
                cmocka_unit_test(test_sources),   cmocka_unit_test(test_no_sources),
                cmocka_unit_test(test_settings),  cmocka_unit_test(test_progress),
                cmocka_unit_test(test_faults),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
