/* resolve: getaddrinfo on the thread pool, every address. Internal to loop/. Suspends. */
#pragma once

#include <netdb.h>

#include "base/err.h"
#include "loop/coro.h"

/* *ret: free with freeaddrinfo(3). Numeric addresses work too. */
int coroutine_fn resolve_all(const char *host, int64_t timeout_ms, struct addrinfo **ret, struct err *e);
