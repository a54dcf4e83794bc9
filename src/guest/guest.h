/*
 * guest: the frames of the protocol between server and boxd (docs/guest-protocol.md).
 * Pure encoding and decoding: no I/O, no allocation. Nothing here suspends.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_VERSION 1
#define GUEST_HEADER_LEN 8
#define GUEST_FRAME_MAX (1u << 20)
#define GUEST_CONTROL_MAX (256u << 10)

enum guest_stream {
        GUEST_CONTROL = 0,
        GUEST_STDIN = 1,
        GUEST_STDOUT = 2,
        GUEST_STDERR = 3,
        GUEST_DATA = 4,
};

#define GUEST_END 1u /* flag: end of this stream after these bytes */

struct guest_header {
        enum guest_stream stream;
        unsigned flags;
        uint32_t length;
};

void guest_encode(const struct guest_header *h, unsigned char out[GUEST_HEADER_LEN]);
/* -EPROTO: unknown stream or flag, reserved bytes set, or longer than the stream allows. */
int guest_decode(const unsigned char in[GUEST_HEADER_LEN], struct guest_header *ret);

/* Plan entries of the diff operation. */
enum guest_kind { GUEST_KIND_FILE = 0, GUEST_KIND_EXEC = 1, GUEST_KIND_LINK = 2 };
#define GUEST_ENTRY_FIXED 43 /* kind 1, size 8, digest 32, path length 2 */
#define GUEST_PATH_MAX 4096

struct guest_entry {
        enum guest_kind kind;
        uint64_t size;
        unsigned char digest[32];
        const char *path; /* not NUL terminated */
        size_t path_len;
};

/* Bytes written to out (which has room for GUEST_ENTRY_FIXED + path_len). */
size_t guest_entry_encode(const struct guest_entry *e, unsigned char *out);
/* Bytes consumed, 0 when more are needed, -EPROTO for a bad entry (kind, empty, absolute, "..", NUL in path). */
long guest_entry_decode(const unsigned char *in, size_t n, struct guest_entry *ret);

/* True for a relative path without empty, "." or ".." components and without NUL; the rule for every path on the wire.
 */
bool guest_path_ok(const char *p, size_t n);
