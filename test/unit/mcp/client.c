#include "client.h"

#include "loop/loop.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ANSWER_MAX ((size_t) 64 << 20)

void check_that(bool ok, const char *file, int line, const char *what)
{
        if (ok)
                return;
        (void) fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
        abort();
}

void answer_done(struct answer *a)
{
        free(a->headers);
        buf_done(&a->body);
        json_unref(a->json);
        *a = (struct answer){ 0 };
}

void coroutine_fn client_open(struct exchange_client *x, unsigned port, const char *method, const char *headers,
                              const char *body)
{
        _cleanup_buf_ struct buf b = BUF_MAX(ANSWER_MAX);
        struct err e = { 0 };

        *x = (struct exchange_client){ .in = BUF_MAX(ANSWER_MAX), .answer.body = BUF_MAX(ANSWER_MAX) };
        CHECK(stream_connect_tcp("127.0.0.1", port, 5000, &x->stream, &e) == 0);
        (void) buf_addf(&b, "%s /mcp HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n%s", method, port, headers);
        if (body)
                (void) buf_addf(&b, "Content-Length: %zu\r\n", strlen(body));
        (void) buf_addf(&b, "\r\n%s", body ? body : "");
        /* A refusal may come before a large body was read. */
        (void) stream_write(x->stream, b.p, b.len, 5000);
}

static void take_headers(struct exchange_client *x, const struct h1_head *h)
{
        struct buf b = BUF_MAX(1 << 20);

        for (size_t i = 0; i < h->header_count; i++) {
                for (size_t j = 0; j < h->headers[i].name.n; j++)
                        (void) buf_addc(&b, (char) tolower((unsigned char) h->headers[i].name.p[j]));
                (void) buf_adds(&b, ": ");
                (void) buf_addstr(&b, h->headers[i].value);
                (void) buf_adds(&b, "\n");
        }
        x->answer.headers = buf_steal(&b);
        x->answer.status = h->status;
        x->answer.is_sse = answer_header(&x->answer, "content-type: text/event-stream");
}

int coroutine_fn client_head(struct exchange_client *x, int64_t timeout_ms)
{
        struct h1_head *h = xcalloc(1, sizeof(*h));
        int64_t until = loop_now() + timeout_ms;
        size_t scanned = 0;
        long n = 0;

        while ((n = h1_response_parse(x->in.p, x->in.len, &scanned, STR("POST"), h, &(struct h1_error){ 0 })) == 0) {
                char *p = buf_room(&x->in, 65536);
                int64_t left = until - loop_now();
                ssize_t r = left > 0 ? stream_read(x->stream, p, 65536, left) : -ETIMEDOUT;

                if (r <= 0) {
                        free(h);
                        return r < 0 ? (int) r : -EPIPE;
                }
                buf_grew(&x->in, (size_t) r);
        }
        CHECK(n > 0);
        take_headers(x, h);
        h1_body_init(&x->body, h);
        buf_consume(&x->in, (size_t) n);
        if (x->answer.is_sse)
                sse_parser_init(&x->parser, ANSWER_MAX);
        free(h);
        return 0;
}

static int on_event(const char *event, const char *id, struct str data, void *arg)
{
        struct exchange_client *x = arg;
        struct json *j = NULL;

        if (id && *id && !cstr_eq(id, x->answer.last_id)) {
                CHECK(strlen(id) < sizeof x->answer.last_id);
                (void) snprintf(x->answer.last_id, sizeof x->answer.last_id, "%s", id);
                x->stop |= x->stop_at_id;
        }
        if (data.n == 0) {
                CHECK(x->answer.events == 0 && id && *id); /* only to open a stream */
                x->answer.empty++;
                return 0;
        }
        CHECK(json_parse(data.p, data.n, &j, NULL) == 0);
        CHECK(cstr_eq(json_get_str(j, "jsonrpc", NULL), "2.0"));
        x->answer.events++;
        if (json_has(j, "result") || json_has(j, "error")) {
                CHECK(!x->answer.json);
                x->answer.json = json_ref(j);
        }
        if (x->on_event && x->on_event(j, x->arg))
                x->stop = true;
        json_unref(j);
        return 0;
}

static void take(struct exchange_client *x, const char *p, size_t n)
{
        if (!x->answer.is_sse) {
                CHECK(buf_add(&x->answer.body, p, n) == 0);
                return;
        }
        if (n >= 1 && p[0] == ':')
                x->answer.comments++;
        CHECK(sse_parser_feed(&x->parser, p, n, on_event, x) == 0);
}

/* What is in x->in; true when the end was among it. */
static bool feed(struct exchange_client *x)
{
        while (x->in.len > 0 && !x->body.done && !x->stop) {
                const char *data;
                size_t len;
                long n = h1_body_feed(&x->body, x->in.p, x->in.len, &data, &len);

                CHECK(n >= 0);
                if (n == 0)
                        break;
                if (len > 0)
                        take(x, data, len);
                buf_consume(&x->in, (size_t) n);
        }
        return x->body.done;
}

int coroutine_fn client_read(struct exchange_client *x, int64_t timeout_ms)
{
        int64_t until = loop_now() + timeout_ms;

        while (!feed(x) && !x->stop) {
                char *p = buf_room(&x->in, 65536);
                int64_t left = until - loop_now();
                ssize_t r = left > 0 ? stream_read(x->stream, p, 65536, left) : -ETIMEDOUT;

                if (r < 0)
                        return (int) r;
                if (r == 0)
                        return -EPIPE;
                buf_grew(&x->in, (size_t) r);
        }
        if (x->stop) {
                x->stop = false;
                return 1;
        }
        x->answer.whole = true;
        if (!x->answer.is_sse && x->answer.body.len > 0)
                CHECK(json_parse(x->answer.body.p, x->answer.body.len, &x->answer.json, NULL) == 0);
        return 0;
}

void client_close(struct exchange_client *x)
{
        stream_close(x->stream);
        buf_done(&x->in);
        if (x->answer.is_sse)
                sse_parser_done(&x->parser);
        answer_done(&x->answer);
}

struct answer coroutine_fn ask(unsigned port, const char *method, const char *headers, const char *body)
{
        struct exchange_client x;
        struct answer a;

        client_open(&x, port, method, headers, body);
        CHECK(client_head(&x, 20000) == 0);
        CHECK(client_read(&x, 20000) == 0);
        a = x.answer;
        x.answer = (struct answer){ .is_sse = a.is_sse };
        client_close(&x);
        return a;
}

struct answer coroutine_fn post(unsigned port, const char *headers, const char *body)
{
        _cleanup_free_ char *all = xasprintf("Content-Type: application/json\r\n%s", headers);

        return ask(port, "POST", all, body);
}

bool answer_header(const struct answer *a, const char *line)
{
        const char *at = a->headers;
        size_t n = strlen(line);

        for (; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
                if (!strncmp(at, line, n) && at[n] == '\n')
                        return true;
        return false;
}

char *answer_header_value(const struct answer *a, const char *name)
{
        const char *at = a->headers;
        size_t n = strlen(name);

        for (; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
                if (!strncmp(at, name, n) && at[n] == ':')
                        return xstrndup(at + n + 2, strcspn(at + n + 2, "\n"));
        return NULL;
}
