/*
 * beneath: opening paths that cannot leave a folder (openat2), and the folder /work.
 * Returned descriptors belong to the caller. Nothing here follows a magic link, ever.
 */
#pragma once

#include "base/err.h"

#include <linux/openat2.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WORK_DIR "/work"
#define RECORD_DIR "/var/lib/boxd/record" /* recordings of the screen */
/* Symlinks are followed as long as they stay beneath the folder. */
#define BENEATH_FOLLOW (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
/* No symlink in any component. */
#define BENEATH_STRICT (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)

/* O_CLOEXEC is added; "" and "." mean the folder itself. -errno (-EXDEV: it leads out). */
int beneath_open(int dirfd, const char *path, int flags, mode_t mode, unsigned long long resolve);

/* "work" "tmp" "shm" → an O_PATH descriptor of /work, /tmp, /dev/shm. */
int root_open(const char *root, struct err *e);

/*
 * The folder dest below /work as an O_PATH descriptor. dest is "." or passes guest_path_ok; its last component is never
 * a symlink. With create, missing folders are made (0755). -ENOENT, -ENOTDIR, -EXDEV, -EINVAL.
 */
int dest_open(const char *dest, bool create, struct err *e);

/* Splits "a/b/c" into the folder part's length (0: none) and the name; path passed guest_path_ok. */
const char *path_split(const char *path, size_t n, size_t *ret_dir_len);

/* An open folder, remembered by path, so that neighbours in a sorted list cost no lookup. */
struct dircache {
        int root; /* borrowed */
        int fd;   /* -1: nothing remembered */
        size_t len;
        char path[4097];
};

void dircache_init(struct dircache *d, int root);
void dircache_drop(struct dircache *d); /* forgets; the next call opens again */
/* The folder (first n bytes of path, 0: root itself), strictly resolved; borrowed until the next call. */
int dircache_get(struct dircache *d, const char *path, size_t n);
/* Makes the cache remember fd (which it then owns) as that folder. */
void dircache_put(struct dircache *d, const char *path, size_t n, int fd);
