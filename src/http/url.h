/* url: percent-decoding, query strings, and splitting request targets. Strict; nothing here allocates except into a
 * buf. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Decodes %XX (and + when form is set); -EINVAL for a broken escape or a decoded NUL. */
int url_decode(struct str s, bool form, struct buf *out);
int url_encode(struct buf *out, struct str s); /* everything but unreserved (RFC 3986) */

/* Splits "/path?query" of an origin-form target; the path is decoded and refused (-EINVAL) with "..", "//" or NUL
 * inside. */
int url_split_target(struct str target, struct buf *path, struct str *query);
/* Finds key in a query string, decoded into out: 1 found, 0 absent, -errno. */
int url_query(struct str query, const char *key, struct buf *out);

struct url {
        bool https;
        char host[256]; /* without brackets */
        unsigned port;
        char path[2048]; /* "/…" with query */
};
/* http:// and https:// only; userinfo and fragments are refused. */
int url_parse(const char *s, struct url *ret, struct err *e);
