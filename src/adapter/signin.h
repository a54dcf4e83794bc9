/*
 * signin: from "nobody is signed in" to tokens in the file: discovery, registration, the browser, the callback, the
 * exchange. One sign-in at a time; it goes on when the call that started it has ended. While nobody is signed in,
 * parallelsandbox_connect is the only tool.
 */
#pragma once

#include "adapter/challenge.h"
#include "base/err.h"
#include "loop/loop.h"
#include "loop/wait.h"

#define CONNECT_TOOL "parallelsandbox_connect"

struct adapter;
struct call;

struct signin {
        bool running;
        char *link; /* while the person is waited for */
        bool browser;
        bool asked; /* challenge is what the server said to a request, and not to be asked for again */
        bool wider; /* the one that runs asks for more than was granted */
        struct challenge challenge;
        char *scope;          /* what was asked for last */
        struct err why;       /* how the last one ended; code 0: well */
        struct waitq changed; /* the link, or the end */
        struct timer *watch;
        bool looking;
};

void signin_init(struct signin *s);
extern const char signin_tool_list[]; /* {"tools":[…]} with the one tool */

/* Starts one unless one is running. challenge (taken over, emptied): what the server wants beyond what was granted, or
 * NULL. */
void signin_start(struct adapter *a, struct challenge *challenge);
/* 0 when it ended well, -ETIMEDOUT when it is still running, -ECANCELED, or why it failed. Without a running one: how
 * the last one ended. on_link is called when the link becomes known. */
int coroutine_fn signin_wait(struct adapter *a, struct call *c, int64_t timeout_ms, struct err *e);
/* Notices the sign-in of another adapter. */
void signin_watch(struct adapter *a);

void coroutine_fn call_connect(struct call *c);
/* What a call may wait for a person: what its host allows, five minutes at most. */
int64_t signin_patience(const struct adapter *a);
