/*
 * closer: closes descriptors whose last close takes long (unmounting a disk waits for the whole machine to pass a quiet
 * moment) in a thread, so that the request loop goes on meanwhile. The thread does nothing but read, close and write:
 * it allocates nothing and holds no lock, so processes may be cloned at any time. struct closer owns the thread and two
 * pipes.
 */
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <stdint.h>

struct closer {
        pthread_t thread;
        int to, from; /* from becomes readable when one was closed */
};

int closer_start(struct closer *c, struct err *e);
/* Waits until everything that was given is closed. */
void closer_stop(struct closer *c);
/* Takes over fd; the ticket comes back from closer_done when it is closed. -errno: fd is still the caller's. */
int closer_give(struct closer *c, int fd, uint32_t ticket);
/* The next ticket, or -EAGAIN. */
int closer_done(struct closer *c, uint32_t *ret_ticket);
