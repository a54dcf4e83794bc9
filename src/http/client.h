/*
 * client: an HTTP/1.1 client over our own streams and codec, for loopback, boxes and plain or TLS endpoints.
 * A client object keeps a small pool of idle connections to one origin. https uses OpenSSL with the system's CA store.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "http/h1.h"
#include "http/url.h"
#include "loop/stream.h"

struct http_client;
struct http_request {
        const char *method;
        const char *path;           /* "/…" with query */
        const char *const *headers; /* name, value, name, value, …, NULL */
        const void *body;
        size_t body_len;               /* the body must stay until hc_answer has returned; or: */
        bool streamed;                 /* body is written with hc_write, chunked, ended with hc_write_end */
        int64_t connect_ms, answer_ms; /* limits; 0 = 10 s, none */
        int64_t write_ms;              /* how long the peer may take no byte; 0 = 30 s */
        bool fresh;                    /* never reuse a pooled connection */
        bool once;                     /* never sent again unseen, also when a pooled connection turns out dead */
};

struct http_client *http_client_new(const struct url *origin);
void http_client_free(struct http_client *h); /* after the last exchange */
/* Verify https against this PEM file instead of the system's store. */
void http_client_set_ca(struct http_client *h, const char *path);
/* Connections come from dial (into a box, say) instead of a connect to the origin. */
void http_client_set_dial(struct http_client *h,
                          int coroutine_fn (*dial)(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e),
                          void *arg);

struct hc; /* one exchange */
/* Sends the head (and a given body). A pooled connection that was closed by the server before any byte of the answer is
 * retried once on a fresh one when the body is not streamed and the request not marked `once`. *ret_not_sent (may be
 * NULL) is true when nothing can have reached the server. */
int coroutine_fn hc_open(struct http_client *h, const struct http_request *r, struct hc **ret, bool *ret_not_sent,
                         struct err *e);
int coroutine_fn hc_write(struct hc *x, const void *p, size_t n);
int coroutine_fn hc_write_end(struct hc *x);
/* Waits for the answer's head. May be called while a body is still being streamed by another coroutine. */
int coroutine_fn hc_answer(struct hc *x, struct err *e);
unsigned hc_status(const struct hc *x);
struct str hc_header(const struct hc *x, const char *name);                     /* .p NULL when absent */
ssize_t coroutine_fn hc_read(struct hc *x, void *p, size_t n, int64_t idle_ms); /* 0 at the end */
int coroutine_fn hc_read_all(struct hc *x, struct buf *b, int64_t idle_ms, struct err *e);
/* Returns the connection to the pool when the exchange is complete, closes it otherwise. */
void hc_close(struct hc *x);
void hc_closep(struct hc **x);
/* After an answer of 101: the stream, now the caller's; unread bytes are kept. NULL when there is none. hc_close is
 * still due. */
struct stream *hc_take_stream(struct hc *x);
const struct h1_head *hc_head(const struct hc *x); /* after hc_answer */
/* From another coroutine or the loop: makes pending reads return -ECANCELED and the connection close. */
void hc_abort(struct hc *x);

/* Incremental parser of an SSE body (WHATWG): feed bytes, called back per event. Pure. */
struct sse_parser {
        struct buf line, data;
        char event[64];
        char id[256];
        bool cr, has_data, bom_done;
        unsigned state;
        int64_t retry;
};
void sse_parser_init(struct sse_parser *p, size_t max_event);
void sse_parser_done(struct sse_parser *p);
int sse_parser_feed(struct sse_parser *p, const char *b, size_t n,
                    int (*fn)(const char *event, const char *id, struct str data, void *arg),
                    void *arg); /* -EMSGSIZE */
