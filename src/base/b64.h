/* b64: base64 (RFC 4648 §4) and base64url without padding (§5), and hex. Decoding is strict. */
#pragma once

#include "base/buf.h"

int b64_encode(struct buf *out, const void *p, size_t n);
int b64url_encode(struct buf *out, const void *p, size_t n);
int b64_decode(struct buf *out, struct str s);    /* -EINVAL */
int b64url_decode(struct buf *out, struct str s); /* -EINVAL */

void hex_encode(const void *p, size_t n, char *out /* 2n+1 */);
int hex_decode(struct str s, void *out, size_t n); /* s must have exactly 2n hex digits; -EINVAL */
