/*
 * front: what every HTTP request passes first: Host and Origin (DNS rebinding), authentication, and the choice of who
 * answers it. Owns nothing but its own settings; runs in the request's coroutine.
 */
#pragma once

#include "auth/auth.h"
#include "control/control.h"
#include "http/server.h"
#include "mcp/mcp.h"

struct front {
        struct control *control;
        struct auth *auth;
        struct mcp_server *mcp;
        struct http_server *http;
        struct db *db;
        struct scenes *scenes; /* answers requests whose Host names a scene; NULL: nobody */
        const char *host;      /* listening host, as in the origin, without port */
        unsigned port;
        unsigned scene_from, scene_to;  /* ports of scenes: never this server's, whatever the name; 0: none */
        const char *const *extra_hosts; /* further names people use for this server, NULL terminated, or NULL */
        int64_t started_ms;
        bool stopping;
        bool (*driver_ready)(const struct driver *d);
};

void coroutine_fn front_handle(struct call *call, void *front);

/* For tests: whether a Host value ("name", "name:port", "[v6]:port") names this server. */
bool front_host_ok(const struct front *f, struct str host);
bool front_origin_ok(const struct front *f, struct str origin);

/* Prometheus text (metrics.c). */
int metrics_write(const struct front *f, struct buf *out);
