/*
 * fetch: one HTTP request to an address of its own: metadata, registration, tokens. Suspends. Nothing of a body or a
 * header gets into e, since both may be secret.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "http/url.h"
#include "loop/coro.h"

struct fetch_spec {
        const char *method, *url;
        const char *const *headers; /* name, value, …, NULL; or NULL */
        const char *type;           /* of body, or NULL */
        struct str body;
        bool follow; /* redirects within the same origin */
        bool once;   /* a request that must not arrive twice */
};

struct fetched {
        unsigned status;
        struct buf body;
        bool not_sent; /* nothing can have reached the server */
};

/* 0 when an answer came, whatever its status. ret->body is the caller's (buf_done). */
int coroutine_fn fetch(const struct fetch_spec *spec, struct fetched *ret, struct err *e);

/* Pure. A credential may be sent there: https, or a host on this machine, or the very host that the person named. */
bool fetch_is_safe(const char *url, const struct url *named);
bool url_is_loopback(const struct url *u);
bool url_same_origin(const struct url *a, const struct url *b);
/* "http://host:port" without a standard port. */
int url_add_origin(struct buf *out, const struct url *u);
