/*
 * put: what op_put is made of. put_file.c writes one regular file (compare, write beside, rename), put.c walks the
 * archive. All paths were cleaned (tar_clean_path) and their folder was opened beneath dest without symlinks.
 */
#pragma once

#include "boxd/beneath.h"
#include "boxd/cache.h"

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define TEMP_NAME_LEN 32

/* A name for a temporary beside the target. */
void temp_name(char out[TEMP_NAME_LEN]);
bool is_temp_name(const char *name);

struct sink {
        int dir; /* borrowed */
        char name[256];
        uint64_t size, done;
        unsigned mode;
        int old_fd; /* the existing file, while everything was equal so far; else -1 */
        struct stat old;
        int new_fd;               /* the file being written, or -1 */
        char temp[TEMP_NAME_LEN]; /* "" when new_fd is the final name already */
        struct hash_state hash;
        bool changed;
        /* After sink_end, when a file was written: what sink_remember puts into the cache. */
        bool written;
        struct stat st;
        int64_t at;
        unsigned char digest[HASH_LEN];
};

void sink_init(struct sink *s);
/*
 * whole: the content is in memory already, so a new file may get its final name at once. -EISDIR: a folder is in the
 * way. The sink must be finished with sink_end or sink_abort.
 */
int sink_begin(struct sink *s, int dir, const char *name, uint64_t size, unsigned mode, bool compare, bool whole);
int sink_data(struct sink *s, const void *p, size_t n);
int sink_end(struct sink *s);
/* The digest of what was just written, so that the next comparison need not read it. cache may be NULL. */
void sink_remember(const struct sink *s, struct cache *cache);
void sink_abort(struct sink *s); /* removes what is not complete */
