/*
 * scan: looks at the files of a tree: kind, size and digest of each, and walks plain folders.
 * The work is blocking and runs on the thread pool; scan_tree suspends its caller meanwhile.
 */
#pragma once

#include "base/err.h"
#include "loop/coro.h"
#include "sync/glob.h"
#include "sync/tree.h"

/* Fills kind, size, key and digest of every ENTRY_NEW. Never fails for single files: their state tells. */
int coroutine_fn scan_tree(struct tree *t, const struct cache *cache);

/* Blocking, for the pool or tests: the same for entries [from, to). */
void scan_range(struct tree *t, const struct cache *cache, size_t from, size_t to);

/* Adds every file beneath the tree's root; folders named in skip (at any depth) are left out and, at the top, reported
 * in *skipped (NUL-terminated names). globs prune whole folders early. */
int coroutine_fn scan_walk(struct tree *t, const char *const *skip, const struct globs *globs, struct buf *skipped,
                           struct err *e);
