/*
 * auth: accounts' people and their sign-in, API keys, and the OAuth 2.1 authorization server. One struct auth per
 * server, on its loop.
 *
 * auth_handle answers everything that needs no identity (pages, OAuth endpoints, metadata); it runs in the request's
 * coroutine, after the Host check. identify says who a request comes from. Passwords are hashed on the thread pool, a
 * few at a time.
 */
#pragma once

#include "auth/ratelimit.h"
#include "control/control.h"
#include "loop/loop.h"

#define AUTH_SCOPE "sandbox"
#define ORIGIN_MAX 320

struct auth_config {
        struct db *db;
        struct control *control;  /* for what the home page shows; may be NULL in tests */
        unsigned char secret[32]; /* forms, passkey challenges and successors of refresh tokens are made from it */
        bool allow_metadata;      /* client ID metadata documents may be fetched */
        int64_t (*now)(void);     /* NULL: wall_ms */
};

struct auth {
        struct db *db;
        struct control *control;
        unsigned char key[32];
        bool allow_metadata;
        int64_t (*now)(void);
        struct ratelimit *limits;
        struct sem hashers;
        size_t hash_waiting, fetching;
        char dummy[160]; /* the hash of nobody's password */
        struct json *texts[3];
        struct timer *janitor;
};

int auth_new(const struct auth_config *cfg, struct auth **ret, struct err *e);
void auth_free(struct auth *a);

/* True when the address was one of ours and an answer was given. */
bool coroutine_fn auth_handle(struct auth *a, struct call *call);
/* /v1/keys, /v1/grants, /v1/session, for an identity. */
bool coroutine_fn rest_auth_handle(struct auth *a, struct call *call, const struct identity *who);

/* "http://host:port" that the client used: the checked Host, in lower case, and https when a front proxy says so. */
void auth_origin(const struct call *call, char ret[static ORIGIN_MAX]);
/* The challenge of a 401 or 403 (RFC 6750 §3, RFC 9728 §5.1); error may be NULL. */
int auth_challenge(struct call *call, const char *error);

/*
 * Who asks: an API key or an access token in `Authorization: Bearer`, or, below /v1 only, a browser's session cookie
 * (with X-Psbx-Csrf for whatever changes something); and X-Psbx-Agent, X-Psbx-Client and the wait headers. -EACCES:
 * nobody we know (*ret_presented says whether a key or token was given); -EPERM: a token without the scope; -EINVAL: a
 * header that is malformed.
 */
int identify(struct auth *a, const struct call *call, struct identity *ret, bool *ret_presented, struct err *e);
