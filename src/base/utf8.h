/* utf8: validation (RFC 3629) and repair. Nothing here suspends. */
#pragma once

#include "base/buf.h"

bool utf8_valid(struct str s);
/* Length of the valid sequence at s.p (1–4), 0 when none starts there (or it is cut off). */
size_t utf8_seq(struct str s);
/* Appends s with every invalid byte sequence replaced by U+FFFD. */
int utf8_repair(struct buf *out, struct str s);
/* Largest prefix of at most max bytes that does not end inside a sequence. */
struct str utf8_prefix(struct str s, size_t max);
