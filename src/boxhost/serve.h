/*
 * serve: the request loop. Answers the server's messages one after the other and tells it of boxes that ended. Returns
 * when the inherited connection closes or a signal asks for it; boxes go on. The connections belong to the loop.
 */
#pragma once

#include "boxhost/host.h"

#define SERVE_MESSAGE_MAX 65536

struct serve_options {
        int fd;             /* an inherited SOCK_SEQPACKET connection, or -1 */
        const char *listen; /* path to listen on instead, or NULL */
        uid_t peer_uid;     /* who may connect there */
};

int serve(struct host *h, const struct serve_options *o, struct err *e);
