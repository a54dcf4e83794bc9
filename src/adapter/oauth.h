/*
 * oauth: what is asked of an authorization server: a registration (RFC 7591), tokens for a code, tokens for a refresh
 * token. All suspend. Errors name the server's error code at most, never what was sent or received.
 */
#pragma once

#include "adapter/discover.h"
#include "adapter/tokenfile.h"

/* client: {"id", "secret"?, "method", "redirectUri"}, as the token file has it. */
int coroutine_fn oauth_register(const struct as_meta *m, const char *redirect_uri, const char *scope,
                                struct json **ret_client, struct err *e);

struct oauth_code {
        const char *code, *verifier, *redirect_uri;
        const char *asked_scope; /* what the answer means when it names none */
};

/* *ret: a whole new content of the token file, tokens included. */
int coroutine_fn oauth_exchange(const struct as_meta *m, const struct json *client, const char *endpoint,
                                const struct oauth_code *c, struct json **ret, struct err *e);

enum refreshed {                     /* also exit codes of the process that refreshes */
                 REFRESH_DONE = 0,   /* new tokens are in the file */
                 REFRESH_LATER = 10, /* nothing was used up; the file is as it was */
                 REFRESH_ENDED = 11, /* there is nothing to refresh with any more */
};

/*
 * Exchanges the refresh token of the file, whose lock the caller holds. Before it asks, it marks the file; a file that
 * is found marked belongs to a refresh whose answer was lost, and is not asked about again: the refresh token may be
 * used up, and a server takes a second use for theft.
 */
enum refreshed coroutine_fn oauth_refresh(const struct tokenfile *f, struct err *e);

/* Pure: the address a browser is sent to. NULL when it would be too long. */
char *oauth_link(const struct as_meta *m, const char *client_id, const char *redirect_uri, const char *scope,
                 const char *state, const char *verifier);
