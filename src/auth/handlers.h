/* handlers: what auth.c's table of routes leads to. Each answers the call; all may suspend. */
#pragma once

#include "auth/token.h"
#include "auth/visit.h"

/* metadata.c: RFC 9728 and RFC 8414 */
void coroutine_fn serve_resource_metadata(struct auth *a, struct call *call);
void coroutine_fn serve_server_metadata(struct auth *a, struct call *call);
/* register.c: RFC 7591 */
void coroutine_fn serve_register(struct auth *a, struct call *call);
/* authorize.c: RFC 6749 §4.1.1 with PKCE, and the consent page */
void coroutine_fn page_authorize(struct visit *v);
/* join.c, signin.c, settings.c, passkey.c */
void coroutine_fn page_join(struct visit *v);
void coroutine_fn page_sign_in(struct visit *v);
void coroutine_fn page_sign_out(struct visit *v);
void coroutine_fn page_home(struct visit *v);
void coroutine_fn page_settings(struct visit *v);
void coroutine_fn page_settings_action(struct visit *v);
void coroutine_fn page_secrets(struct visit *v); /* secrets.c */
void coroutine_fn passkey_action(struct visit *v);

/* {"error": …, "error_description": …} (RFC 6749 §5.2), never cached. */
void coroutine_fn oauth_error(struct call *call, unsigned status, const char *error, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
void oauth_no_store(struct call *call);

/* A client by its id, ours or a document's (fetched when it is switched on and what is kept is old). -ENOENT, -EAGAIN.
 */
int coroutine_fn client_find(struct auth *a, struct call *call, const char *id, struct client *ret, struct err *e);
/* What a registration or a document says, into name and redirect_uris; -EINVAL: the redirect URIs, -EPROTO: the rest.
 */
int client_read(const struct json *body, struct client *c, struct err *e);
/* Whether the client registered what it asks for now. */
bool client_allows(const struct client *c, const char *redirect_uri);
