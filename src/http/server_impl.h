/*
 * server_impl: what server.c, conn.c, call.c and sse.c share. Not for anyone outside of this folder.
 *
 * A conn owns its stream and is in exactly one of the server's lists, which is its state; the lists are ordered by the
 * time of entry, so one timer finds all that are over time. A call belongs to its conn while CONN_RUNNING; an sse while
 * CONN_DETACHED.
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "http/call.h"
#include "http/server.h"
#include "http/tls.h"
#include "loop/loop.h"
#include "loop/wait.h"

#define DRAIN_MAX ((size_t) 256 << 10) /* an unread request body up to this is read away, to keep the connection */
#define DRAIN_MS 5000                  /* longest pause while doing so */
#define WHEEL_TICK_MS 250
#define WHEEL_SLOTS 128

enum conn_state {
        CONN_TLS,      /* the handshake runs in a coroutine */
        CONN_IDLE,     /* no byte of a request yet */
        CONN_HEAD,     /* a part of a head is there */
        CONN_RUNNING,  /* a call's coroutine has the stream */
        CONN_DETACHED, /* a passive event stream */
        CONN_LINGER,   /* answered and shut down; what still comes is thrown away, so that the answer is not lost to a
                          reset */
        CONN_STATES,
};

struct addr { /* how many connections one address has */
        unsigned count;
        char ip[46];
};

struct conn {
        struct list link;
        struct http_server *server;
        struct stream *stream;
        struct addr *addr;
        struct call *call;
        struct sse *sse;
        struct coro *handshake;
        struct tls_ctx *tls; /* until the handshake is done */
        void *upstream;      /* the proxy's connection that waits for the next request */
        void (*upstream_free)(void *upstream);
        void *attached; /* a handler's, for the life of the connection */
        void (*attached_free)(void *attached);
        struct buf in; /* the head so far */
        size_t scanned;
        int64_t since; /* loop_now of entering the state */
        enum conn_state state;
};

struct sse {
        struct list slot; /* in the wheel */
        struct conn *conn;
        uint64_t due, period; /* ticks */
        void (*on_close)(void *arg);
        void *arg;
        unsigned missed; /* heartbeats that did not fit into the queue */
        bool chunked, keep, gone;
};

struct listen { /* one listening address */
        struct list link;
        struct http_server *server;
        struct listener *listener;
        struct tls_ctx *tls; /* or NULL */
};

struct http_server {
        struct http_limits limits;
        void (*handler)(struct call *c, void *arg);
        void *arg;
        struct list listens;
        struct list conns[CONN_STATES];
        size_t counts[CONN_STATES];
        size_t open; /* all states together */
        bool exempt_loopback;
        struct map *addrs;
        struct h1_head *scratch; /* heads are parsed into this, then kept as small as they are */
        struct timer *tick;
        struct list wheel[WHEEL_SLOTS];
        struct timer *wheel_timer;
        uint64_t wheel_now;
        size_t wheel_count;
        struct list calls; /* whose coroutine has not ended, also those that gave their stream away */
        size_t running;
        struct waitq drained; /* told when one ends */
        struct http_stats stats;
        int64_t date_at; /* Unix seconds of `date` */
        char date[48];
        bool stopping, dying;
};

struct call {
        struct list link;
        struct http_server *server;
        struct conn *conn; /* NULL once the stream was handed over */
        struct coro *coro;
        struct h1_head *head;
        char *path; /* decoded */
        size_t path_len;
        struct str query;
        struct h1_body body;
        struct buf extra; /* header lines of the handler */
        struct buf out;   /* bytes of the answer that wait for the first write */
        uint64_t left;    /* of the answer's Content-Length */
        void (*on_gone)(void *arg);
        void *on_gone_arg;
        int failed;      /* first error of writing */
        int body_failed; /* first error of reading the body */
        unsigned status;
        bool started, ended, chunked, counted, no_body; /* of the answer; counted: Content-Length was announced */
        bool keep;                                      /* the connection, after the answer */
        bool bare, has_date, has_nosniff;
        bool body_touched, continue_sent;
        bool gone, cancel, handed_over;
};

/* conn.c */
/* attached may be NULL; attached_free then too. */
void conn_new(struct http_server *s, struct stream *stream, struct tls_ctx *tls, void *attached,
              void (*attached_free)(void *attached));
void conn_free(struct conn *c);
void conn_drop(struct conn *c); /* like conn_free, but what is queued goes out */
void conn_enter(struct conn *c, enum conn_state state);
void conn_idle(struct conn *c);   /* waits for the next request */
void conn_linger(struct conn *c); /* what is queued goes out; then the end */
void conn_refuse(struct conn *c, unsigned status, const char *reason);

/* server.c */
void server_tick_start(struct http_server *s);
void server_coro_ended(struct http_server *s); /* may free s */
const char *server_date(struct http_server *s);

/* call.c, call_write.c */
/* Like call_start: the head waits in c->out. Never suspends. */
int call_prepare(struct call *c, unsigned status, const char *type, int64_t length);
void coroutine_fn call_main(void *arg);
struct call *call_new(struct conn *c, const struct h1_head *h, const char *p, size_t n);
void call_free(struct call *c);
const char *http_error_code(unsigned status);
int http_error_body(struct buf *b, const char *code, struct str message);

/* sse.c */
void sse_wheel_stop(struct http_server *s);
