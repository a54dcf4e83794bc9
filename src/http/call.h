/*
 * call: one request being handled; the API that handlers see.
 *
 * A call is owned by the server and lives until its handler returns (or, after call_detach, until the passive stream is
 * closed). Every function marked coroutine_fn may suspend; after it, the client may be gone: functions then return
 * -EPIPE or -ECANCELED.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "http/h1.h"
#include "loop/stream.h"

struct call;

struct str call_method(const struct call *c);
struct str call_path(const struct call *c);        /* decoded, without query; empty when url_split_target refuses it */
struct str call_target(const struct call *c);      /* raw */
struct str call_origin_form(const struct call *c); /* raw "/path?query", also of an absolute target; "*" */
struct str call_host(const struct call *c);        /* as sent */
struct str call_header(const struct call *c, const char *name); /* .p NULL when absent */
const struct h1_head *call_head(const struct call *c);
int call_query(const struct call *c, const char *key, struct buf *out); /* 1 found, 0 absent, -EINVAL */
const char *call_peer(const struct call *c);                            /* "ip" of the peer */

/* Something that lives as long as the client's connection; what was attached before is freed. */
void call_attach(struct call *c, void *p, void (*free_fn)(void *p));
void *call_attached(const struct call *c); /* NULL when nothing is */

/* Body. Reading sends 100-continue when it was asked for. */
bool call_has_body(const struct call *c);
int64_t call_body_length(const struct call *c);                               /* -1 when unknown (chunked) */
ssize_t coroutine_fn call_read(struct call *c, void *p, size_t n);            /* 0 at the end of the body */
int coroutine_fn call_read_all(struct call *c, struct buf *b, struct err *e); /* -EMSGSIZE over b->max */

/* Extra response headers, before the answer starts. Copied; the same name may come twice. -EINVAL for a malformed one
 * and for those of the framing (Content-Length, Transfer-Encoding, Connection, Upgrade …), which are the server's. */
int call_add_header(struct call *c, const char *name, const char *value);

/* Whole answers. body may be NULL. */
int coroutine_fn call_reply(struct call *c, unsigned status, const char *type, const void *body, size_t n);
int coroutine_fn call_reply_json(struct call *c, unsigned status, const struct json *j);
/* {"error": "…", "code": "…"} */
int coroutine_fn call_reply_error(struct call *c, unsigned status, const char *code, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/*
 * Streamed answers: length >= 0 sends Content-Length, -1 chunked (HTTP/1.0: until close). The head leaves with the
 * first call_write, call_flush or call_end; call_write passes its bytes on at once (-EMSGSIZE beyond the announced
 * length).
 */
int coroutine_fn call_start(struct call *c, unsigned status, const char *type, int64_t length);
int coroutine_fn call_write(struct call *c, const void *p, size_t n);
int coroutine_fn call_flush(struct call *c);
int coroutine_fn call_end(struct call *c); /* done by the server when the handler returns */
bool call_started(const struct call *c);

/* The answer cannot be completed: the connection is closed so that what was sent does not look whole. */
void call_abort(struct call *c);
/* Leaves out Date and X-Content-Type-Options, for a proxied answer that brings its own headers. Before the answer
 * starts. */
void call_bare(struct call *c);

/* The client hung up: told to the handler by cancelling its coroutine when `cancel` is set, else only visible here. */
void call_cancel_on_hangup(struct call *c, bool cancel);
bool call_gone(const struct call *c);
/* Wakes the handler's coroutine wait with 0 when the client goes (for handlers that must outlive it but want to know).
 */
void call_on_gone(struct call *c, void (*fn)(void *arg), void *arg);

/* Answers 101 with the given Upgrade token and hands over the raw stream (owned by the caller; unread bytes are kept).
 */
int coroutine_fn call_upgrade(struct call *c, const char *token, struct stream **ret);

/* Server-sent events (WHATWG). sse_start sends the head with Cache-Control: no-cache and X-Accel-Buffering: no. */
int coroutine_fn sse_start(struct call *c);
int coroutine_fn sse_event(struct call *c, const char *event, const char *id,
                           struct str data); /* event, id may be NULL */
int coroutine_fn sse_comment(struct call *c, const char *text);

/* sse_detach never suspends (it posts the head when sse_start was not called) and may be called from any loop callback
 * while the handler's coroutine is parked elsewhere: that is how a call that takes long turns from a pending JSON
 * answer into a stream. The handler may then go on, must write by sse_post only, and its return does not end the
 * stream: sse_close does, after flushing.
 *
 * A detached SSE stream: no coroutine, about half a KiB. The server sends a comment heartbeat every heartbeat_ms.
 * on_close runs once when the client is gone or sse_close was called; then s is invalid. */
struct sse;
struct sse *sse_detach(struct call *c, int64_t heartbeat_ms, void (*on_close)(void *arg), void *arg);
int sse_post(struct sse *s, const char *event, const char *id,
             struct str data);            /* never suspends; -EAGAIN when the peer is slow */
int sse_retry(struct sse *s, int64_t ms); /* how long the client is to wait before it comes again; like sse_post */
void sse_close(struct sse *s);
