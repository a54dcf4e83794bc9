/* params: the parameters of a query string or a form body (application/x-www-form-urlencoded). */
#pragma once

#include "http/call.h"

/* 1 and the value (allocated), 0 when absent, -EINVAL when malformed, -EEXIST when given twice (RFC 6749 §3.1 forbids
 * it). */
int param_get(struct str query, const char *key, char **ret);
/* The value, or NULL when absent, malformed or given twice. */
char *param_str(struct str query, const char *key);
/* Appends "key=value" with its separator ("?" when target has none yet, else "&"). */
int param_add(struct buf *target, const char *key, const char *value);

#define FORM_MAX ((size_t) 64 << 10)
/* Reads a form body. -EINVAL for another content type, -EMSGSIZE. */
int coroutine_fn form_read(struct call *call, struct buf *body, struct err *e);
