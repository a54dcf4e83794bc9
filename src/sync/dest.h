/*
 * dest: where below /work a sync goes, judged before anything is sent.
 * Pure; nothing here suspends.
 */
#pragma once

#include "base/err.h"
#include "guest/guest.h"

struct dest {
        char path[GUEST_PATH_MAX + 1]; /* below /work, no leading or trailing slash; "" is /work itself */
        bool folder;                   /* it was written with a trailing slash: one file goes into it */
};

/* -EINVAL with a sentence for absolute paths outside /work, "~" and anything with "..". */
int dest_parse(const char *s, struct dest *ret, struct err *e);
/* Last component, and what comes before it ("" when there is none). */
const char *dest_base(const struct dest *d);
size_t dest_parent_len(const struct dest *d);
