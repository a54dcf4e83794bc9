/*
 * reminder: folders of boxes that a failed sandbox_sync left with their old files. The next sandbox_exec on such a box
 * says so, once. Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/list.h"

struct reminders {
        struct list all; /* of struct reminder; bounded, the oldest goes first */
        size_t n;
};

void reminders_init(struct reminders *r);
/* failed: remember; else forget, since the folder was synced after all. */
void reminders_set(struct reminders *r, const char *box, const char *dest, bool failed);
/* Adds a text block about box to the content of a tool's result, and forgets. False when there is nothing to say. */
bool reminders_add(struct reminders *r, const char *box, struct str result, struct buf *out);
