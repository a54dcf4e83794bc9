/*
 * tls: TLS 1.2 and 1.3 by OpenSSL as a filter over a stream: memory BIOs, so that OpenSSL never does I/O of its own.
 *
 * A context is counted; filters keep what they need of it. The filter owns the
 * stream under it from the moment tls_wrap succeeds; before that the caller keeps it.
 */
#pragma once

#include "base/err.h"
#include "loop/stream.h"

#include <stdbool.h>

struct tls_ctx;

/* cert: a PEM file with the chain, key: a PEM file. Reads the files: blocking, for start-up. */
int tls_ctx_server(const char *cert, const char *key, struct tls_ctx **ret, struct err *e);
/* Verifies peers against ca (a PEM file), or the system's store when ca is NULL. */
int tls_ctx_client(const char *ca, struct tls_ctx **ret, struct err *e);
struct tls_ctx *tls_ctx_ref(struct tls_ctx *t);
void tls_ctx_unref(struct tls_ctx *t); /* NULL is fine */

/* Handshakes on s and returns the filter. name: for a client, the host name or address the certificate must be valid
 * for. */
int coroutine_fn tls_wrap(struct tls_ctx *t, struct stream *s, const char *name, int64_t timeout_ms,
                          struct stream **ret, struct err *e);
