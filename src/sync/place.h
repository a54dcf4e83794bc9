/*
 * place: brings what a pull unpacked beside localPath into place: merged file by file by rename, or swapped in whole
 * (clean). Blocking, for the thread pool.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct place {
        char *target;  /* canonical as far as it exists */
        char *staging; /* the folder beside it */
        int staging_fd;
        const char *cwd;
        uint64_t removed;
        struct buf removed_paths, notes; /* NUL terminated */
};

/* Finds target's canonical place (its parents are made) and creates the staging folder beside it. */
int place_open(struct place *p, const char *target, const char *cwd, struct err *e);
/* Removes what is left of the staging folder. */
void place_done(struct place *p);
/* Refusals of clean, before anything is fetched: git checkouts, home, cwd, their parents, the root of a file system. */
int place_may_clean(const struct place *p, struct err *e);
int place_merge(struct place *p, struct err *e);
int place_swap(struct place *p, struct err *e);
/* One downloaded file, staging/name, becomes target. */
int place_file(struct place *p, const char *name, struct err *e);
