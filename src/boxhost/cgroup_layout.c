#include "boxhost/cgroup.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[CG_CONTROLLERS] = {
        [CG_CPU] = "cpu",   [CG_CPUACCT] = "cpuacct", [CG_MEMORY] = "memory",
        [CG_PIDS] = "pids", [CG_FREEZER] = "freezer",
};

/* Bits of the controllers named in a list. */
static unsigned controllers_of(struct str list, char sep)
{
        unsigned bits = 0;

        while (list.n > 0) {
                struct str word = str_trim(str_cut(&list, sep), " \n");
                for (unsigned c = 0; c < CG_CONTROLLERS; c++) {
                        if (str_eq(word, str_of(names[c])))
                                bits |= 1U << c;
                }
        }
        return bits;
}

static bool take(char *out, size_t n, struct str s)
{
        if (s.n >= n)
                return false;
        if (s.n > 0)
                memcpy(out, s.p, s.n);
        out[s.n] = '\0';
        return true;
}

/* The path of /proc/self/cgroup for v2 (line 0::), or for the hierarchy that holds a v1 controller. */
static struct str own_path(const char *self, bool v2, unsigned controllers)
{
        struct str text = str_of(self);

        while (text.n > 0) {
                struct str line = str_cut(&text, '\n');
                struct str number = str_cut(&line, ':');
                struct str list = str_cut(&line, ':');
                if (v2 ? (str_eq(number, STR("0")) && list.n == 0) : (controllers_of(list, ',') & controllers) != 0)
                        return line;
        }
        return STR("/");
}

/*
 * The cgroup of this process as a path below the mount. A mount may show only a part of the hierarchy (root is not "/",
 * as in a container without a cgroup namespace).
 */
static struct str below_root(struct str path, struct str root)
{
        if (str_eq(root, STR("/")))
                return path;
        if (str_starts(path, root) && (path.n == root.n || path.p[root.n] == '/')) {
                path.p += root.n;
                path.n -= root.n;
                return path.n > 0 ? path : STR("/");
        }
        return STR("/");
}

/* One line of mountinfo: "36 35 98:0 /root /mount opts … - type source super". */
static int parse_line(struct str line, const char *self, const char *v2_controllers, struct cg_layout *ret)
{
        struct str field[6], type, super, root, mount;
        struct cg_hierarchy *h;
        unsigned bits;
        bool v2;

        for (size_t i = 0; i < ARRAY_LEN(field); i++)
                field[i] = str_cut(&line, ' ');
        root = field[3];
        mount = field[4];
        do
                type = str_cut(&line, ' ');
        while (type.n > 0 && !str_eq(type, STR("-")));
        type = str_cut(&line, ' ');
        (void) str_cut(&line, ' ');
        super = line;
        v2 = str_eq(type, STR("cgroup2"));
        if (!v2 && !str_eq(type, STR("cgroup")))
                return 0;
        bits = v2 ? controllers_of(str_of(v2_controllers), ' ') | 1U << CG_FREEZER : controllers_of(super, ',');
        if (bits == 0)
                return 0;
        for (size_t i = 0; i < ret->n; i++) { /* mounted twice: the first place is enough */
                if (ret->h[i].v2 == v2 && (v2 || ret->h[i].controllers == bits))
                        return 0;
        }
        if (ret->n == CG_HIERARCHIES_MAX)
                return -E2BIG;
        h = &ret->h[ret->n];
        *h = (struct cg_hierarchy){ .v2 = v2, .controllers = bits, .fd = -1 };
        if (!take(h->mount, sizeof(h->mount), mount) ||
            !take(h->own, sizeof(h->own), below_root(own_path(self, v2, bits), root)))
                return -ENAMETOOLONG;
        ret->n++;
        return 0;
}

int cg_layout_parse(const char *mountinfo, const char *self, const char *v2_controllers, struct cg_layout *ret,
                    struct err *e)
{
        struct str text = str_of(mountinfo);

        *ret = (struct cg_layout){ .n = 0 };
        while (text.n > 0) {
                int r = parse_line(str_cut(&text, '\n'), self, v2_controllers, ret);
                if (r < 0)
                        return err_sys(e, r, "cannot read the cgroup mounts");
        }
        return 0;
}
