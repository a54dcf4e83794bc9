/* The layout of cgroup hierarchies, read from recorded texts of /proc/self/mountinfo and /proc/self/cgroup. */
#include "boxhost/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static const char pure_v2_mounts[] = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                                     "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char pure_v2_self[] = "0::/system.slice/thing.service\n";

static const char mixed_mounts[] = "31 22 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                                   "32 31 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                   "33 31 0:29 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
                                   "34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                   "35 31 0:31 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
                                   "36 31 0:32 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
                                   "37 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
                                   "38 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
static const char mixed_self[] = "9:name=systemd:/\n8:pids:/\n4:memory:/group/abc\n2:cpuacct:/\n1:cpu:/\n0::/user\n";

static const char v1_mounts[] =
        "32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "35 31 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
static const char v1_self[] = "4:memory:/docker/abc/inner\n2:cpu,cpuacct:/docker/abc\n1:freezer:/\n";

static const struct cg_hierarchy *with(const struct cg_layout *l, enum cg_controller c)
{
        for (size_t i = 0; i < l->n; i++) {
                if (l->h[i].controllers & 1U << c)
                        return &l->h[i];
        }
        return NULL;
}

static void test_pure_v2(void **state)
{
        struct cg_layout l;
        struct err e = { 0 };

        assert_int_equal(cg_layout_parse(pure_v2_mounts, pure_v2_self, "cpuset cpu io memory pids\n", &l, &e), 0);
        assert_int_equal(l.n, 1);
        assert_true(l.h[0].v2);
        assert_string_equal(l.h[0].mount, "/sys/fs/cgroup");
        assert_string_equal(l.h[0].own, "/system.slice/thing.service");
        assert_int_equal(l.h[0].controllers, 1U << CG_CPU | 1U << CG_MEMORY | 1U << CG_PIDS | 1U << CG_FREEZER);
        assert_int_equal(l.h[0].fd, -1);
}

static void test_mixed(void **state)
{
        struct cg_layout l;
        struct err e = { 0 };

        assert_int_equal(cg_layout_parse(mixed_mounts, mixed_self, "hugetlb\n", &l, &e), 0);
        assert_int_equal(l.n, 5); /* not devices, not the named one */
        assert_string_equal(with(&l, CG_MEMORY)->mount, "/sys/fs/cgroup/memory");
        assert_string_equal(with(&l, CG_MEMORY)->own, "/group/abc");
        assert_false(with(&l, CG_MEMORY)->v2);
        assert_string_equal(with(&l, CG_PIDS)->own, "/");
        assert_true(with(&l, CG_FREEZER)->v2);
        assert_string_equal(with(&l, CG_FREEZER)->mount, "/sys/fs/cgroup/unified");
        assert_string_equal(with(&l, CG_FREEZER)->own, "/user");
}

static void test_v1_comounted_and_partly_visible(void **state)
{
        struct cg_layout l;
        struct err e = { 0 };

        assert_int_equal(cg_layout_parse(v1_mounts, v1_self, "", &l, &e), 0);
        assert_int_equal(l.n, 3);
        assert_ptr_equal(with(&l, CG_CPU), with(&l, CG_CPUACCT));
        assert_string_equal(with(&l, CG_CPU)->own, "/docker/abc");
        assert_string_equal(with(&l, CG_MEMORY)->own, "/inner"); /* the mount shows /docker/abc as its top */
        assert_null(with(&l, CG_PIDS));
}

static void test_odd_texts(void **state)
{
        static const char *const texts[] = { "",
                                             "\n",
                                             "garbage",
                                             "1 2 3",
                                             "a b c d e f - cgroup",
                                             "a b c d e - cgroup2 x y\n",
                                             "1 1 0:1 / /x rw - cgroup cgroup rw,name=memory\n" };
        struct cg_layout l;

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                (void) cg_layout_parse(texts[i], texts[i], texts[i], &l, NULL);
        assert_int_equal(cg_layout_parse(texts[6], "", "", &l, NULL), 0);
        assert_int_equal(l.n, 0);
}

static void test_the_same_hierarchy_twice(void **state)
{
        char twice[2 * sizeof(pure_v2_mounts)];
        struct cg_layout l;

        memcpy(twice, pure_v2_mounts, sizeof(pure_v2_mounts) - 1);
        memcpy(twice + sizeof(pure_v2_mounts) - 1, pure_v2_mounts, sizeof(pure_v2_mounts));
        assert_int_equal(cg_layout_parse(twice, pure_v2_self, "cpu", &l, NULL), 0);
        assert_int_equal(l.n, 1);
}

static void test_a_path_that_is_too_long(void **state)
{
        char text[2048] = "1 1 0:1 / /";

        memset(text + strlen(text), 'x', 1500);
        memcpy(text + 1511, " rw - cgroup cgroup rw,cpu\n", 28);
        struct cg_layout l;
        struct err e = { 0 };
        assert_int_equal(cg_layout_parse(text, "", "", &l, &e), -ENAMETOOLONG);
        assert_non_null(strstr(err_text(&e), "cgroup"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pure_v2),
                cmocka_unit_test(test_mixed),
                cmocka_unit_test(test_v1_comounted_and_partly_visible),
                cmocka_unit_test(test_odd_texts),
                cmocka_unit_test(test_the_same_hierarchy_twice),
                cmocka_unit_test(test_a_path_that_is_too_long),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
