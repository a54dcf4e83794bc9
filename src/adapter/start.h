/*
 * start: boxes that were asked for and whose answer never arrived. A later look finds them by name and goal among this
 * conversation's boxes, so that a lost answer does not mean a lost box, and the same request again does not make a
 * second one.
 */
#pragma once

#include "base/json.h"
#include "base/list.h"
#include "loop/coro.h"

#include <stddef.h>

struct call;

struct starts {
        struct list lost; /* of struct lost_start, newest last; bounded */
        size_t n;
};

void starts_init(struct starts *s);
/* Remembers the start of c, whose answer did not reach the host. */
void start_remember(struct call *c);
/* Looks for the box c has made; its row of sandbox_list, or NULL. Suspends. */
struct json *coroutine_fn start_find(struct call *c, int64_t since_wall_ms);
/* Before a start runs: the box an identical, interrupted start has made, or NULL. Suspends only when there was such a
 * start. */
struct json *coroutine_fn start_again(struct call *c);
/* Pure: is this row of sandbox_list the box that args (of sandbox_start) made since then? */
bool start_is_row(const struct json *row, const struct json *args, int64_t since_wall_ms);
