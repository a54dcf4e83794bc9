/*
 * discover: from the MCP endpoint and its challenge to the authorization server: protected-resource metadata (RFC
 * 9728), then the server's own (RFC 8414, or OpenID discovery), with the fallbacks of revision 2025-03-26 for servers
 * that have neither. The order is that of 2025-11-25 and 2026-07-28.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "http/url.h"
#include "loop/coro.h"

struct as_meta {
        char *resource; /* what tokens are for: the endpoint, or what stands above it */
        char *issuer;
        char *authorize, *token, *registration; /* registration may be NULL */
        char *scopes;                           /* what the resource lists, as one string; NULL: none */
        bool iss_required, metadata_ids, has_issuer, offline_access;
        struct json *token_methods; /* token_endpoint_auth_methods_supported, or NULL */
};

void as_meta_done(struct as_meta *m);

/* endpoint: the MCP endpoint as text and parsed. hint: resource_metadata of the challenge, or NULL. */
int coroutine_fn discover(const char *endpoint, const struct url *u, const char *hint, struct as_meta *ret,
                          struct err *e);

/* Pure. May a token for resource be used at the endpoint: same origin, and its path is the endpoint's or above it? */
bool discover_covers(const char *resource, const struct url *endpoint);
/* Pure: the i-th address where the metadata of issuer may be; false when there are no more. */
bool discover_as_address(const char *issuer, unsigned i, struct buf *out);
