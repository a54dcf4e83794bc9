/*
 * file: whole small files, atomically. The only part of base/ that does I/O; blocking, for start-up,
 * command-line programs and offloaded work.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Appends the file to b (bounded by b->max: -ENOBUFS). dirfd may be AT_FDCWD. */
int file_read(int dirfd, const char *path, struct buf *b);
/* Writes a temporary beside path, fsyncs, renames over it, fsyncs the folder. */
int file_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode, struct err *e);
/* write(2) until all is written; -errno. */
int fd_write_all(int fd, const void *p, size_t n);
/* mkdir -p below an existing prefix; existing folders are left as they are. */
int mkdir_all(const char *path, mode_t mode);
/* Removes a tree below dirfd without following links; missing is no error. */
int remove_tree(int dirfd, const char *path);
