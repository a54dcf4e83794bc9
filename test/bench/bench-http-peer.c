/*
 * The peer of bench-http.py: the least a server on libuv and http_parser can do for a hello. Callbacks, no limits, no
 * checks. cc -O2 bench-http-peer.c -luv -lhttp_parser -o bench-http-peer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <http_parser.h>
#include <uv.h>

struct conn {
        uv_tcp_t tcp;
        http_parser parser;
};

static char in[65536];
static const char answer[] =
        "HTTP/1.1 200 OK\r\nDate: Sun, 29 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n"
        "X-Content-Type-Options: nosniff\r\n\r\nhello\n";

static void on_close(uv_handle_t *h)
{
        free(h);
}

static int on_done(http_parser *p)
{
        struct conn *c = p->data;
        uv_buf_t b = uv_buf_init((char *) answer, sizeof answer - 1);

        if (uv_try_write((uv_stream_t *) &c->tcp, &b, 1) != (int) b.len)
                uv_close((uv_handle_t *) &c->tcp, on_close);
        return 0;
}

static void on_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
        (void) h;
        (void) n;
        *b = uv_buf_init(in, sizeof in);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
        static const http_parser_settings settings = { .on_message_complete = on_done };
        struct conn *c = (struct conn *) s;

        if (n > 0 && http_parser_execute(&c->parser, &settings, b->base, (size_t) n) != (size_t) n)
                n = UV_EPROTO;
        if (n < 0 && !uv_is_closing((uv_handle_t *) s))
                uv_close((uv_handle_t *) s, on_close);
}

static void on_connection(uv_stream_t *l, int status)
{
        struct conn *c = calloc(1, sizeof *c);

        if (status < 0 || !c || uv_tcp_init(l->loop, &c->tcp) < 0)
                abort();
        http_parser_init(&c->parser, HTTP_REQUEST);
        c->parser.data = c;
        if (uv_accept(l, (uv_stream_t *) &c->tcp) < 0 || uv_tcp_nodelay(&c->tcp, 1) < 0 ||
            uv_read_start((uv_stream_t *) &c->tcp, on_alloc, on_read) < 0)
                uv_close((uv_handle_t *) &c->tcp, on_close);
}

int main(void)
{
        struct sockaddr_storage ss;
        struct sockaddr_in sin;
        int len = sizeof ss;
        uv_tcp_t l;

        if (uv_ip4_addr("127.0.0.1", 0, &sin) < 0 || uv_tcp_init(uv_default_loop(), &l) < 0 ||
            uv_tcp_bind(&l, (struct sockaddr *) &sin, 0) < 0 ||
            uv_listen((uv_stream_t *) &l, 1024, on_connection) < 0 ||
            uv_tcp_getsockname(&l, (struct sockaddr *) &ss, &len) < 0)
                return 1;
        memcpy(&sin, &ss, sizeof sin);
        printf("%u\n", (unsigned) ntohs(sin.sin_port));
        fflush(stdout);
        return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
