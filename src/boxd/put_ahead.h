/*
 * put_ahead: small files of an archive, written by threads of the worker while it reads on. Making a file costs the
 * kernel far more than reading it from the archive costs us, and files in different folders do not stand in each
 * other's way.
 *
 * Only files whose paths have nothing to do with each other are under way at once: whoever looks at a path asks
 * ahead_settle first, so the result is that of writing one after the other. Outcomes are given to `ended` in the order
 * of the archive, on the thread that calls here; the writing threads know nothing but their files.
 */
#pragma once

#include "boxd/put.h"

#define AHEAD_SIZE_MAX ((size_t) 64 << 10)

struct ahead_file {
        char *path; /* clean; allocated, with the content behind it */
        size_t path_len;
        const char *name, *data;
        size_t size;
        unsigned mode;
        struct sink sink; /* what became of it */
        int r;            /* 0, or -errno as of sink_begin, sink_data, sink_end */
};

struct ahead;

/* NULL where threads are of no use (one processor) or cannot be had: then every file is written by the caller. */
struct ahead *ahead_new(bool compare, void (*ended)(struct ahead_file *f, void *arg), void *arg);
/*
 * Takes a file over (path and data are copied; dir is duplicated): false when it is too large or there is no memory or
 * descriptor for it. Waits while many are under way.
 */
bool ahead_take(struct ahead *a, int dir, const char *path, size_t n, unsigned mode, const char *data, uint64_t size);
/* Waits for everything under way if something of it is at, above or below path; NULL: in any case. */
void ahead_settle(struct ahead *a, const char *path, size_t n);
void ahead_free(struct ahead *a); /* settles first */
