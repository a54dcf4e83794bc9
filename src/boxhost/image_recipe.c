#include "boxhost/image_recipe.h"

#include "base/mem.h"
#include "base/str.h"

#include "image_files.h"

#include <errno.h>
#include <string.h>

#define PACKAGES_MAX 2000
#define PACKAGE_NAME_MAX 100
#define BYTES_MAX (128 << 10)
#define DISK_DEFAULT_MIB 1500
#define DISK_MAX_MIB (1 << 20)

void image_recipe_done(struct image_recipe *r)
{
        buf_done(&r->packages);
}

/* Debian policy 5.6.1; nothing else may reach apt, whose own patterns mean more than names. */
static bool package_ok(struct str s)
{
        if (s.n < 2 || s.n > PACKAGE_NAME_MAX || !c_is_alnum(s.p[0]))
                return false;
        for (size_t i = 0; i < s.n; i++) {
                if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '+' ||
                      s.p[i] == '-' || s.p[i] == '.'))
                        return false;
        }
        return true;
}

static int take_line(struct image_recipe *r, struct str line, unsigned number, struct err *e)
{
        if (str_starts(line, STR("%"))) {
                struct str value = line, key = str_cut(&value, ' ');
                if (!str_eq(key, STR("%disk")) || parse_u64(str_trim(value, " \t"), DISK_MAX_MIB, &r->disk_mib) < 0)
                        return err_set(e, -EINVAL, "line %u: `%.*s`: the only setting is `%%disk N`, in MiB", number,
                                       (int) min_size(line.n, 80), line.p);
                return 0;
        }
        if (!package_ok(line))
                return err_set(e, -EINVAL, "line %u: `%.*s` is no name of a package: one a line, such as `git`", number,
                               (int) min_size(line.n, 80), line.p);
        if (++r->count > PACKAGES_MAX)
                return err_set(e, -E2BIG, "more than %d packages", PACKAGES_MAX);
        if ((r->packages.len && buf_addc(&r->packages, ',') < 0) || buf_addstr(&r->packages, line) < 0)
                return err_set(e, -E2BIG, "the list is too long");
        return 0;
}

int image_recipe_parse(struct str text, struct image_recipe *ret, struct err *e)
{
        *ret = (struct image_recipe){ .packages = BUF_MAX(BYTES_MAX), .disk_mib = DISK_DEFAULT_MIB };
        for (unsigned number = 1; text.n > 0; number++) {
                struct str rest = str_cut(&text, '\n'), line = str_trim(str_cut(&rest, '#'), " \t\r");
                int r = line.n ? take_line(ret, line, number, e) : 0;
                if (r < 0) {
                        image_recipe_done(ret);
                        return r;
                }
        }
        return 0;
}

const char *image_recipe_file(const char *image, const char *name)
{
        for (size_t i = 0; i < image_files_count; i++) {
                if (cstr_eq(image_files[i].image, image) && cstr_eq(image_files[i].name, name))
                        return image_files[i].text;
        }
        return NULL;
}

bool image_recipe_known(const char *image)
{
        return image_recipe_file(image, "finish") != NULL;
}

void image_recipe_names(struct buf *b)
{
        for (size_t i = 0; i < image_files_count; i++) {
                if (cstr_eq(image_files[i].name, "finish"))
                        (void) buf_addf(b, "%s%s", b->len ? ", " : "", image_files[i].image);
        }
}

void image_recipe_releases(const char *image, struct buf *b)
{
        for (size_t i = 0; i < image_files_count; i++) {
                const char *name = image_files[i].name;
                if (cstr_eq(image_files[i].image, image) && !cstr_eq(name, "finish") && !cstr_eq(name, "setup"))
                        (void) buf_addf(b, "%s%s", b->len ? ", " : "", name);
        }
}
