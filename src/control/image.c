#include "control/control.h"
#include "control/pool.h"

#include "base/log.h"
#include "base/mem.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>

#define NAMES_MAX 400 /* bytes of names in an error */

static bool find(const struct json *images, const char *name, struct image_choice *ret)
{
        for (size_t i = 0; i < json_len(images); i++) {
                const struct json *image = json_at(images, i);

                if (!cstr_eq(json_get_str(image, "name", ""), name))
                        continue;
                (void) snprintf(ret->name, sizeof ret->name, "%s", name);
                (void) snprintf(ret->version, sizeof ret->version, "%s", json_get_str(image, "version", ""));
                return true;
        }
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

int coroutine_fn image_choose(struct control *c, const char *wanted, struct image_choice *ret, struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        struct image_choice usual;
        int r = c->driver->ops->images(c->driver, &answer, e);

        if (r < 0)
                return r;
        const struct json *images = json_get(answer, "images");
        const char *usual_name = json_get_str(answer, "default", "host");
        if (find(images, usual_name, &usual))
                pool_usual(c->pool, &usual);
        const char *name = wanted ? wanted : usual_name;
        return find(images, name, ret) ? 0 : not_there(images, name, usual_name, e);
}

static void coroutine_fn look_again(void *arg)
{
        struct image_choice usual;
        struct err e = { 0 };

        if (image_choose(arg, NULL, &usual, &e) < 0)
                log_warning("the images cannot be looked at: %s", err_text(&e));
}

void images_changed(void *control)
{
        (void) coro_start(look_again, control, CORO_STACK_DEFAULT, "images");
}
