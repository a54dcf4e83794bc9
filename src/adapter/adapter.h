/*
 * adapter: the program behind parallelsandbox-mcp: MCP over stdio on one side, the server's Streamable HTTP on the
 * other.
 *
 * One process is one conversation. Starting costs nothing but reading the environment: no network, no file, no thread
 * until the first request needs one. stdout carries JSON-RPC only (out.h). The process ends by itself only when its
 * host closes stdin or sends a signal.
 */
#pragma once

#include "adapter/config.h"
#include "adapter/creds.h"
#include "adapter/lines.h"
#include "adapter/listen.h"
#include "adapter/out.h"
#include "adapter/presence.h"
#include "adapter/reminder.h"
#include "adapter/signin.h"
#include "adapter/start.h"
#include "adapter/tools.h"
#include "adapter/upstream.h"
#include "base/list.h"

struct adapter {
        struct config config;
        char agent[32];
        char cwd[4096];
        struct out out;
        struct lines in;
        struct http_client *mcp_http, *api_http;
        struct creds creds;
        struct upstream up;
        struct signin signin;
        struct presence presence;
        struct tools tools;
        struct starts starts;
        struct reminders reminders;
        struct listeners listeners;
        struct list calls; /* of struct call, by their host's id */
        struct waitq idle; /* woken when calls becomes empty */
        bool legacy;       /* the host said `initialize` */
        bool ending;
        int exit_code;
};

/* Runs the program to its end; returns its exit code. */
int adapter_main(void);

/* message.c: one line from the host. */
int adapter_line(struct str line, void *arg);

/* Answers; id is the text of the request's id. */
void adapter_reply_raw(struct adapter *a, struct str id, struct str result);
void adapter_reply_error(struct adapter *a, struct str id, int code, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
/* Tells the host, in the way of its era, that the list of tools is another one. */
void adapter_tools_changed(struct adapter *a);

/* Ends the process in an orderly way within limit_ms; again: at once. */
void adapter_end(struct adapter *a, int code, int64_t limit_ms);
