/*
 * lines: cuts a byte stream into lines, whatever the reads look like: CRLF, blank lines, many per read, one over many
 * reads. Pure; nothing here suspends.
 */
#pragma once

#include "base/buf.h"

#define LINE_BYTES_MAX ((size_t) 64 << 20)

struct lines {
        struct buf pending;
        bool too_long; /* the present line passed the limit: the rest of it is dropped */
};

void lines_init(struct lines *l, size_t max);
void lines_done(struct lines *l);
/*
 * Takes bytes; for each whole line without its line end calls fn (blank lines are left out). A line over the limit
 * comes as one call with p NULL. Stops at the first non-zero value of fn and returns it.
 */
int lines_feed(struct lines *l, const char *p, size_t n, int (*fn)(struct str line, void *arg), void *arg);
/* The last line of a stream that ended without a line end. */
int lines_end(struct lines *l, int (*fn)(struct str line, void *arg), void *arg);
