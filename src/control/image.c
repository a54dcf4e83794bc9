#include "control/control.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

#define NAMES_MAX 400 /* bytes of names in an error */

static bool is_there(const struct json *images, const char *name)
{
        for (size_t i = 0; i < json_len(images); i++)
                if (cstr_eq(json_get_str(json_at(images, i), "name", ""), name))
                        return true;
        return false;
}

static int not_there(const struct json *images, const char *name, const char *usual, struct err *e)
{
        _cleanup_buf_ struct buf names = BUF_MAX(NAMES_MAX);

        for (size_t i = 0; i < json_len(images); i++)
                if (buf_addf(&names, "%s%s", i ? ", " : "", json_get_str(json_at(images, i), "name", "?")) < 0) {
                        (void) buf_adds(&names, ", …");
                        break;
                }
        return err_set(
                e, -EINVAL,
                "`image`: there is no image \"%.64s\" here; there are %s, and \"%s\" is the default; nothing was "
                "started",
                name, buf_cstr(&names), usual);
}

int coroutine_fn image_choose(struct control *c, const char *wanted, char ret[static IMAGE_NAME_LEN], struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        int r = c->driver->ops->images(c->driver, &answer, e);

        if (r < 0)
                return r;
        const struct json *images = json_get(answer, "images");
        const char *usual = json_get_str(answer, "default", "host");
        const char *name = wanted ? wanted : usual;
        if (!is_there(images, name))
                return not_there(images, name, usual, e);
        (void) snprintf(ret, IMAGE_NAME_LEN, "%s", name);
        return 0;
}
