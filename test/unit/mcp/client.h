/*
 * client: HTTP requests as bytes and answers as they come, for tests; not the product's client, so that a mistake
 * made in both cannot hide. Every function may suspend its coroutine. A failure of the test's own means ends the
 * program.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "http/client.h"

#define CHECK(condition) check_that(condition, __FILE__, __LINE__, #condition)
void check_that(bool ok, const char *file, int line, const char *what);

struct answer {
        unsigned status;
        char *headers; /* "name: value\n" with names in lower case */
        struct buf body;
        struct json *json;                /* the body, or the last event that is an answer */
        unsigned events, comments, empty; /* empty: events with an id and without data */
        char last_id[64];
        bool is_sse, whole; /* whole: the end of the body came */
};

/* One exchange: open, then read what comes. */
struct exchange_client {
        struct stream *stream;
        struct buf in;
        struct h1_body body;
        struct sse_parser parser;
        struct answer answer;
        int (*on_event)(struct json *event, void *arg); /* may be NULL; non-zero stops reading */
        void *arg;
        bool stop, stop_at_id; /* stop_at_id: behind the first event that has one */
};

/* headers: complete lines with \r\n, or "". body NULL: none. The head of the answer is not waited for. */
void coroutine_fn client_open(struct exchange_client *x, unsigned port, const char *method, const char *headers,
                              const char *body);
int coroutine_fn client_head(struct exchange_client *x, int64_t timeout_ms); /* 0 or -errno */
int coroutine_fn client_read(struct exchange_client *x,
                             int64_t timeout_ms); /* until the end: 0, stopped: 1, or -errno */
void client_close(struct exchange_client *x);
void answer_done(struct answer *a);

/* All of it, with the usual headers of a POST before the given ones. */
struct answer coroutine_fn post(unsigned port, const char *headers, const char *body);
struct answer coroutine_fn ask(unsigned port, const char *method, const char *headers, const char *body);
bool answer_header(const struct answer *a, const char *line);        /* "name: value" is among them */
char *answer_header_value(const struct answer *a, const char *name); /* allocated */
