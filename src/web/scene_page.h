/*
 * scene_page: what a browser sees in place of a scene that cannot be shown. A page for people (in their language, which
 * tries again by itself and gives way to the product once it answers), JSON for everything else. Each answers and may
 * suspend.
 */
#pragma once

#include "auth/auth.h"
#include "web/scene_route.h"

/* Wrong key, unknown box, unknown service: one and the same answer. */
void coroutine_fn scene_page_unknown(struct auth *a, struct call *call);
/* r and e as proxy_serve gave them; leaves: the request went to externalBaseUrl. */
void coroutine_fn scene_page_failed(struct auth *a, struct call *call, const struct scene_route *route, bool leaves,
                                    int r, const struct err *e);
