/*
 * proxy_head: how the proxy rewrites the heads of requests and answers. Pure: parsed heads in, bytes out. What is hop
 * by hop goes (RFC 9110 §7.6.1), whoever names it; what tells of us is written anew. Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "http/h1.h"

struct proxy_policy {
        const char *host;            /* what the service takes itself for: "localhost:5173" */
        const char *base;            /* a path before that of every request, without a slash at its end; NULL: none */
        const char *forwarded_host;  /* X-Forwarded-Host; NULL: the service is told nothing of who asks */
        const char *forwarded_proto; /* X-Forwarded-Proto: "http" or "https" */
        /*
         * An origin ("http://name:port", no slash) as the client knows it, from Origin or Referer, to what the service
         * may see. 1: replaced by out; 0: not ours, passed as it is; < 0: ours and none of the service's business
         * (Origin becomes null, Referer goes).
         */
        int (*inward)(void *arg, struct str origin, struct buf *out);
        /* The way back, for Location, Content-Location and Access-Control-Allow-Origin. 1: replaced; 0: as it is. */
        int (*outward)(void *arg, struct str origin, struct buf *out);
        const char *const *private_cookies; /* name prefixes that are never passed, either way; NULL terminated */
        /* Put before the names of cookies outside and taken away inside; cookies without it do not reach the service.
         * Scripts do not see such cookies (HttpOnly), and so cannot tell others the prefix; answers are stored for
         * those cookies alone (Vary), since another service may be at the same address later. NULL: none. */
        const char *cookie_prefix;
        const char *const *more; /* response headers, name, value, …, NULL: they replace the service's own */
        void *arg;
};

/* -ENOBUFS when a head would grow beyond what b takes. */
int proxy_request_head(struct buf *b, const struct h1_head *h, struct str target, const char *peer,
                       const struct proxy_policy *p, bool expect, bool upgrade);
/* Header lines only; framing is the caller's. */
int proxy_response_headers(struct buf *b, const struct h1_head *h, const struct proxy_policy *p);
