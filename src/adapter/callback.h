/*
 * callback: the loopback listener that a browser comes back to (RFC 8252 §7.3), and the last page that it shows.
 * The page is not sent before callback_decide, so it says what is true. A request with another state is refused and
 * changes nothing. Functions marked coroutine_fn suspend.
 */
#pragma once

#include "base/err.h"
#include "loop/coro.h"

#include <stdbool.h>

struct callback;

/* What came with the right state. */
struct callback_answer {
        char *code, *error, *iss; /* NULL when absent */
};

/* Listens on 127.0.0.1, on port if it is free, else on another. */
int callback_open(unsigned port, const char *state, struct callback **ret, struct err *e);
unsigned callback_port(const struct callback *b);
/* 0 with the answer (valid until callback_close), -ETIMEDOUT, -ECANCELED. */
int coroutine_fn callback_wait(struct callback *b, int64_t timeout_ms, const struct callback_answer **ret);
/* What the page says. reason: a sentence for the person, or NULL. */
void callback_decide(struct callback *b, bool connected, const char *reason);
void coroutine_fn callback_close(struct callback *b);

/* Pure: the language of the pages that fits an Accept-Language best: 0 en, 1 ja, 2 zh-Hant. */
unsigned callback_language(const char *accept);
