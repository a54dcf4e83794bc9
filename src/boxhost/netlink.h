/*
 * netlink: batches of rtnetlink requests, answered in one round trip. A batch lives on the caller's stack and allocates
 * nothing, so it also works in a freshly cloned child. Blocks only for the kernel's answer.
 */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct nlmsghdr;

#define NL_BATCH_BYTES 4096
#define NL_BATCH_MAX 16

struct nl_batch {
        _Alignas(8) char bytes[NL_BATCH_BYTES];
        size_t len, count;
        const char *what[NL_BATCH_MAX]; /* for messages, borrowed */
        int ignored[NL_BATCH_MAX];      /* errno that counts as success, 0 for none */
        struct nlmsghdr *open;
};

int nl_open(int protocol, struct err *e); /* a socket, or -errno */
void nl_batch_init(struct nl_batch *b);
/* Starts a request (REQUEST and ACK are added) and returns its zeroed family header of n bytes. */
void *nl_begin(struct nl_batch *b, uint16_t type, uint16_t flags, size_t n, const char *what);
struct nlmsghdr *nl_message(struct nl_batch *b); /* the open request, for mnl_attr_put… */
void nl_ignore(struct nl_batch *b, int error);   /* for the open request */
/* Sends all and reads all answers; the first failure is returned, with its `what`. */
int nl_send(int fd, struct nl_batch *b, struct err *e);
