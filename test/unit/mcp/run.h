/* run: each test is a function that runs in a coroutine beside a toy server of its own. */
#pragma once

#include "client.h"
#include "toy.h"

struct run {
        const char *name;
        void (*fn)(struct toy *t, unsigned port);
        struct mcp_config limits;
};

/* Runs them one after the other on one loop; a failed CHECK ends the program. */
int run_all(const struct run *tests, size_t n);

/* A JSON-RPC request or notification as text, allocated. params: "{…}" or NULL; id: JSON text or NULL. */
char *rpc(const char *id, const char *method, const char *params);
char *call_of(const char *id, const char *tool, const char *args, const char *token); /* token: JSON text or NULL */
char *coroutine_fn open_session(unsigned port,
                                const char *headers);        /* "Mcp-Session-Id: …\r\n" and the headers, allocated */
int64_t error_code(const struct answer *a);                  /* 0 without one */
void expect(struct answer a, unsigned status, int64_t code); /* frees a */
