/*
 * glob: the patterns of `exclude`, with the meaning they have in a .gitignore file: without a slash inside, any
 * component at any depth; with one, anchored at the top; `*` and `?` stay inside a component, `**` crosses them, a
 * trailing slash means folders only, and what matches a folder covers everything in it. Matching takes time in
 * O(pattern × path), whatever the pattern. Pure; nothing here suspends.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#define GLOB_PATTERN_MAX 1024
#define GLOBS_MAX 1000

struct glob {
        char *text; /* without leading and trailing slashes */
        bool anchored, folder_only;
};

struct globs {
        struct glob *v;
        size_t n;
};

void globs_done(struct globs *g);
/* -EINVAL for an empty, negated ("!x") or overlong pattern. */
int globs_add(struct globs *g, const char *pattern, struct err *e);
/* True when path (relative, raw bytes) or a folder above it matches; is_dir tells what path itself is. */
bool globs_match(const struct globs *g, struct str path, bool is_dir);

/* One component against one pattern component: *, ?, [a-z], [!a-z], \x. */
bool glob_component(struct str pattern, struct str name);
