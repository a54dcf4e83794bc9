/*
 * err: errors as values.
 *
 * A function that can fail returns 0 (or a non-negative result) on success and a negative errno on
 * failure, and takes a `struct err *` as its last argument that receives a sentence for a person.
 * The object is plain storage on the caller's stack: nothing to free, NULL is accepted where the
 * text is of no use. Nothing here suspends.
 */
#pragma once

#include <stdarg.h>

#define ERR_MSG_MAX 512

struct err {
        int code;              /* negative errno, 0 when unset */
        char msg[ERR_MSG_MAX]; /* UTF-8, always NUL terminated, cut when too long */
};

/* Stores code (a negative errno) and a formatted message; returns code, so `return err_set(...)` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_setv(struct err *e, int code, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* Like err_set with ": <strerror(-code)>" appended. */
int err_sys(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " before the message that is there; returns e->code (or -EINVAL when e is NULL). */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The message, or strerror of the code when no message was set; never NULL. */
const char *err_text(const struct err *e);
