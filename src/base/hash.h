/*
 * hash: BLAKE2b-256 (RFC 7693) for file contents, SHA-256 for stored tokens and HMAC-SHA-256 for signatures,
 * and SipHash-2-4 with a random seed (hash_bytes) for hash tables only; all by libsodium.
 */
#pragma once

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define HASH_LEN 32

/* BLAKE2b-256 in progress; must stay where it was begun. libsodium wants 64-byte alignment, which is found inside
 * rather than asked of the compiler: the address sanitizer of gcc 12 does not give it to variables on the stack. */
struct hash_state {
        unsigned char opaque[384 + 63];
};

void hash_init(struct hash_state *h);
void hash_update(struct hash_state *h, const void *p, size_t n);
void hash_final(struct hash_state *h, unsigned char out[HASH_LEN]);
void hash_of(const void *p, size_t n, unsigned char out[HASH_LEN]);

void sha256_of(const void *p, size_t n, unsigned char out[HASH_LEN]);
void hmac_sha256(const unsigned char key[HASH_LEN], const void *p, size_t n, unsigned char out[HASH_LEN]);
bool mem_equal(const void *a, const void *b, size_t n); /* constant time */

uint64_t hash_bytes(const void *p, size_t n); /* seeded per process; never stored */
