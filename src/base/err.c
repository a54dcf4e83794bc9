#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int err_setv(struct err *e, int code, const char *fmt, va_list ap)
{
        if (e) {
                e->code = code;
                (void) vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        }
        return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        (void) err_setv(e, code, fmt, ap);
        va_end(ap);
        return code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
        char text[ERR_MSG_MAX];
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        return err_set(e, code, "%s: %s", text, strerror(-code));
}

int err_wrap(struct err *e, const char *fmt, ...)
{
        char context[ERR_MSG_MAX / 2];
        char inner[ERR_MSG_MAX];
        va_list ap;

        if (!e)
                return -EINVAL;
        va_start(ap, fmt);
        (void) vsnprintf(context, sizeof context, fmt, ap);
        va_end(ap);
        memcpy(inner, e->msg, sizeof inner);
        /* Cutting the tail of a long message is fine; the context in front is what tells where. */
        int n = snprintf(e->msg, sizeof e->msg, "%s: ", context);
        size_t used = n < 0 ? 0 : (size_t) n;
        if (used < sizeof e->msg)
                (void) snprintf(e->msg + used, sizeof e->msg - used, "%.*s", (int) (sizeof e->msg - used - 1), inner);
        return e->code;
}

const char *err_text(const struct err *e)
{
        if (!e)
                return "unknown error";
        if (e->msg[0])
                return e->msg;
        return e->code ? strerror(-e->code) : "no error";
}
