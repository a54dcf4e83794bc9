#include "auth/params.h"

#include "base/mem.h"
#include "base/seal.h"
#include "base/utf8.h"
#include "http/url.h"

#include <errno.h>

int param_get(struct str query, const char *key, char **ret)
{
        _cleanup_secret_ struct buf value = BUF_MAX(FORM_MAX); /* forms carry passwords and secrets */
        _cleanup_buf_ struct buf name = BUF_MAX(FORM_MAX);
        struct str rest = query;
        int found = 0;

        while (rest.n) {
                struct str v = str_cut(&rest, '&');
                struct str raw = str_cut(&v, '=');

                buf_clear(&name);
                if (url_decode(raw, true, &name) < 0)
                        return -EINVAL;
                if (!str_eq(buf_str(&name), str_of(key)))
                        continue;
                if (found++)
                        return -EEXIST;
                (void) buf_room(&value, v.n); /* at once: growing would leave copies */
                if (url_decode(v, true, &value) < 0 || !utf8_valid(buf_str(&value)))
                        return -EINVAL;
        }
        if (!found)
                return 0;
        *ret = xstrndup(value.p ? value.p : "", value.len);
        return 1;
}

char *param_str(struct str query, const char *key)
{
        char *v = NULL;

        (void) param_get(query, key, &v);
        return v;
}

int param_add(struct buf *target, const char *key, const char *value)
{
        int r = buf_addf(target, "%c%s=", memchr(target->p, '?', target->len) ? '&' : '?', key);

        return r < 0 ? r : url_encode(target, str_of(value));
}

int coroutine_fn form_read(struct call *call, struct buf *body, struct err *e)
{
        struct str type = call_header(call, "Content-Type");
        struct str base = str_cut(&type, ';');

        if (!str_ieq(str_trim(base, " "), STR("application/x-www-form-urlencoded")))
                return err_set(e, -EINVAL, "a form is expected (application/x-www-form-urlencoded)");
        return call_read_all(call, body, e);
}
