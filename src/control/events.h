/*
 * events: what changes while a person looks on, as small facts on one stream of server-sent events (GET /v1/events).
 *
 * Each account that somebody watches has a feed: the last events, with ids that only grow, and the streams that follow
 * it. A stream is a passive object; one that does not read is ended, and taken up again where it broke off
 * (Last-Event-ID) it loses and doubles nothing, or is told to look at everything anew (`reset`). Facts of boxes and
 * steps come from the store as they are written (boxes_watch), conversations' from agents.c and from the clock: `away`
 * begins without anybody's doing. An account that nobody watches costs nothing.
 */
#pragma once

#include "control/control.h"

struct events;
struct events *events_new(struct control *c); /* watches the store until events_free */
void events_free(struct events *ev);
/* Ends every stream; clients come again. */
void events_end_all(struct events *ev);

/* A fact for everyone who watches the account; data is one JSON object, copied. */
void events_publish(struct events *ev, const char *account, const char *name, struct str data);
/* The conversation called, beat or left: the boxes whose state that changes are told of. ev may be NULL. */
void events_agent(struct events *ev, const char *account, const char *agent);

/* Answers GET /v1/events. `since`: the id to go on after, "" for none. */
void coroutine_fn events_serve(struct events *ev, struct call *call, const char *account, struct str since);

size_t events_streams(const struct events *ev);
