/*
 * tokenfile: what is kept of a sign-in, one file per endpoint: oauth-<32 hex of sha256(url)>.json, 0600 in a 0700
 * folder, replaced atomically. It holds
 *
 *   {"version": 1, "endpoint", "issuer", "resource", "tokenEndpoint",
 *    "client": {"id", "secret"?, "method", "redirectUri"}, "tokens": {"access", "refresh"?, "scope"?, "expiresAt"?},
 *    "refreshing"?: when a refresh was begun whose answer is not known}
 *
 * Reading needs no lock. Who wants to change it holds the lock (flock on a file beside it) from reading to writing; it
 * goes with its owner, however that ends, and cannot be taken from one that lives. Functions marked coroutine_fn
 * suspend.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "loop/coro.h"

struct tokenfile {
        char *dir, *path, *lock;
        const char *endpoint;
};

/* dir NULL: ~/.parallelsandbox. Touches nothing. */
int tokenfile_init(struct tokenfile *f, const char *dir, const char *endpoint, struct err *e);

/* The content, or NULL when there is no usable file. locked: the caller has the lock, and a file that cannot be
 * understood is set aside. */
struct json *coroutine_fn tokenfile_read(const struct tokenfile *f, bool locked);
int coroutine_fn tokenfile_write(const struct tokenfile *f, const struct json *content, struct err *e);
/* Waits for the lock; its descriptor, or -errno. Closing it gives it back. */
int coroutine_fn tokenfile_lock(const struct tokenfile *f, int64_t timeout_ms, struct err *e);
/* A number that is another one when the file is another one; 0 without a file. Never suspends. */
uint64_t tokenfile_stamp(const struct tokenfile *f);
