#include "http/tls.h"

#include "base/mem.h"
#include "loop/loop.h"
#include "loop/stream_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define CLOSE_FLUSH_MS 2000

struct tls_ctx {
        SSL_CTX *ssl;
        unsigned refs;
        bool server;
};

struct tls {
        struct stream s;
        struct stream *inner;
        SSL *ssl;
        unsigned wants; /* what the core asked for */
        bool starved;   /* OpenSSL has nothing complete: wait for the wire */
};

static int ssl_err(struct err *e, const char *what)
{
        char text[160];
        unsigned long code = ERR_get_error();

        ERR_error_string_n(code, text, sizeof text);
        ERR_clear_error();
        return err_set(e, -EPROTO, "%s: %s", what, code ? text : "the connection was closed");
}

/*
 * The BIO under OpenSSL is the inner stream itself, without waiting. Output always goes (what the kernel does not take
 * is queued there), so a record is never half written; tls_try_write keeps that queue short.
 */
static int bio_read(BIO *b, char *p, int n)
{
        struct stream *inner = BIO_get_data(b);
        ssize_t r = n > 0 ? stream_try_read(inner, p, (size_t) n) : 0;

        BIO_clear_retry_flags(b);
        if (r == -EAGAIN)
                BIO_set_retry_read(b);
        return r < 0 ? -1 : (int) r;
}

static int bio_write(BIO *b, const char *p, int n)
{
        BIO_clear_retry_flags(b);
        return n > 0 && stream_put(BIO_get_data(b), p, (size_t) n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
        (void) b;
        (void) num;
        (void) ptr;
        return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method(void)
{
        static BIO_METHOD *method; /* made once per process, never changed */

        if (!method) {
                method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
                if (!method || !BIO_meth_set_read(method, bio_read) || !BIO_meth_set_write(method, bio_write) ||
                    !BIO_meth_set_ctrl(method, bio_ctrl))
                        abort();
        }
        return method;
}

static struct tls *self(const struct stream *s)
{
        return container_of((struct stream *) (uintptr_t) s, struct tls, s);
}

static ssize_t tls_try_read(struct stream *s, void *p, size_t n)
{
        struct tls *t = self(s);
        size_t got = 0;

        ERR_clear_error();
        int ok = SSL_read_ex(t->ssl, p, n, &got);
        if (ok > 0)
                return (ssize_t) got;
        switch (SSL_get_error(t->ssl, ok)) {
        case SSL_ERROR_WANT_READ:
                t->starved = true;
                return -EAGAIN;
        case SSL_ERROR_ZERO_RETURN: /* close_notify, RFC 8446 §6.1 */
                return 0;
        default: /* also an end without close_notify: it may be an attacker's */
                ERR_clear_error();
                return -ECONNRESET;
        }
}

static ssize_t tls_try_write(struct stream *s, const void *p, size_t n)
{
        struct tls *t = self(s);
        size_t done = 0;

        if (stream_queued(t->inner))
                return -EAGAIN;
        ERR_clear_error();
        if (SSL_write_ex(t->ssl, p, n, &done) > 0)
                return (ssize_t) done;
        ERR_clear_error();
        return -ECONNRESET;
}

static void tls_want(struct stream *s, unsigned events)
{
        struct tls *t = self(s);

        t->wants = events;
        if ((events & STREAM_READABLE) && !t->starved && SSL_has_pending(t->ssl))
                stream_kick(s, STREAM_READABLE);
        stream_want(t->inner, events);
}

static void inner_ready(void *arg, unsigned events)
{
        struct tls *t = arg;
        unsigned tell = events & STREAM_HANGUP;

        if (stream_dead(t->inner))
                events |= STREAM_READABLE;
        if (events & STREAM_READABLE)
                t->starved = false;
        tell |= events & t->wants & STREAM_READABLE;
        if ((t->wants & STREAM_WRITABLE) && (!stream_queued(t->inner) || stream_dead(t->inner)))
                tell |= STREAM_WRITABLE;
        if (tell)
                stream_ready(&t->s, tell);
}

static int tls_shutdown(struct stream *s)
{
        struct tls *t = self(s);

        ERR_clear_error();
        (void) SSL_shutdown(t->ssl); /* close_notify; the peer's is read like data */
        ERR_clear_error();
        return stream_shutdown(t->inner);
}

static void tls_close(struct stream *s)
{
        struct tls *t = self(s);
        struct stream *inner = steal_ptr(t->inner);

        stream_set_ready(inner, NULL, NULL);
        SSL_free(steal_ptr(t->ssl));
        if (stream_queued(inner))
                stream_close_after_flush(inner, CLOSE_FLUSH_MS);
        else
                stream_close(inner);
}

static int tls_fd(const struct stream *s)
{
        return stream_fd(self(s)->inner);
}

static const char *tls_peer(struct stream *s)
{
        return stream_peer(self(s)->inner);
}

static const struct stream_ops tls_ops = {
        .try_read = tls_try_read,
        .try_write = tls_try_write,
        .want = tls_want,
        .shutdown = tls_shutdown,
        .close = tls_close,
        .fd = tls_fd,
        .peer = tls_peer,
        .lingers = true,
};

static const unsigned char alpn[] = "\x08http/1.1"; /* RFC 7301: the only protocol either side of ours speaks */

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned n,
                       void *arg)
{
        unsigned char *chosen = NULL;

        (void) ssl;
        (void) arg;
        if (SSL_select_next_proto(&chosen, out_len, alpn, sizeof alpn - 1, in, n) != OPENSSL_NPN_NEGOTIATED)
                return SSL_TLSEXT_ERR_NOACK;
        *out = chosen;
        return SSL_TLSEXT_ERR_OK;
}

static struct tls_ctx *ctx_new(bool server)
{
        struct tls_ctx *t = xcalloc(1, sizeof *t);

        t->refs = 1;
        t->server = server;
        t->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
        if (!t->ssl || !SSL_CTX_set_min_proto_version(t->ssl, TLS1_2_VERSION)) {
                tls_ctx_unref(t);
                return NULL;
        }
        SSL_CTX_set_options(t->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        /* Buffers are given back while a connection is idle; many are. */
        SSL_CTX_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                         SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(t->ssl, 1);
        (void) SSL_CTX_set_session_cache_mode(t->ssl, SSL_SESS_CACHE_OFF);
        return t;
}

int tls_ctx_server(const char *cert, const char *key, struct tls_ctx **ret, struct err *e)
{
        struct tls_ctx *t = ctx_new(true);
        int r = 0;

        if (!t)
                return ssl_err(e, "setting up TLS");
        if (SSL_CTX_use_certificate_chain_file(t->ssl, cert) != 1)
                r = ssl_err(e, "reading the certificate");
        else if (SSL_CTX_use_PrivateKey_file(t->ssl, key, SSL_FILETYPE_PEM) != 1)
                r = ssl_err(e, "reading the key");
        else if (SSL_CTX_check_private_key(t->ssl) != 1)
                r = ssl_err(e, "the key does not belong to the certificate");
        if (r < 0) {
                tls_ctx_unref(t);
                return r;
        }
        SSL_CTX_set_alpn_select_cb(t->ssl, choose_alpn, NULL);
        *ret = t;
        return 0;
}

int tls_ctx_client(const char *ca, struct tls_ctx **ret, struct err *e)
{
        struct tls_ctx *t = ctx_new(false);

        if (!t)
                return ssl_err(e, "setting up TLS");
        int ok = ca ? SSL_CTX_load_verify_file(t->ssl, ca) : SSL_CTX_set_default_verify_paths(t->ssl);
        if (ok != 1 || SSL_CTX_set_alpn_protos(t->ssl, alpn, sizeof alpn - 1) != 0) {
                tls_ctx_unref(t);
                return ssl_err(e, "reading the certificates to trust");
        }
        SSL_CTX_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
        *ret = t;
        return 0;
}

struct tls_ctx *tls_ctx_ref(struct tls_ctx *t)
{
        t->refs++;
        return t;
}

void tls_ctx_unref(struct tls_ctx *t)
{
        if (!t || --t->refs)
                return;
        SSL_CTX_free(t->ssl);
        free(t);
}

/* RFC 9110 §4.3.4: the certificate must be valid for the name the client asked for. */
static bool expect_name(SSL *ssl, const char *name)
{
        unsigned char addr[16];

        if (inet_pton(AF_INET, name, addr) == 1 || inet_pton(AF_INET6, name, addr) == 1)
                return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1; /* RFC 6066 §3 */
}

static SSL *ssl_new(struct tls_ctx *t, struct stream *inner, const char *name, struct err *e)
{
        SSL *ssl = SSL_new(t->ssl);
        BIO *bio = BIO_new(bio_method());

        if (!ssl || !bio || (!t->server && !(name && expect_name(ssl, name)))) {
                SSL_free(ssl);
                BIO_free(bio);
                (void) ssl_err(e, "setting up TLS");
                return NULL;
        }
        BIO_set_data(bio, inner);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl, bio, bio);
        if (t->server)
                SSL_set_accept_state(ssl);
        else
                SSL_set_connect_state(ssl);
        return ssl;
}

static int coroutine_fn shake(SSL *ssl, struct stream *inner, int64_t timeout_ms, struct err *e)
{
        int64_t until = loop_now() + timeout_ms;

        for (;;) {
                ERR_clear_error();
                int ok = SSL_do_handshake(ssl);
                if (ok == 1)
                        return 0;
                if (SSL_get_error(ssl, ok) != SSL_ERROR_WANT_READ) {
                        long verdict = SSL_get_verify_result(ssl);

                        if (verdict != X509_V_OK)
                                return err_set(e, -EKEYREJECTED, "the certificate is not accepted: %s",
                                               X509_verify_cert_error_string(verdict));
                        return ssl_err(e, "the TLS handshake failed");
                }
                int64_t left = until - loop_now();
                int r = timeout_ms < 0 ? stream_wait_readable(inner, -1)
                        : left > 0     ? stream_wait_readable(inner, left)
                                       : -ETIMEDOUT;
                if (r < 0)
                        return err_sys(e, r, "the TLS handshake");
        }
}

int coroutine_fn tls_wrap(struct tls_ctx *ctx, struct stream *s, const char *name, int64_t timeout_ms,
                          struct stream **ret, struct err *e)
{
        SSL *ssl = ssl_new(ctx, s, name, e);

        if (!ssl)
                return -EPROTO;
        int r = shake(ssl, s, timeout_ms, e);
        if (r < 0) {
                SSL_free(ssl);
                return r;
        }
        struct tls *t = xcalloc(1, sizeof *t);
        t->inner = s;
        t->ssl = ssl;
        stream_setup(&t->s, &tls_ops);
        stream_set_ready(s, inner_ready, t);
        *ret = &t->s;
        return 0;
}
