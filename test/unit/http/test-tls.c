/* TLS: server and client of ours, with certificates made here. */
#include "http-test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define H "Host: a\r\n"
#define BIG ((size_t) 8 << 20)

static char dir[] = "/tmp/psbx-tls-XXXXXX";
static char cert_path[64], key_path[64];

static void write_pem(const char *names)
{
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *x = X509_new();
        X509V3_CTX ctx;

        ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
        X509_set_version(x, X509_VERSION_3);
        X509_gmtime_adj(X509_getm_notBefore(x), -3600);
        X509_gmtime_adj(X509_getm_notAfter(x), 3600);
        X509_set_pubkey(x, key);
        X509_NAME *name = X509_get_subject_name(x);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *) "test", -1, -1, 0);
        X509_set_issuer_name(x, name);
        X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
        X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, names);
        CHECK(san != NULL && X509_add_ext(x, san, -1) == 1);
        X509_EXTENSION_free(san);
        CHECK(X509_sign(x, key, EVP_sha256()) > 0);
        FILE *f = fopen(cert_path, "w");
        CHECK(f && PEM_write_X509(f, x));
        fclose(f);
        f = fopen(key_path, "w");
        CHECK(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
        fclose(f);
        X509_free(x);
        EVP_PKEY_free(key);
}

static void coroutine_fn handler(struct call *c, void *arg)
{
        struct str path = call_path(c);
        char *p = xmalloc(65536);
        ssize_t n;

        if (str_eq(path, STR("/echo"))) {
                n = call_start(c, 200, "x/y", -1);
                while (n == 0 && (n = call_read(c, p, 65536)) > 0)
                        n = call_write(c, p, (size_t) n);
        } else if (str_eq(path, STR("/wait"))) {
                call_cancel_on_hangup(c, true);
                CHECK_INT(coro_sleep(MS_MAX), -ECANCELED);
        } else {
                (void) call_reply(c, 200, "text/plain", "hello", 5);
        }
        free(p);
}

static void start(const struct http_limits *l, const char *names)
{
        struct err e;

        write_pem(names);
        server = http_server_new(l, handler, NULL);
        CHECK_INT(http_server_listen_tls(server, "127.0.0.1", 0, cert_path, key_path, &e), 0);
        port = http_server_port(server);
}

static int coroutine_fn dial(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e)
{
        return stream_connect_tcp("127.0.0.1", port, timeout_ms, ret, e);
}

static struct http_client *client(const char *host, bool trust)
{
        struct url u = { .https = true, .port = 443, .path = "/" };

        memcpy(u.host, host, strlen(host) + 1);
        struct http_client *h = http_client_new(&u);
        http_client_set_dial(h, dial, NULL);
        if (trust)
                http_client_set_ca(h, cert_path);
        return h;
}

#define GET(p) (&(struct http_request){ .method = "GET", .path = p })

static void hello(struct http_client *h)
{
        _cleanup_buf_ struct buf b = BUF_MAX(100);
        struct hc *x;
        struct err e;

        if (hc_open(h, GET("/"), &x, NULL, &e) < 0 || hc_answer(x, &e) < 0 || hc_read_all(x, &b, MS_MAX, &e) < 0) {
                fprintf(stderr, "%s\n", err_text(&e));
                abort();
        }
        CHECK(cstr_eq(buf_cstr(&b), "hello"));
        hc_close(x);
}

static void coroutine_fn feed(void *arg)
{
        struct hc *x = arg;
        char *p = xcalloc(1, 50000);

        for (size_t i = 0; i < BIG; i += 50000)
                CHECK_INT(hc_write(x, p, min_size(50000, BIG - i)), 0);
        CHECK_INT(hc_write_end(x), 0);
        free(p);
}

static void do_round_trip(void *arg)
{
        const struct http_request q = { .method = "POST", .path = "/echo", .streamed = true };
        struct http_stats st;
        struct hc *x;
        struct err e;
        size_t total = 0;
        ssize_t n;

        start(NULL, "DNS:box.test,DNS:*.wild.test,IP:127.0.0.1");
        struct http_client *h = client("box.test", true);
        hello(h);
        hello(h);
        CHECK_INT(hc_open(h, &q, &x, NULL, &e), 0);
        CHECK(coro_start(feed, x, 0, "feed") != NULL);
        CHECK_INT(hc_answer(x, &e), 0);
        char *p = xmalloc(65536);
        while ((n = hc_read(x, p, 65536, MS_MAX)) > 0)
                total += (size_t) n;
        CHECK_INT(n, 0);
        CHECK_INT(total, BIG);
        free(p);
        hc_close(x);
        hello(h);
        http_server_stats(server, &st);
        CHECK_INT(st.connections_total, 1);
        http_client_free(h);
        h = client("127.0.0.1", true);
        hello(h);
        http_client_free(h);
        h = client("a.wild.test", true);
        hello(h);
        CHECK_INT(hc_open(h, GET("/wait"), &x, NULL, &e), 0);
        CHECK_INT(coro_sleep(20), 0);
        hc_close(x); /* noticed by the handler, which checks it */
        CHECK_INT(coro_sleep(50), 0);
        http_client_free(h);
        serve_end();
}

static void rejected(const char *host, bool trust)
{
        struct http_client *h = client(host, trust);
        struct hc *x;
        struct err e;
        bool not_sent = false;

        CHECK_INT(hc_open(h, GET("/"), &x, &not_sent, &e), -EKEYREJECTED);
        CHECK(not_sent);
        CHECK(has(err_text(&e), "certificate"));
        http_client_free(h);
}

static void do_rejected(void *arg)
{
        start(NULL, "DNS:box.test,DNS:*.wild.test");
        rejected("other.test", true);
        rejected("a.b.wild.test", true);
        rejected("127.0.0.1", true);
        rejected("box.test", false);
        struct http_client *h = client("box.test", true);
        hello(h);
        http_client_free(h);
        serve_end();
}

/* Peers that do not speak TLS, or not to an end. */
static void do_hostile(void *arg)
{
        struct http_stats st;

        start(&(struct http_limits){ .head_ms = 150 }, "DNS:box.test");
        struct wire *plain = wire_open(), *mute = wire_open(), *gone = wire_open();
        wire_send(plain, "GET / HTTP/1.1\r\n" H "\r\n");
        (void) wire_rest(plain);
        wire_close(gone);
        CHECK(cstr_eq(wire_rest(mute), ""));
        http_server_stats(server, &st);
        CHECK_INT(st.refused, 3);
        CHECK_INT(st.connections_open, 0);
        wire_close(plain);
        wire_close(mute);
        struct http_client *h = client("box.test", true);
        hello(h);
        http_client_free(h);
        mute = wire_open();
        CHECK_INT(coro_sleep(10), 0);
        serve_end(); /* in the middle of a handshake */
        wire_close(mute);
}

static void do_files(void *arg)
{
        struct err e;

        write_pem("DNS:box.test");
        server = http_server_new(NULL, handler, NULL);
        CHECK(http_server_listen_tls(server, "127.0.0.1", 0, "/nonexistent", key_path, &e) < 0);
        CHECK(http_server_listen_tls(server, "127.0.0.1", 0, cert_path, cert_path, &e) < 0);
        serve_end();
}

#define TEST(name)                            \
        static void test_##name(void **state) \
        {                                     \
                run(do_##name, NULL);         \
        }

TEST(round_trip)
TEST(rejected)
TEST(hostile)
TEST(files)

int main(void)
{
        const struct CMUnitTest tests[] = { LOOP_TEST(test_round_trip), LOOP_TEST(test_rejected),
                                            LOOP_TEST(test_hostile), LOOP_TEST(test_files) };

        if (!mkdtemp(dir))
                return 1;
        (void) snprintf(cert_path, sizeof cert_path, "%s/cert.pem", dir);
        (void) snprintf(key_path, sizeof key_path, "%s/key.pem", dir);
        int r = cmocka_run_group_tests_name("http tls", tests, NULL, NULL);
        (void) unlink(cert_path);
        (void) unlink(key_path);
        (void) rmdir(dir);
        return r;
}
