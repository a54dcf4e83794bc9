/*
 * token: codes, access and refresh tokens. Opaque random strings, stored as SHA-256. Nothing here suspends but the
 * endpoint.
 *
 * A refresh token is good once. Its successor, and the access token that comes with it, are made from the old one and
 * the server's secret: whoever repeats the old one within the grace is given the same pair, though none of it is
 * stored.
 */
#pragma once

#include "auth/auth.h"
#include "store/oauth.h"
#include "store/people.h"

#define ACCESS_PREFIX "psa_"
#define REFRESH_PREFIX "psr_"
#define CODE_PREFIX "psc_"
#define ACCESS_MS (3600 * (int64_t) 1000)
#define REFRESH_MS (30 * 24 * 3600 * (int64_t) 1000)
#define GRACE_MS ((int64_t) 60 * 1000)
#define CODE_MS ((int64_t) 120 * 1000)
#define TOKEN_MAX 64

struct token_pair {
        char access[TOKEN_MAX], refresh[TOKEN_MAX];
        int64_t expires_in; /* seconds */
        char scope[65];
};

/* A code for what a person allowed. Allocated. */
int code_issue(struct auth *a, struct code *c, char **ret, struct err *e);

enum token_error { TOKEN_OK, TOKEN_INVALID_GRANT, TOKEN_INVALID_TARGET, TOKEN_FAILED };
/* RFC 6749 §4.1.3. A wrong attempt burns the code; a second use of it ends what the first one gave. */
enum token_error code_redeem(struct auth *a, struct str code, const char *client, const char *redirect_uri,
                             struct str verifier, const char *resource, struct token_pair *ret, struct err *e);
/* RFC 6749 §6, OAuth 2.1 §4.3. resource may be NULL. */
enum token_error refresh_rotate(struct auth *a, struct str refresh, const char *client, const char *resource,
                                struct token_pair *ret, struct err *e);
/* An access token at this server, under the name the client used for it. -EACCES, -EPERM (scope). Marks the use once a
 * minute. */
int access_token_check(struct auth *a, const struct call *call, struct str token, struct grant *ret, struct err *e);
/* RFC 7009: ends the grant of a refresh token, or one access token; of another client or unknown: nothing. */
int token_revoke(struct auth *a, struct str token, const char *client);

/* Whether resource (RFC 8707) is what this server is at that origin. */
bool resource_ok(const char *resource, const char *origin);

void coroutine_fn serve_token(struct auth *a, struct call *call);
void coroutine_fn serve_revoke(struct auth *a, struct call *call);
