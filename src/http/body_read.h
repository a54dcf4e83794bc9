/* body_read: reading a framed body from a stream without a buffer of its own. For the server and the client. */
#pragma once

#include "http/h1.h"
#include "loop/stream.h"

/*
 * Reads 1..n bytes of the body into p; 0 at its end. The framing is taken out in place and what lies behind the body
 * goes back to the stream. -EPIPE when the stream ends inside the body, -EPROTO when it is malformed, else what
 * stream_read says.
 */
ssize_t coroutine_fn body_read(struct stream *s, struct h1_body *b, void *p, size_t n, int64_t timeout_ms);
