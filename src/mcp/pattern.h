/*
 * pattern: the regular expressions that tool schemas may use; internal to schema.c.
 *
 * ^ atom… $ where an atom is a character, an escaped character or a class of ASCII characters and ranges, with an
 * optional
 * *, +, ?, {m}, {m,} or {m,n}. Matching takes time linear in text times atoms, so no argument can make it slow; that is
 * why libc's regcomp is not used. Nothing here suspends.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct pattern;

int pattern_compile(const char *text, struct pattern **ret, struct err *e); /* -EINVAL: outside the subset */
void pattern_free(struct pattern *p);
int pattern_match(const struct pattern *p, struct str s); /* 1, 0, or -ENOMEM */
