/*
 * box_impl: what the files about boxes share (box, life, put_away, unsaved, reconcile, disk_room). Not for tools.
 *
 * Claims: an id is claimed while a call starts, restores, archives or deletes its box, with words for others that come
 * meanwhile. A claimed id is judged by nobody else: not by reconcile, not by the clock.
 */
#pragma once

#include "control/control.h"

struct box *box_new(struct control *c, const char *id, const char *account, int64_t oom_kills);
void box_drop(struct box *b);                       /* lets go of a reference without it having been use */
void box_forget(struct control *c, const char *id); /* it no longer runs */

void box_claim(struct control *c, const char *id, const char *why); /* why is a constant */
void box_unclaim(struct control *c, const char *id);
/* NULL when it is not claimed. */
const char *box_claimed(struct control *c, const char *id);

/* Takes a place among those that may run (c->starting), in arrival order. */
int coroutine_fn box_take_slot(struct control *c, const struct box_request *r, struct err *e);
/* Archives the frozen box that is unused for longest. False when there is none. */
bool coroutine_fn box_make_room(struct control *c);
/* Takes the values of r->secrets out of its goal and name (*goal and *name: the caller's); -EINVAL for services. */
int box_hide_secrets(struct control *c, const struct identity *who, struct box_request *r, char **goal, char **name,
                     struct err *e);
struct json *coroutine_fn box_unsaved(struct control *c, const struct box_row *row);

#define FROZEN_WHY "it was not used for a while; any use wakes it"
/* Freezes it unless it is in use. */
int coroutine_fn box_freeze(struct control *c, struct box *b, struct err *e);
/* Until it runs: thaws it, together with whoever else wants that. The caller holds a reference. -ESTALE: it cannot. */
int coroutine_fn box_awake(struct control *c, struct box *b, struct err *e);
/* Ends a running or frozen box; its disk is kept. The caller holds a reference. */
int coroutine_fn box_put_away(struct control *c, struct box *b, const char *why, struct err *e);
/* Deletes an archived or lost box for ever. */
int coroutine_fn box_delete(struct control *c, const struct box_row *row, const char *why, struct err *e);
/* Why a box cannot be used now, in words that say what to do; also -ENOENT for one that is not the account's. */
int box_explain(struct control *c, const char *account, const char *id, struct err *e);

/* This process has changed the state of the box: a list of the driver's that is on its way may be older. */
void box_changed(struct control *c, const char *id);
/* Compares with the driver once more, soon: something went wrong in the middle. */
void control_reconcile_soon(struct control *c);
