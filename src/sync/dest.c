#include "sync/dest.h"
#include "base/str.h"

#include <errno.h>

#define HELP "give a path below /work, for example \"repo\" or \"/work/repo\""

static int add_component(struct dest *d, size_t *len, struct str c, const char *whole, struct err *e)
{
        if (str_eq(c, STR("..")))
                return err_set(e, -EINVAL, "`dest` must stay inside /work, got \"%.200s\": %s", whole, HELP);
        if (c.n == 0 || str_eq(c, STR(".")))
                return 0;
        if (c.n > 255 || *len + c.n + 1 > GUEST_PATH_MAX)
                return err_set(e, -EINVAL, "`dest` is too long: %s", HELP);
        if (*len)
                d->path[(*len)++] = '/';
        memcpy(d->path + *len, c.p, c.n);
        *len += c.n;
        d->path[*len] = '\0';
        return 0;
}

int dest_parse(const char *s, struct dest *ret, struct err *e)
{
        struct str rest = str_of(s);
        size_t len = 0;

        *ret = (struct dest){ 0 };
        if (rest.n == 0)
                return err_set(e, -EINVAL, "`dest` is required: %s", HELP);
        if (s[0] == '~')
                return err_set(e, -EINVAL,
                               "`dest` must not start with ~, got \"%.200s\": a box has no home of yours; %s", s, HELP);
        if (s[0] == '/') {
                if (!str_eq(rest, STR("/work")) && !str_starts(rest, STR("/work/")))
                        return err_set(e, -EINVAL, "`dest` must be below /work, got \"%.200s\": %s", s, HELP);
                rest = str_n(s + 5, rest.n - 5);
        }
        ret->folder = s[str_of(s).n - 1] == '/';
        while (rest.n) {
                int r = add_component(ret, &len, str_cut(&rest, '/'), s, e);
                if (r < 0)
                        return r;
        }
        if (len == 0)
                ret->folder = true;
        return 0;
}

const char *dest_base(const struct dest *d)
{
        const char *slash = strrchr(d->path, '/');

        return slash ? slash + 1 : d->path;
}

size_t dest_parent_len(const struct dest *d)
{
        const char *slash = strrchr(d->path, '/');

        return slash ? (size_t) (slash - d->path) : 0;
}
