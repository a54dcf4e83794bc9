/*
 * cbor: a strict reader of the CBOR that WebAuthn uses (RFC 8949, CTAP2 canonical form): definite lengths, shortest
 * integers, no tags, no floats, at most CBOR_DEPTH levels. Works in place over the caller's bytes; nothing here
 * allocates or suspends.
 */
#pragma once

#include "base/str.h"

#define CBOR_DEPTH 8

struct cbor {
        const unsigned char *p;
        size_t n;
};

enum cbor_type { CBOR_UINT, CBOR_NEGATIVE, CBOR_BYTES, CBOR_TEXT, CBOR_ARRAY, CBOR_MAP, CBOR_SIMPLE };

struct cbor_item {
        enum cbor_type type;
        uint64_t value; /* UINT: the number; NEGATIVE: n of -1-n; BYTES, TEXT: the length; ARRAY, MAP: how many; SIMPLE:
                           20, 21, 22 */
        struct str bytes; /* BYTES, TEXT */
};

/* Reads one item's head, and its bytes for strings; the items of arrays and maps follow. -EBADMSG. */
int cbor_next(struct cbor *c, struct cbor_item *ret);
/* Skips one whole item, whatever is in it, and gives its bytes (ret may be NULL). -EBADMSG. */
int cbor_skip(struct cbor *c, struct str *ret);
/* An integer from -2^63 to 2^63-1. -EBADMSG. */
int cbor_int(struct cbor *c, int64_t *ret);
/* The value of a map's key: 1 and a reader at it, 0 absent, -EBADMSG (also for a key that is there twice). map stands
 * before the map. */
int cbor_find_int(struct cbor map, int64_t key, struct cbor *ret);
int cbor_find_text(struct cbor map, const char *key, struct cbor *ret);
