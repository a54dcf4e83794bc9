/* remote: what the command-line programs ask of a running server: MCP tool calls and GETs, inside a coroutine. */
#pragma once

#include "http/client.h"
#include "base/json.h"

struct remote {
        struct http_client *http;
        const char *key; /* or NULL */
};

int remote_open(const char *url, const char *key, struct remote *ret, struct err *e);
void remote_close(struct remote *r);
/* The status, with the JSON body (or NULL) in *ret. */
int coroutine_fn remote_get(struct remote *r, const char *path, struct json **ret, struct err *e);
/* structuredContent of a tool's result; -EIO with the tool's text when it failed. args is consumed. */
int coroutine_fn remote_tool(struct remote *r, const char *tool, struct json *args, struct json **ret, struct err *e);

/* Runs fn in a coroutine on a loop of its own and returns its value. */
int remote_run(int coroutine_fn (*fn)(void *arg, struct err *e), void *arg, struct err *e);
