/* presence: tells the server that this conversation is alive, once a minute from the first tool call on, and when it
 * leaves. */
#pragma once

#include "base/json.h"
#include "loop/loop.h"

struct adapter;

struct presence {
        struct timer *timer;
        bool started, busy;
};

void presence_touch(struct adapter *a);
/* Says goodbye, if anything was ever said; at most limit_ms. */
void coroutine_fn presence_leave(struct adapter *a, int64_t limit_ms);
