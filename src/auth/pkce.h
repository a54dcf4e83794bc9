/* pkce: Proof Key for Code Exchange, S256 only (RFC 7636). Pure. */
#pragma once

#include "base/str.h"

bool pkce_challenge_ok(struct str challenge);                 /* 43 characters of base64url: what S256 gives (§4.2) */
bool pkce_verifier_ok(struct str verifier);                   /* 43–128 unreserved characters (§4.1) */
bool pkce_matches(struct str verifier, struct str challenge); /* constant time */
