/*
 * http-test: what the end-to-end tests of http/ share: a server on a free loopback port inside the test's own loop, and
 * a raw client that speaks bytes. Inside coroutines CHECK is used (see loop-test.h).
 */
#pragma once

#include "../loop/loop-test.h"

#include "http/client.h"
#include "http/server.h"

static struct http_server *server;
static unsigned port;

static inline void serve_with(const struct http_limits *l, void (*handler)(struct call *c, void *arg))
{
        struct err e;

        server = http_server_new(l, handler, NULL);
        if (http_server_listen(server, "127.0.0.1", 0, &e) < 0) {
                fprintf(stderr, "%s\n", err_text(&e));
                abort();
        }
        port = http_server_port(server);
}

static inline void serve_end(void)
{
        http_server_stop(server, 5000);
        http_server_free(server);
        server = NULL;
}

/* A raw connection: what it reads is kept until it is expected. */
struct wire {
        struct stream *s;
        struct buf in;
};

static inline struct wire *wire_open(void)
{
        struct wire *w = xcalloc(1, sizeof *w);

        w->in = BUF_MAX(16 << 20);
        CHECK_INT(stream_connect_tcp("127.0.0.1", port, MS_MAX, &w->s, NULL), 0);
        return w;
}

static inline void wire_close(struct wire *w)
{
        stream_close(w->s);
        buf_done(&w->in);
        free(w);
}

static inline void wire_send(struct wire *w, const char *text)
{
        CHECK_INT(stream_write(w->s, text, strlen(text), MS_MAX), 0);
}

/* Reads until the text has been seen; everything up to its end is dropped. */
static inline void wire_expect(struct wire *w, const char *text)
{
        for (;;) {
                const char *at = w->in.len ? memmem(w->in.p, w->in.len, text, strlen(text)) : NULL;

                if (at) {
                        buf_consume(&w->in, (size_t) (at - w->in.p) + strlen(text));
                        return;
                }
                char *p = buf_room(&w->in, 4096);
                CHECK(p != NULL);
                ssize_t n = stream_read(w->s, p, 4096, 5000);
                if (n <= 0) {
                        fprintf(stderr, "expected %s, got %.*s (%zd)\n", text, (int) w->in.len, w->in.p, n);
                        abort();
                }
                buf_grew(&w->in, (size_t) n);
        }
}

/* Reads to the end of the connection: everything that came, without what was expected before. */
static inline const char *wire_rest(struct wire *w)
{
        ssize_t n;

        do {
                char *p = buf_room(&w->in, 4096);

                CHECK(p != NULL);
                n = stream_read(w->s, p, 4096, 5000);
                if (n > 0)
                        buf_grew(&w->in, (size_t) n);
        } while (n > 0);
        CHECK(n == 0 || n == -ECONNRESET);
        return buf_cstr(&w->in);
}

static inline bool has(const char *text, const char *part)
{
        if (!strstr(text, part)) {
                fprintf(stderr, "no %s in: %s\n", part, text);
                return false;
        }
        return true;
}

static inline struct url origin(void)
{
        struct url u = { .port = port, .path = "/" };

        memcpy(u.host, "127.0.0.1", 10);
        return u;
}
