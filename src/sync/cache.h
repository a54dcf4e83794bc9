/*
 * cache: digests of files that have not changed since they were read, one file per tree under the user's cache folder.
 *
 * A digest is trusted only for exactly the same (dev, inode, size, mtime, ctime), and is stored only when the file was
 * already older than the moment it was read: a file edited within the same clock tick keeps its times, so a young one
 * is read again (git's racy rule). The file is replaced atomically, checked when it is read, bounded in size and never
 * needed: whatever is wrong with it means an empty cache. cache_find may be called from several threads; nothing here
 * suspends.
 */
#pragma once

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define CACHE_RECORDS_MAX 500000u
#define CACHE_FILES_MAX 64u

struct cache_key {
        uint64_t dev, ino, size;
        int64_t mtime_ns, ctime_ns;
};

struct cache_record {
        struct cache_key key;
        unsigned char digest[HASH_LEN];
};

struct cache;

void cache_key_of(const struct stat *st, struct cache_key *ret);
/* True when a digest taken at hashed_ns (Unix time) must not be kept. */
bool cache_racy(const struct cache_key *k, int64_t hashed_ns);
int64_t cache_now_ns(void);

/* "$XDG_CACHE_HOME/parallelsandbox/digests" or the one below $HOME/.cache; NULL without either. Free it. */
char *cache_dir(void);

struct cache *cache_open(const char *dir, const char *root); /* never NULL */
void cache_free(struct cache *c);
void cache_freep(struct cache **c);
size_t cache_len(const struct cache *c);
/* hint: where the record probably is (the order of two runs is nearly the same); kept by the caller, one per thread. */
const unsigned char *cache_find(const struct cache *c, const struct cache_key *k, size_t *hint);

/* Replaces the file with the given records; best effort, 0 or -errno. */
int cache_save(const char *dir, const char *root, const struct cache_record *v, size_t n);
