/*
 * dial: a byte stream to a port in a box. Where boxd and the driver can, the connected socket itself comes over and
 * nothing goes through boxd; otherwise bytes go in frames over boxd's connection. boxd is hostile: what it passes is
 * checked, and a stream from it is treated as one that a stranger shares.
 */
#pragma once

#include "control/control.h"

/*
 * *ret is the caller's. Counts not as use and does not wake the box: the caller does that first.
 * -ECONNREFUSED: nothing listens on that port in the box; -ENOENT: the box does not run; -EPROTO: its daemon broke the
 * protocol. At most 15 s.
 */
int coroutine_fn guest_dial(struct control *c, const char *box, uint16_t port, struct stream **ret, struct err *e);

/* A boxd connection past its "connected" event as a plain stream (dial_framed.c); owns inner. */
struct stream *framed_stream(struct stream *inner);

/* 0 when fd is a connected TCP stream socket, else -EPROTO with the reason in e. For tests too. */
int dialed_socket_check(int fd, struct err *e);
