/*
 * toy: an MCP server with a handful of tools that do nothing but show what the server makes of them; for test-server.c
 * and for the probes (mcp-toy).
 */
#pragma once

#include "http/server.h"
#include "mcp/mcp.h"

struct toy {
        struct mcp_server *mcp;
        struct http_server *http;
        struct map *sessions; /* owner and id → struct mcp_session */
        unsigned completed;   /* handlers that did all their work */
        unsigned cancelled;   /* handlers that saw -ECANCELED and mcp_cancelled */
        unsigned sessions_opened;
        bool check_origin, polled;
};

/* The account is the X-Owner header, "toy" without one. */
void toy_start(struct toy *t, const struct mcp_config *limits, unsigned port);
void coroutine_fn toy_stop(struct toy *t);
