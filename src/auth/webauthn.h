/*
 * webauthn: what a browser sends for a passkey (W3C Web Authentication Level 2), read strictly. Pure but for the
 * signature check, which cose.c does with OpenSSL. Attestation is not asked for and not looked at. Nothing here
 * suspends.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

enum { AUTH_UP = 1, AUTH_UV = 4, AUTH_AT = 64, AUTH_ED = 128 };

struct authenticator_data {
        const unsigned char *rp_id_hash; /* 32 bytes */
        unsigned flags;
        uint32_t sign_count;
        struct str credential, public_key; /* with AUTH_AT, else empty */
};

/* §6.1. -EBADMSG; the parts point into bytes. */
int authenticator_data_parse(struct str bytes, struct authenticator_data *ret);
/* §6.5: the authenticator data inside an attestation object. -EBADMSG. */
int attestation_parse(struct str bytes, struct str *ret_auth_data);
/* §5.8.1: type, challenge (base64url) and origin are exactly these. */
int client_data_check(struct str json, const char *type, const char *challenge, const char *origin, struct err *e);

/* §7.1, after the challenge was found good: a new passkey's parts. */
int registration_check(struct str client_data, struct str attestation, const char *challenge, const char *origin,
                       const char *rp_id, struct authenticator_data *ret, struct err *e);
/* §7.2: a signature by the public key over a challenge of ours. */
int assertion_check(struct str client_data, struct str auth_data, struct str signature, struct str public_key,
                    const char *challenge, const char *origin, const char *rp_id, struct authenticator_data *ret,
                    struct err *e);

/* The relying party's id for an origin: its host without port; -EINVAL for addresses, where browsers allow no passkeys.
 */
int rp_id_of(const char *origin, char ret[static 256]);
