/* fixtures: the tools that the official conformance suite calls (names and payloads are the suite's), on the product's
 * MCP server and without boxes. */
#pragma once

#include "mcp/mcp.h"

extern const struct mcp_tool fixtures[];
extern const size_t fixture_count;

/* mcp_config.call; mcp_user is a pointer to the pointer to the server. */
int coroutine_fn fixtures_call(struct mcp_request *r, const struct mcp_tool *tool, const struct json *args, void *arg);
