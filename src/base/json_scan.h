/*
 * json_scan: the strict pass over a text before json-c builds the tree; internal to json.c.
 * It knows all of RFC 8259, so what json-c tolerates beyond it never gets there.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/*
 * 0, or -EINVAL with position and reason, or -ENOMEM. ret_value is the text without the space around it; wide
 * receives, as size_t, the offsets in it where an integer ends that int64_t cannot hold. Time is linear in the text.
 */
int json_scan(struct str text, struct str *ret_value, struct buf *wide, struct err *e);
