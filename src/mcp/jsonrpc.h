/*
 * jsonrpc: one JSON-RPC 2.0 message, read strictly, and the bodies of errors.
 *
 * A struct rpc owns its tree; method and params are borrowed from it. Ids (and progress tokens) are kept as JSON text,
 * so that they are echoed with type and value as they came, whatever their size; equal ids have equal text. Nothing
 * here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

#define RPC_ID_MAX 1024 /* bytes of an id or token as JSON text; they are stored while a call runs */

enum rpc_code {
        RPC_PARSE_ERROR = -32700,
        RPC_INVALID_REQUEST = -32600,
        RPC_METHOD_NOT_FOUND = -32601,
        RPC_INVALID_PARAMS = -32602,
        RPC_INTERNAL_ERROR = -32603,
        RPC_SERVER_ERROR = -32000,      /* busy */
        RPC_SESSION_NOT_FOUND = -32001, /* with HTTP 404 */
};

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };

struct rpc {
        enum rpc_kind kind;
        struct json *tree;
        char *id; /* JSON text, NULL without one */
        const char *method;
        const struct json *params; /* an object, or NULL */
};

/* 0, or -EINVAL with e->code set to the enum rpc_code for the answer and its message. ret->id is then set when the
 * message had a usable one. rpc_done in both cases. */
int rpc_parse(const char *p, size_t n, struct rpc *ret, struct err *e);
void rpc_done(struct rpc *m);
#define _cleanup_rpc_ _cleanup_(rpc_done)

/* The JSON text of an id or token (a string or an integer of at most RPC_ID_MAX bytes), allocated; NULL for anything
 * else. */
char *rpc_id_text(const struct json *j);

/* {"jsonrpc":"2.0","id":…,"error":{"code":…,"message":…}}; id NULL writes null. */
int rpc_error_body(struct buf *b, const char *id, int code, const char *message);
/* {"jsonrpc":"2.0","id":…,"result":<result>} */
int rpc_result_body(struct buf *b, const char *id, struct str result);
