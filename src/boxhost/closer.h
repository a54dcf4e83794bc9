/*
 * closer: the slow end of a destroyed box, in a thread, so that the request loop goes on meanwhile: removing an
 * interface and unmounting a disk both wait for the whole machine to pass a quiet moment. The thread reads, asks the
 * kernel, closes and writes; it allocates nothing and holds no lock, so processes may be cloned at any time. struct
 * closer owns the thread and two pipes.
 */
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <stdint.h>

#define BOX_REST_NONE ((struct box_rest){ -1, -1, -1 })

struct net;

/* What is left of a box: -1 where there is nothing. */
struct box_rest {
        int disk;  /* a descriptor whose last close unmounts */
        int index; /* of an interface */
        int watch; /* of a disk that must be free before this is over (disk_watch) */
};

struct closer {
        pthread_t thread;
        int to, from; /* from becomes readable when a rest is gone */
};

/* net may be NULL; it must outlive the closer, which has a socket of its own. */
int closer_start(struct closer *c, const struct net *net, struct err *e);
/* Waits until everything that was given is gone. */
void closer_stop(struct closer *c);
/* Takes over the rest; the ticket comes back from closer_done. -errno: it is still the caller's. */
int closer_give(struct closer *c, const struct box_rest *rest, uint32_t ticket);
/* The next ticket and how it went (0 or -errno); -EAGAIN when there is none yet. */
int closer_done(struct closer *c, uint32_t *ret_ticket, int *ret_result);
