/*
 * mount: detached mounts that boxhost prepares and hands to a new box. All run in boxhost's own mount namespace, so
 * nothing ever appears in the machine's mount table and nothing can be left behind in it. Descriptors returned belong
 * to the caller. Nothing here blocks for long.
 */
#pragma once

#include "base/err.h"

/* A mount namespace of our own that follows the machine's mounts; once, at start. */
int mount_private(struct err *e);
/* A read-only /dev with null zero full random urandom tty and places for pts, shm and mqueue; stage is an empty folder.
 */
int mount_dev_template(const char *stage, int *ret, struct err *e);
/* A read-only copy of a program as a mount of its own: boxes see neither where it lies nor that it changes. */
int mount_file_template(const char *stage, int program, int *ret, struct err *e);
/* A new detached view of a template. */
int mount_clone(int fd, int *ret, struct err *e);
/* A detached file system of a type on a source, with `key=value` or flag options. */
int mount_new(const char *type, const char *source, const char *const options[], unsigned attr, int *ret,
              struct err *e);
/* A folder of an attached mount as a detached mount of its own. */
int mount_folder(int fd, int *ret, struct err *e);
/* Attaches a detached mount at a path / lets go of it again. */
int mount_attach(int fd, const char *path, struct err *e);
void mount_detach(const char *path);
/*
 * An overlay whose layers are folders in attached mounts (older kernels take no detached ones; it costs no time). The
 * layers may be detached again at once: the overlay keeps its own reference.
 */
int mount_overlay(int lower, int upper, int work, int *ret, struct err *e);
