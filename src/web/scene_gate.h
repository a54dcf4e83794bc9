/*
 * scene_gate: who may come in at a scene's port. A host name holds the key; a port does not, so the first address does,
 * as a path, and leaves a cookie. Cookies are not separated by port, and every port of a host is the same site to a
 * browser: so the gate also refuses what a page of another origin has the browser send.
 */
#pragma once

#include "http/call.h"
#include "web/scene_route.h"

enum scene_gate {
        SCENE_GATE_OPEN,
        SCENE_GATE_SHUT,  /* the one plain page */
        SCENE_GATE_ENTERS /* the key was right: scene_gate_enter */
};
enum scene_gate scene_gate(const struct scene_route *r, const struct call *call);
/* Answers: cookies for every port of the box, and the same address without the key. */
void coroutine_fn scene_gate_enter(const struct scene_route *r, struct call *call);
