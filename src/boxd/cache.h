/*
 * cache: digests of files that have not changed, kept in STATE_DIR/digests between operations.
 *
 * The key is (dev, inode, size, mtime, ctime). A digest is believed only when the file's mtime is older than the moment
 * its content was read (git's racy rule): a later change in the same clock tick would not show. Every record carries a
 * check value, because the file is written without fsync. Losing it, or an update of it, costs time only.
 */
#pragma once

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct cache;

/* What path holds; an empty cache when it is missing or unreadable. NULL: no memory. */
struct cache *cache_open(const char *path);
void cache_free(struct cache *c);
void cache_freep(struct cache **c);
/* The clock that file systems stamp with, in ns. Take it before reading the content. */
int64_t cache_now(void);
bool cache_get(const struct cache *c, const struct stat *st, unsigned char digest[HASH_LEN]);
/* Remembers, unless the racy rule forbids it; read_ns is cache_now() from before the content was read. */
void cache_put(struct cache *c, const struct stat *st, int64_t read_ns, const unsigned char digest[HASH_LEN]);
/* Writes the file when anything was added, merging what others wrote meanwhile. */
int cache_save(struct cache *c);

#define CACHE_FILE "/var/lib/boxd/digests"
#define CACHE_ENTRIES_MAX 262144
