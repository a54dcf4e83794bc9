/*
 * tree: the files a sync selects, as one array sorted by path bytes. Paths point into buffers that the tree owns and
 * are NUL terminated; names are raw bytes. Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/map.h"
#include "guest/guest.h"
#include "sync/cache.h"

enum entry_state {
        ENTRY_NEW,        /* not looked at */
        ENTRY_OK,         /* file or link, digest known */
        ENTRY_GONE,       /* git tracks it, the disk does not have it */
        ENTRY_DIR,        /* a folder where a file is tracked: submodule or nested repository */
        ENTRY_SPECIAL,    /* FIFO, socket, device */
        ENTRY_UNREADABLE, /* error in .err */
        ENTRY_DROPPED,    /* excluded or behind a link: as if it were not selected */
};

struct entry {
        const char *path;
        uint16_t path_len;
        uint8_t kind;  /* enum guest_kind */
        uint8_t state; /* enum entry_state */
        uint8_t gitlink : 1, nested : 1 /* a repository inside */,
                protected : 1 /* skip-worktree or assume-unchanged */, racy : 1, hashed : 1;
        int err;
        struct cache_key key;
        unsigned char digest[HASH_LEN];
};

struct tree {
        int root_fd;
        char *root; /* canonical path */
        struct entry *v;
        size_t n, cap;
        char **arena; /* what paths point into */
        size_t arena_len;
        char *chunk; /* the free rest of the last piece of arena that tree_strn made */
        size_t chunk_left;
        const int *stop; /* set by another thread: long work on this tree ends early; may be NULL */
        size_t excluded;
        struct buf empty_dirs; /* NUL-terminated folders without an entry (plain folders only) */
};

void tree_init(struct tree *t);
void tree_done(struct tree *t);
struct entry *tree_add(struct tree *t, const char *path, size_t len); /* path must outlive t: see tree_own */
void tree_own(struct tree *t, char *bytes);
const char *tree_strn(struct tree *t, const char *p, size_t n); /* a NUL-terminated copy that t owns */
static inline bool tree_stopped(const struct tree *t)
{
        return t->stop && __atomic_load_n(t->stop, __ATOMIC_RELAXED);
}
/* Sorts by path bytes and drops doubles (an unmerged path is listed once per stage). */
void tree_sort(struct tree *t);
/* Drops entries that lie behind a selected link: a tracked folder was replaced by a link. Call on a sorted, scanned
 * tree. */
void tree_drop_behind_links(struct tree *t);
const struct entry *tree_find(const struct tree *t, const char *path, size_t len);
/* True when path lies beneath an entry that is a link, a submodule or a nested repository. */
bool tree_blocked(const struct tree *t, const char *path, size_t len);
int path_cmp(const char *a, size_t an, const char *b, size_t bn);
