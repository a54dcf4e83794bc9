/*
 * tools: the server's list of tools, fetched when the host first asks for it and kept. It is compared from time to time
 * and after an error that hints at an old schema; a change is told to the host once.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "loop/loop.h"
#include "loop/wait.h"

struct adapter;

struct tools {
        struct buf list; /* {"tools":[…]}, empty until fetched */
        bool fetching, checking;
        int64_t retry_ms; /* after a failure: when to look again by ourselves */
        struct waitq fetched;
        struct timer *timer;
};

void tools_init(struct tools *t);
/* 0 with a->tools.list filled (or, when nobody is signed in, not), or a negative errno with the reason. */
int coroutine_fn tools_get(struct adapter *a, struct err *e);
/* Somebody signed in or out: the list is another one. */
void tools_forget(struct adapter *a);
/* Compares in the background. */
void tools_check(struct adapter *a);
