/* page: a page of web/pages for a visitor of whom nothing is known, and that needs no other address of this server. */
#pragma once

#include "auth/auth.h"

/* In the language the browser asks for; with data and no header but the content's. Suspends. */
void coroutine_fn page_alone(struct auth *a, struct call *call, unsigned status, const char *page, struct json *data);
