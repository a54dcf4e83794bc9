/*
 * archive: boxes without processes, of which only the disk is kept: folders DIR/boxhost/archive/<id>, the same as a
 * box's own, moved there and back by rename (box_archive, box_create). A folder without spec.json is one whose deletion
 * was broken off. Nothing here is kept in memory. Blocks as removing files does.
 */
#pragma once

#include "boxhost/host.h"

struct archive {
        char id[BOX_ID_MAX + 1];
        int64_t bytes; /* on the machine's disk; 0 for a plain folder, which nobody counts */
};

/* Those after an id, in order, at most max; next[0] is the last one's id when there are more, else empty. */
int archive_each(struct host *h, const char *after, size_t max, void (*fn)(const struct archive *a, void *arg),
                 void *arg, char next[static BOX_ID_MAX + 1], struct err *e);
/* For ever; no error when there is none. */
int archive_delete(struct host *h, const char *id, struct err *e);
/* Finishes deletions that were broken off. With all: removes every archive, and their folder. */
void archive_sweep(struct host *h, bool all);
