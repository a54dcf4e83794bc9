/*
 * app: the human app's own files, compressed once when they were built, and the rules that a browser is to hold it to.
 * They are the same for everyone: who is signed in, the app asks by /v1/session.
 */
#pragma once

#include "http/call.h"

/* True when the address was one of the app's and an answer was given. Anything below /app/ that is no file is a screen
 * of the app: it gets the page. */
bool coroutine_fn app_handle(struct call *call);
