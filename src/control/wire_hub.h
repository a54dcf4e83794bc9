/*
 * wire_hub: the wires at work: what is counted of each, and the connections of boxes to their names. Shared by
 * wire_serve.c and wire_http.c. One hub per control; a struct wired per box that ever used or applied its names, until
 * the box is no more. Counted references, since connections outlive a forgotten box for a moment.
 */
#pragma once

#include "control/external.h"
#include "control/wires.h"
#include "http/server.h"
#include "http/tls.h"

/* Connections in all, and of one box; less where the process may open few files: each costs two. */
#define WIRE_CONNS_MAX 4096
#define WIRE_CONNS_BOX 512

struct wire_hub {
        struct control *c;
        struct map *boxes; /* id -> struct wired */
        size_t open, conns_max;
        struct waitq drained;
        struct tls_ctx *tls;      /* for https outside, made when it is first needed */
        struct http_server *http; /* takes the connections that are forwarded as HTTP */
};

struct wired {
        char id[33];
        unsigned refs;
        bool gone;
        bool applying;
        struct waitq applied;
        size_t open;
        struct list conns; /* struct wire_conn */
        struct external_name outside;
        struct wire_count count[WIRES_MAX];
};

/* One connection that a box made to one of its names. Counted references: of its coroutine, then of the tunnel or of
 * the HTTP server's connection, and of requests that run. */
struct wire_conn {
        struct list link;
        unsigned refs;
        struct wire_hub *hub;
        struct wired *box;
        size_t place;
        unsigned port;
        struct stream *s;      /* while its coroutine runs */
        struct coro *coro;     /* looks up and connects */
        struct tunnel *tunnel; /* then: bytes, both ways */
        struct box *used;      /* the linked box, kept awake; or NULL */
        bool counted;          /* among the open ones of its wire */
        char service[WIRE_NAME_MAX + 1];
};

/* Remembers what failed, for links[]. */
void wired_failed(struct wired *b, size_t place, const struct err *e);
void wire_conn_unref(struct wire_conn *x);
/* Closes with a reset: what was sent here reached nobody. */
void wire_reset(struct stream *s);

/* Hands a connection to an external name to the HTTP side (wire_http.c), which ends it. Suspends nothing. */
void wire_http_take(struct wire_conn *x);
void coroutine_fn wire_http_stop(struct wire_hub *h);
