/*
 * upstream: the MCP client side. Sends one JSON-RPC request over Streamable HTTP and reads its answer, JSON or event
 * stream. The session (if the server gives one) is made on the first request and made anew once when the server has
 * forgotten it. Request ids and progress tokens are this side's own; nothing of the host's leaks into them.
 * upstream_request suspends; cancelling its coroutine tells the server and closes the stream.
 */
#pragma once

#include "adapter/config.h"
#include "base/json.h"
#include "http/client.h"
#include "loop/wait.h"

enum fate {
        FATE_RESULT, /* answer->value is the result's text */
        FATE_ERROR,  /* answer->value is the text of a JSON-RPC error object */
        FATE_CANCELLED,
        FATE_NOT_SENT,    /* no connection was made: nothing ran */
        FATE_UNAVAILABLE, /* HTTP 503: nothing ran */
        FATE_LOST,        /* the connection broke, or ended without the result */
        FATE_SILENT,      /* nothing came for too long */
        FATE_TIMEOUT,     /* the whole call took too long */
        FATE_REFUSED,     /* 401, 403 */
        FATE_BAD,         /* an answer that makes no sense; reason says which */
};

struct answer {
        enum fate fate;
        struct buf message; /* what value points into */
        struct str value;
        struct err reason;
        int64_t retry_after_ms;
};
void answer_done(struct answer *a);

struct up_hooks {
        void (*progress)(void *arg, struct str params); /* notifications/progress for this request's token */
        void (*message)(void *arg, const struct json *params);
        void (*tick)(void *arg, bool moved); /* about once a second; moved: bytes came since the last */
        void *arg;
};

struct up_spec {
        const char *method;
        struct str params; /* the text of an object */
        int64_t id;        /* from upstream_next_id; also the progress token */
        bool repeatable; /* the connection pool may send it again, unseen: never a tool call, whose tries are counted */
        int64_t limit_ms;             /* of the whole call */
        const struct up_hooks *hooks; /* or NULL */
};

struct upstream {
        const struct config *config;
        struct http_client *http;
        const char *agent;
        char client[128]; /* X-Psbx-Client, "" until known */
        char wait_sec[24], authorization[600];
        bool ready, opening;
        struct waitq opened;
        char *session;
        char version[32];
        int64_t last_id;
};

int upstream_init(struct upstream *u, const struct config *c, struct http_client *http, const char *agent,
                  struct err *e);
int64_t upstream_next_id(struct upstream *u);
void coroutine_fn upstream_request(struct upstream *u, const struct up_spec *spec, struct answer *ret);
/* The headers every request of this process carries, name, value, …, NULL; fills at most n pointers. */
void upstream_headers(const struct upstream *u, const char **out, size_t n);
