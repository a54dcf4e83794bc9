/* stream_fd: the back end for descriptors. Internal to loop/. Nothing here suspends. */
#pragma once

#include <sys/socket.h>

#include "loop/stream.h"

/* Takes over fd on success. peer may be NULL (asked from the kernel when it is a socket). */
int fd_stream_new(int fd, const struct sockaddr *peer, struct stream **ret);
