/*
 * ws: WebSocket (RFC 6455) on a stream, framing by wslay; server side of the handshake.
 *
 * One coroutine may be in ws_recv while others are in ws_send; messages go out whole, in the order of the calls.
 * Memory: what is received is bounded by max_message, what is sent is copied once. After a peer's close frame ws_send
 * gives -EPIPE, also when the message before it came in the same read. The owner calls ws_free when nobody is inside
 * any more.
 */
#pragma once

#include "http/call.h"

struct ws;
/* Checks the upgrade request, answers 101 (or an error answer and -EPROTO). protocol: the subprotocol to agree to, or
 * NULL. */
int coroutine_fn ws_accept(struct call *c, const char *protocol, size_t max_message, struct ws **ret);
/* One whole message into b (cleared first): 1 text, 2 binary, 0 closed by the peer, -errno. Pings are answered. */
int coroutine_fn ws_recv(struct ws *w, struct buf *b, int64_t timeout_ms);
int coroutine_fn ws_send(struct ws *w, bool binary, const void *p, size_t n);
void coroutine_fn ws_close(struct ws *w, unsigned code, const char *reason);
void ws_free(struct ws *w);
