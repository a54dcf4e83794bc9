/*
 * client_metadata: client ID metadata documents (draft-ietf-oauth-client-id-metadata-document): a client whose id is an
 * https address with a document at it. Off unless the operator switched it on, since the server then makes requests to
 * addresses that strangers name.
 *
 * The guard: https on port 443, a name that resolves to a public address (that same address is then connected to), no
 * redirects, JSON of at most 5 KB within 5 s, a few fetches at a time. Suspends where marked.
 */
#pragma once

#include "auth/auth.h"
#include "store/oauth.h"

#define METADATA_MAX ((size_t) 5 << 10)

/* https, a host name, a path other than "/", no user, fragment, query, port or dot segments. */
bool metadata_id_ok(const char *id);
/* Seconds a document may be kept, from its Cache-Control (RFC 9111 §5.2.2): 5 minutes to a day, an hour when it says
 * nothing. */
int64_t metadata_fresh_sec(struct str cache_control);
/* The document as a client; what it says is checked as a registration is. */
int metadata_read(struct str text, const char *id, struct client *ret, struct err *e);

struct fetch_policy {
        bool (*allowed)(const char *address);
        const char *ca; /* NULL: the system's */
        unsigned port;
};
int coroutine_fn metadata_fetch(const char *id, const struct fetch_policy *p, struct client *ret,
                                int64_t *ret_fresh_sec, struct err *e);
/* From the store or fetched and stored. */
int coroutine_fn client_fetch(struct auth *a, struct call *call, const char *id, struct client *ret, struct err *e);
