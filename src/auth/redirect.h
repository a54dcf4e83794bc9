/*
 * redirect: the rules for redirect URIs (RFC 8252, OAuth 2.1 §2.3). Pure; nothing here allocates or suspends.
 *
 * Accepted at registration: https with a host; http on a loopback name only (127.0.0.1, [::1], localhost; RFC 8252
 * §7.3); a private-use scheme of an application (§7.1) that no browser gives a meaning of its own. Never a fragment,
 * user information, a wildcard, a control byte or a backslash.
 */
#pragma once

#include "base/str.h"

#define REDIRECT_MAX 1024

enum redirect_kind { REDIRECT_BAD, REDIRECT_HTTPS, REDIRECT_LOOPBACK, REDIRECT_APP };

/* What uri is. ret_host (may be NULL) receives what a person should be shown: "host", "host:port", or "scheme:" of an
 * application; it points into uri. */
enum redirect_kind redirect_check(struct str uri, struct str *ret_host);

/* Whether asked is allowed by registered: the same bytes; for loopback, scheme, path and query the same, any port, and
 * any of the three names, since all of them lead to the same machine and clients are known to register one and use
 * another. */
bool redirect_matches(struct str registered, struct str asked);
