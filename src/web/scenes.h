/*
 * scenes: browsers outside look at services in boxes (docs/scenes.md). A request whose Host names a scene is answered
 * here and nowhere else: it never reaches the app, REST or MCP.
 *
 * Owns the tunnels of upgraded connections, which have no coroutine. Requests and tunnels that move bytes count as use
 * of their box, every few seconds at most.
 */
#pragma once

#include "auth/auth.h"
#include "control/control.h"
#include "http/call.h"
#include "http/server.h"

struct scenes;
struct scenes *scenes_new(struct control *c, struct auth *a);
/* Where the server is configured for it: listens on addr at the ports of scenes, of those there are and those to come,
 * with the server whose handler asks scenes_handle. */
int scenes_listen(struct scenes *s, struct http_server *http, const char *addr, struct err *e);
/* Runs in the request's coroutine. False: it came by no scene's port, the Host is no scene's, and nothing was done. */
bool coroutine_fn scenes_handle(struct scenes *s, struct call *call);
void scenes_stop(struct scenes *s); /* closes every tunnel; idempotent */
void scenes_free(struct scenes *s); /* after the last request */
size_t scenes_tunnels(const struct scenes *s);
