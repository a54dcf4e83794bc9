/*
 * extract: unpacks a box's tar (plain or gzip) beneath a folder, and never outside, whatever the archive holds. Every
 * folder on the way is opened without following links; links that could lead out, devices and the like are refused by
 * name and the rest goes on; set-id bits are dropped; existing files are replaced, not written into. Blocking, for the
 * thread pool; no loop, no globals.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define EXTRACT_DEPTH_MAX 200

struct extract;

/* root_fd stays the caller's. strip_top: the first component of every name is dropped. */
struct extract *extract_new(int root_fd, bool strip_top);
void extract_free(struct extract *x);
void extract_freep(struct extract **x);
/* Errors are those of this machine (disk full …) and of a broken archive; a hostile member is none. */
int extract_feed(struct extract *x, const void *p, size_t n, struct err *e);
int extract_finish(struct extract *x, struct err *e);

uint64_t extract_files(const struct extract *x);
const struct buf *extract_paths(const struct extract *x);   /* the first ones, NUL terminated */
const struct buf *extract_refused(const struct extract *x); /* "path: reason", NUL terminated */
uint64_t extract_refused_count(const struct extract *x);
