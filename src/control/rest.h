/* rest: one REST request being answered; the pieces of rest*.c share it. */
#pragma once

#include "control/control.h"

struct rest {
        struct control *c;
        struct call *call;
        const struct identity *who;
        struct str segment;
        char id[65]; /* the path's variable segment */
};

void coroutine_fn rest_boxes_list(struct rest *r);
void coroutine_fn rest_boxes_get(struct rest *r);
void coroutine_fn rest_sync(struct rest *r);
void coroutine_fn rest_plan(struct rest *r);
void coroutine_fn rest_prune(struct rest *r);
void coroutine_fn rest_heartbeat(struct rest *r);
void coroutine_fn rest_leave(struct rest *r);
void coroutine_fn rest_secrets_list(struct rest *r);
void coroutine_fn rest_secret_put(struct rest *r);
void coroutine_fn rest_secret_delete(struct rest *r);
void coroutine_fn rest_steps(struct rest *r);
void coroutine_fn rest_unsaved(struct rest *r);
void coroutine_fn rest_stop(struct rest *r);
void coroutine_fn rest_restore(struct rest *r);
void coroutine_fn rest_events(struct rest *r);

/* The status that fits a negative errno, with e's sentence. */
void coroutine_fn rest_fail(struct rest *r, int code, const struct err *e);
