/*
 * upstream: the MCP client side. Sends one JSON-RPC request over Streamable HTTP and reads its answer, JSON or event
 * stream. The era is agreed on with the first request: `initialize`, since streams of the older revisions can be taken
 * up again when a connection breaks, and server/discover where that is refused. Session and era are agreed on anew,
 * once a request, when the server has forgotten the one or has become another one. A refused token is refreshed and the
 * request repeated, once. Request ids and progress tokens are this side's own; nothing of the host's leaks into them.
 * upstream_request suspends; cancelling its coroutine tells the server and closes the stream.
 */
#pragma once

#include "adapter/challenge.h"
#include "adapter/config.h"
#include "adapter/creds.h"
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
        FATE_SIGN_IN,     /* somebody has to sign in first: nothing ran */
        FATE_SCOPE,       /* 403 insufficient_scope: nothing ran; the challenge names what is needed */
        FATE_BAD,         /* an answer that makes no sense; reason says which */
};

struct answer {
        enum fate fate;
        struct buf message; /* what value points into */
        struct str value;
        struct err reason;
        int64_t retry_after_ms;
        struct challenge challenge; /* of a 401 or 403 */
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
        const char *name;  /* params.name of a tools/call, else NULL */
        struct str params; /* the text of an object */
        int64_t id;        /* from upstream_next_id; also the progress token */
        bool repeatable; /* the connection pool may send it again, unseen: never a tool call, whose tries are counted */
        int64_t limit_ms;             /* of the whole call */
        const struct up_hooks *hooks; /* or NULL */
        bool anonymous;               /* without the sign-in: asks what the server wants */
};

struct upstream {
        const struct config *config;
        struct http_client *http;
        const char *agent;
        char client[128]; /* X-Psbx-Client, "" until known */
        struct creds *creds;
        char wait_sec[24];
        bool ready, opening;
        bool modern; /* the era agreed on */
        struct waitq opened;
        char *session;
        char version[32];
        int64_t last_id;
};

void upstream_init(struct upstream *u, const struct config *c, struct creds *creds, struct http_client *http,
                   const char *agent);
int64_t upstream_next_id(struct upstream *u);
void coroutine_fn upstream_request(struct upstream *u, const struct up_spec *spec, struct answer *ret);
/* Ends the session, if there is one; best effort within limit_ms. */
void coroutine_fn upstream_close(struct upstream *u, int64_t limit_ms);
/* The headers every request of this process carries, name, value, …, NULL; fills at most n pointers. */
void upstream_headers(const struct upstream *u, const char **out, size_t n);
