/*
 * conn: blocking frames on one connection, for the processes that serve one operation each.
 * The descriptor belongs to the caller. Everything here may block in the kernel; PID 1 uses only the *_nb parts.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "guest/guest.h"

#include <stdbool.h>
#include <stdint.h>

/* Sends one frame. 0 or -errno (-EPIPE: the peer is gone). */
int conn_send(int fd, enum guest_stream stream, unsigned flags, const void *p, size_t n);
/* The same without waiting: -EAGAIN when not even the start fits; a frame is never sent in part on purpose. */
int conn_send_nb(int fd, enum guest_stream stream, unsigned flags, const void *p, size_t n);

/* Sends n bytes as frames of at most 256 KiB, without the end flag. */
int conn_send_bytes(int fd, enum guest_stream stream, const void *p, size_t n);

/* The result under construction: fields go through .w, reply_send adds "done":true and sends it. */
struct reply {
        struct buf b;
        struct jw w;
};

void reply_init(struct reply *r);
int reply_send(struct reply *r, int fd); /* and frees */
/* Turns a reply into an event frame ("done" is not added). */
int reply_event(struct reply *r, int fd);

/* An error result: {"done":true,"error":…,"code":"ENOENT"}. */
int conn_error(int fd, const struct err *e);
int conn_errorf(int fd, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The symbolic name of a negative errno, "EIO" when it has none. */
const char *code_name(int code);

/* Reading the frames of one stream as a byte stream. */
struct conn {
        int fd;
        enum guest_stream want;
        uint32_t left; /* of the current frame */
        bool last;     /* the current frame carries the end flag */
        bool ended;
};

/*
 * Up to cap bytes of the wanted stream: > 0, 0 at its end, -ECONNRESET when the peer went away before it, -EPROTO for a
 * frame of another stream.
 */
long conn_data(struct conn *c, void *p, size_t cap);
/* Reads the rest of the stream and throws it away (bounded), so that the peer gets to reading the result. */
void conn_drain(struct conn *c);
