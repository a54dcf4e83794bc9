#include "auth/pkce.h"

#include "base/b64.h"
#include "base/hash.h"

#define CHALLENGE_LEN 43

bool pkce_challenge_ok(struct str s)
{
        for (size_t i = 0; i < s.n; i++)
                if (!c_is_alnum(s.p[i]) && s.p[i] != '-' && s.p[i] != '_')
                        return false;
        return s.n == CHALLENGE_LEN;
}

bool pkce_verifier_ok(struct str s)
{
        for (size_t i = 0; i < s.n; i++)
                if (!c_is_alnum(s.p[i]) && s.p[i] != '-' && s.p[i] != '.' && s.p[i] != '_' && s.p[i] != '~')
                        return false;
        return s.n >= 43 && s.n <= 128;
}

bool pkce_matches(struct str verifier, struct str challenge)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);
        unsigned char hash[HASH_LEN];

        if (!pkce_verifier_ok(verifier) || !pkce_challenge_ok(challenge))
                return false;
        sha256_of(verifier.p, verifier.n, hash);
        return b64url_encode(&b, hash, sizeof hash) == 0 && b.len == challenge.n && mem_equal(b.p, challenge.p, b.len);
}
