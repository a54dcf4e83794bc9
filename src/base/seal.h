/*
 * seal: small secrets under a key: XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) by libsodium with a random 24-byte
 * nonce. What a sealed value belongs to is bound to it as context: it opens nowhere else. Nothing suspends.
 */
#pragma once

#include "base/buf.h"

#define SEAL_KEY_LEN 32
#define SEAL_EXTRA (1 + 8 + 24 + 16) /* version, which key, nonce, tag */

/* Overwrites memory in a way that the compiler keeps. */
void mem_wipe(void *p, size_t n);
/* A buffer of secrets: wiped, then freed. Give it all its room at once (buf_room): growing would leave copies. */
void buf_wipe(struct buf *b);
#define _cleanup_secret_ _cleanup_(buf_wipe)

/* Appends SEAL_EXTRA + n bytes to out. */
int seal(const unsigned char key[SEAL_KEY_LEN], struct str context, const void *p, size_t n, struct buf *out);
/* Appends the value: 0; -EKEYREJECTED: sealed with another key; -EBADMSG: damaged, or of another context; -EPROTO: no
 * sealed value of this release. */
int unseal(const unsigned char key[SEAL_KEY_LEN], struct str context, const void *p, size_t n, struct buf *out);
