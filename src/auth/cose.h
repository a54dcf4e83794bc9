/*
 * cose: public keys of passkeys (RFC 9052, RFC 9053, RFC 8230) and their signatures, checked by OpenSSL: ES256, EdDSA
 * (Ed25519), RS256. Nothing here suspends; a check takes far below a millisecond.
 */
#pragma once

#include "auth/cbor.h"

#include "base/err.h"

enum { COSE_ES256 = -7, COSE_EDDSA = -8, COSE_RS256 = -257 };

struct cose_key {
        int64_t alg;
        struct str x, y; /* EC2 (y), OKP */
        struct str n, e; /* RSA */
};

/* Pure. The parts point into bytes. -EBADMSG malformed, -ENOTSUP another algorithm or curve. */
int cose_parse(struct str bytes, struct cose_key *ret);
/* 0, -EACCES: the signature is not of this key, -EBADMSG: no key. */
int cose_verify(struct str key, struct str data, struct str signature, struct err *e);
