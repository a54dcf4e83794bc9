/*
 * idmap: the uid range of a box, and mounts seen through it. Box uid 0..65535 is host uid base..base+65535, the same
 * for gids; the base follows from the index alone. Descriptors returned belong to the caller. Nothing here blocks.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

#define IDMAP_BASE 0x70000000U
#define IDMAP_COUNT 65536U

static inline uid_t idmap_base(unsigned index)
{
        return IDMAP_BASE + index * IDMAP_COUNT;
}

/* Writes uid_map and gid_map of a process that waits in a new user namespace, and opens that namespace. */
int idmap_give(pid_t pid, unsigned index, int *ret_userns, struct err *e);
/*
 * A user namespace, held by its descriptor alone, in which the range of one index appears as that of another; root
 * stays root. Forks a child and waits for it.
 */
int idmap_shift(unsigned from, unsigned to, int *ret_userns, struct err *e);
/* Clones the mount at path (or of the descriptor, with an empty path), idmapped and not attached anywhere. */
int idmap_clone(int dirfd, const char *path, int userns, int *ret_mount, struct err *e);
/* The same, writable: for a box's own layer. */
int idmap_clone_rw(int dirfd, const char *path, int userns, int *ret_mount, struct err *e);
