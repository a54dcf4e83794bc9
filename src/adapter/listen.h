/*
 * listen: the host's subscriptions/listen requests (2026-07-28): open until cancelled, each told what it asked for and
 * nothing else. Nothing here suspends.
 */
#pragma once

#include "base/json.h"
#include "base/list.h"

struct adapter;

struct listeners {
        struct list all; /* of struct listener */
        size_t n;
};

void listeners_init(struct listeners *l);
void listeners_add(struct adapter *a, struct str id, const struct json *params);
void listeners_cancel(struct adapter *a, struct str id);
void listeners_tools_changed(struct adapter *a);
/* The end of the program: each gets its response. */
void listeners_end(struct adapter *a);
