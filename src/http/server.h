/*
 * server: the HTTP/1.1 server. A connection is a passive object while idle; each request runs in a coroutine.
 *
 * Limits (all settable): head 10 s, body progress 30 s, keep-alive 60 s idle, connections in all and per address;
 * beyond them 503 with Retry-After. Graceful stop: listeners close, idle connections close at once, running requests
 * end, then the detached event streams (a running call may be answering on one).
 */
#pragma once

#include "http/call.h"
#include "loop/stream.h"

struct http_server;

struct http_limits {
        int64_t head_ms, body_ms, idle_ms, write_ms; /* 0 = default */
        size_t connections, per_address;
        size_t requests_running;
};

/* handler runs in a coroutine for each request; when it returns without an answer, 500 is sent. */
struct http_server *http_server_new(const struct http_limits *l, void (*handler)(struct call *c, void *arg), void *arg);
int http_server_listen(struct http_server *s, const char *addr, unsigned port, struct err *e);
/* The same with TLS 1.2 or 1.3 from PEM files (certificate chain, key), which are read at once. */
int http_server_listen_tls(struct http_server *s, const char *addr, unsigned port, const char *cert, const char *key,
                           struct err *e);
/* A connection that was accepted elsewhere. attached is what call_attached gives in its requests; free_fn runs once,
 * when the connection is over or its stream was handed over. */
void http_server_take(struct http_server *s, struct stream *stream, void *attached, void (*free_fn)(void *attached));
unsigned http_server_port(const struct http_server *s);
/* Suspends until every running request has ended, or timeout_ms; then cancels the rest. */
void coroutine_fn http_server_stop(struct http_server *s, int64_t timeout_ms);
void http_server_free(struct http_server *s);

struct http_stats {
        uint64_t requests, connections_open, connections_total, refused, bytes_in, bytes_out;
};
void http_server_stats(const struct http_server *s, struct http_stats *ret);
