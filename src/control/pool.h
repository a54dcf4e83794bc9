/*
 * pool: boxes that stand ready, so that a start need not wait for one to be made (docs/server.md, "Warm boxes").
 *
 * They are of the default image and the size that is asked for most, belong to nobody, have no row, and are in memory
 * only: a server that comes up finds boxes without a row and removes them, as any other that nobody was told of. Taking
 * one turns it into the caller's; the pool is then filled again a moment later. It grows by demand and shrinks without.
 */
#pragma once

#include "control/control.h"

#define POOL_MOST 64 /* what --warm may ask for */

/* most: how many may stand ready, 0 for no pool (NULL is returned, which every function here takes). */
struct pool *pool_new(struct control *c, size_t most);
void pool_free(struct pool *p); /* after pool_stop, or when the loop has ended */

/* The driver's boxes can be seen: fills from now on. */
void pool_begin(struct pool *p);
/* What boxes that name no image start from: others than these are let go. */
void pool_usual(struct pool *p, const struct image_choice *usual);
/* A ready box of this image, version and all, and size, which is the caller's from here on: true, and its id. */
bool pool_take(struct pool *p, const struct image_choice *image, const char *size, char id[33]);
/* After the driver was asked what there is: takes the pool's own out of states (id -> "running", …), and gives up those
 * that are not there or do not run. */
void pool_settle(struct pool *p, struct map *states);
/* A box that stood ready ended by itself; false when it is none of the pool's. */
bool pool_box_ended(struct pool *p, const char *id);
size_t pool_ready(const struct pool *p);
/* Less room than before: lets boxes go that would be too many. */
void pool_squeeze(struct pool *p);
/* Makes no more and removes those that stand ready. Before the driver goes away. */
void coroutine_fn pool_stop(struct pool *p);
