/*
 * scene_route: what one scene host name, or port, means, resolved: the box, the service, and how the proxy rewrites for
 * it. Kept at the client's connection for a moment, so that a page with a hundred files is looked up once. Reference
 * counted: an exchange may outlive the connection (a tunnel does). Nothing here suspends.
 */
#pragma once

#include "control/scene.h"
#include "http/proxy.h"

struct scene_route {
        unsigned refs;
        const struct control *c;
        int64_t until; /* loop_now() up to which it may be used without looking again */
        char *host;    /* as the client wrote it */
        unsigned port; /* the scene's own port, where it has no name; else 0 */
        char box[33], account[16];
        struct wires services;
        size_t index;   /* the service among them */
        char inner[32]; /* "localhost:5173" */
        char inner_origin[40];
        char outer_origin[320];
        char key[96];           /* names the service for the proxy */
        char cookie_prefix[48]; /* where there is a port */
        struct proxy_policy policy;
        struct scene_outside *outside; /* where externalBaseUrl leads; NULL: the box has none */
};

/* The same for requests that leave the box (wires.h): a name in mode external, and scenePaths. */
struct scene_outside {
        char host[300], origin[320], base[2048], key[96];
        struct proxy_policy policy;
};

/* Whether this request of the route goes to externalBaseUrl. */
bool scene_route_leaves(const struct scene_route *r, const struct call *call);

/* What a connection that came in by a scene's port has attached from the start, and how it is freed. */
struct scene_route *scene_route_at(const struct control *c, unsigned port);
void scene_route_detach(void *route);

/* The route of a call's port or Host; *ret a reference, or NULL when it is no scene's name at all. -ENOENT: it is one,
 * and there is nothing to see: wrong key, unknown box, unknown service, all the same. -EIO: the store. */
int scene_route_find(const struct control *c, struct call *call, struct scene_route **ret, struct err *e);
void scene_route_unref(struct scene_route *r);
void scene_route_unrefp(struct scene_route **r);
#define _cleanup_route_ _cleanup_(scene_route_unrefp)

uint16_t scene_route_port(const struct scene_route *r);
const char *scene_route_service(const struct scene_route *r);
