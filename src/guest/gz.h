/*
 * gz: streaming gzip in both directions. Two implementations of this header exist: gz_isal.c (ISA-L, for the programs
 * that link shared libraries) and gz_zlib.c (zlib, for boxd, because Debian has no static ISA-L).
 * The objects own their state (about 100 KiB to 300 KiB). Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

static inline bool gz_magic(const unsigned char *p, size_t n)
{
        return n >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

struct gz_in;
struct gz_in *gz_in_new(void); /* NULL: no memory */
void gz_in_free(struct gz_in *z);
void gz_in_freep(struct gz_in **z);
/*
 * Inflates from *in (which is advanced) into out, at most cap bytes; concatenated members follow each other, zero
 * padding after the last is ignored. Returns the number of bytes written (0 with *in empty: needs more input), or
 * -EPROTO for data that is no gzip or fails its checksum.
 */
long gz_inflate(struct gz_in *z, struct str *in, void *out, size_t cap);
/* At the end of input: true when every member is complete. */
bool gz_in_complete(const struct gz_in *z);

struct gz_out;
struct gz_out *gz_out_new(void); /* level 1; NULL: no memory */
void gz_out_free(struct gz_out *z);
void gz_out_freep(struct gz_out **z);
/* Compresses n bytes and appends what is ready to out; end finishes the stream. -ENOBUFS, -ENOMEM from the buffer. */
int gz_deflate(struct gz_out *z, const void *p, size_t n, bool end, struct buf *out);
