/*
 * stream: one kind of byte stream for TCP, Unix sockets, pipes and TLS, with back-pressure both ways.
 *
 * Ownership: who opened or accepted it owns it and calls stream_close once; memory goes away later on the loop.
 * At most one reader and one writer at a time. Reading in coroutines: stream_read. Idle streams without a stack:
 * stream_passive. Errors are negative errno; after an error other than -ETIMEDOUT/-ECANCELED only stream_close is
 * allowed.
 */
#pragma once

#include "base/err.h"
#include "loop/coro.h"

#include <sys/types.h>

struct stream;

/* Write backlog above which stream_write suspends. */
#define STREAM_HIGH_WATER ((size_t) 64 << 10)

/* Connect. host is an IPv4/IPv6 literal or a name. timeout_ms covers resolving and connecting. */
int coroutine_fn stream_connect_tcp(const char *host, unsigned port, int64_t timeout_ms, struct stream **ret,
                                    struct err *e);
int coroutine_fn stream_connect_unix(const char *path, int64_t timeout_ms, struct stream **ret, struct err *e);
/* Takes over a connected socket or pipe end (made non-blocking). On error the caller keeps fd. */
int stream_from_fd(int fd, struct stream **ret, struct err *e);

/* The same for a socket that a stranger may hold a copy of, and whose flags it may change at any time. */
int stream_from_shared_fd(int fd, struct stream **ret, struct err *e);
void shared_fd_close(int fd); /* close(2) of such a one, which cannot be made to wait for long (close_shared.c) */

/* stream_read on a Unix socket, with the first descriptor that came along in *ret_fd, which the caller presets (-1) and
 * owns; what comes while it holds one is closed. */
ssize_t coroutine_fn stream_read_fd(struct stream *s, void *p, size_t n, int *ret_fd, int64_t timeout_ms);

/* Reads 1..n bytes; 0 at end of stream. */
ssize_t coroutine_fn stream_read(struct stream *s, void *p, size_t n, int64_t timeout_ms);
/* Exactly n bytes, or -ENODATA when the stream ended first. */
int coroutine_fn stream_read_full(struct stream *s, void *p, size_t n, int64_t timeout_ms);
/* Puts bytes back to be read first (a parser read too far); at most 64 KiB. */
int stream_unread(struct stream *s, const void *p, size_t n);

/* Tries to write at once without copying and queues a copy of the rest; suspends first while more than
 * STREAM_HIGH_WATER is queued. -EPIPE/-ECONNRESET when the peer is gone, -ETIMEDOUT when no byte moved for timeout_ms.
 * A message of up to STREAM_HIGH_WATER bytes is queued as a whole or, on -ETIMEDOUT and -ECANCELED, not at all; of a
 * larger one a part may have gone out. */
int coroutine_fn stream_write(struct stream *s, const void *p, size_t n, int64_t timeout_ms);
int coroutine_fn stream_flush(struct stream *s, int64_t timeout_ms); /* until the kernel has it all */
/* Never suspends: queues up to limit bytes in all, else -EAGAIN (a slow passive peer). */
int stream_post(struct stream *s, const void *p, size_t n, size_t limit);
size_t stream_queued(const struct stream *s);

int stream_shutdown(struct stream *s); /* ends the writing side after what is queued */
void stream_close(struct stream *s);   /* NULL is fine; queued bytes are dropped: flush first when they matter */
void stream_closep(struct stream **s);
/* Like stream_close, but lets queued bytes drain for at most timeout_ms (-1: a minute). On TCP what the peer still
 * sends is then read away for up to two seconds, so that the end of an answer is not lost by unread input. */
void stream_close_after_flush(struct stream *s, int64_t timeout_ms);

/* Watches for the peer's hang-up or error while nobody reads: fn runs once on the loop. Bytes that arrive meanwhile (up
 * to 64 KiB, then reading pauses) are kept for stream_read. NULL fn stops watching. */
void stream_watch(struct stream *s, void (*fn)(void *arg), void *arg);
bool stream_dead(const struct stream *s); /* hang-up or error was seen */

/* Passive reading without a coroutine: on_data for each chunk, on_end once (r = 0 or -errno). NULL on_data stops. */
void stream_passive(struct stream *s, void (*on_data)(void *arg, const void *p, size_t n),
                    void (*on_end)(void *arg, int r), void *arg);
void stream_pause(struct stream *s, bool pause); /* of passive reading: back-pressure */

int stream_fd(const struct stream *s);
/* "127.0.0.1:4711" or "unix"; for logs. */
const char *stream_peer(const struct stream *s);

/* Copies a→b until a ends (b is shut down for writing then), with idle limit; returns bytes or -errno.
 * pump_both runs both directions (the second in a coroutine of its own) and returns when both ended. */
int64_t coroutine_fn pump(struct stream *from, struct stream *to, int64_t idle_ms);
int coroutine_fn pump_both(struct stream *a, struct stream *b, int64_t idle_ms);

/*
 * tunnel: pump_both without a coroutine, for what idles long: a and b, now the tunnel's, copy into each other until
 * both ended, one failed, or nothing moved for idle_ms (-1: no limit). on_end runs once on the loop (r 0 or -errno),
 * after both were closed; the tunnel is gone then. tunnel_close ends it without on_end.
 */
struct tunnel;
struct tunnel *tunnel_start(struct stream *a, struct stream *b, int64_t idle_ms, void (*on_end)(void *arg, int r),
                            void *arg);
void tunnel_close(struct tunnel *t);
int64_t tunnel_moved(const struct tunnel *t); /* loop_now() of the last byte in either direction */

/* Listeners. on_accept owns the stream it gets. */
struct listener;
int listen_tcp(const char *addr, unsigned port, int backlog, void (*on_accept)(struct stream *s, void *arg), void *arg,
               struct listener **ret, struct err *e);
int listen_unix(const char *path, mode_t mode, void (*on_accept)(struct stream *s, void *arg), void *arg,
                struct listener **ret, struct err *e);
int listen_fd(int fd, void (*on_accept)(struct stream *s, void *arg), void *arg, struct listener **ret, struct err *e);
unsigned listener_port(const struct listener *l); /* the port the kernel chose for port 0 */
void listener_close(struct listener *l);
void listener_closep(struct listener **l);

/* Message sockets (SOCK_SEQPACKET): one datagram per call, with suspension. */
struct msgsock;
int msgsock_from_fd(int fd, struct msgsock **ret, struct err *e);
int coroutine_fn msgsock_send(struct msgsock *m, const void *p, size_t n, int64_t timeout_ms);
ssize_t coroutine_fn msgsock_recv(struct msgsock *m, void *p, size_t n, int64_t timeout_ms); /* 0 = peer gone */
/* The same, for messages that may bring a descriptor: *ret_fd is the caller's, or -1. */
ssize_t coroutine_fn msgsock_recv_fd(struct msgsock *m, void *p, size_t n, int *ret_fd, int64_t timeout_ms);
void msgsock_close(struct msgsock *m);
