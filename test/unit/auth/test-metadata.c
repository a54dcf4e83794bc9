/* Client ID metadata documents: what is accepted, and the guard around fetching one, over loopback TLS with a
 * certificate made here. */
#include "../loop/loop-test.h"

#include "auth/client_metadata.h"
#include "base/address.h"
#include "base/mem.h"
#include "http/server.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define ID "https://localhost/clients/one.json"
#define DOCUMENT "{\"client_id\":\"" ID "\",\"client_name\":\"One\",\"redirect_uris\":[\"http://localhost/callback\"]}"

static void test_ids(void **state)
{
        static const struct {
                const char *id;
                bool ok;
        } rows[] = {
                { "https://client.example/metadata.json", true },
                { "https://client.example/oauth/client-metadata", true },
                { "https://client.example", false },
                { "https://client.example/", false },
                { "http://client.example/x", false },
                { "https://client.example:8443/x", false },
                { "https://[::1]/x", false },
                { "https://user@client.example/x", false },
                { "https://client.example/x?y", false },
                { "https://client.example/x#y", false },
                { "https://client.example/a/../x", false },
                { "https://client.example/..", false },
                { "https://client.example/./x", false },
                { "https://client.example//x", false },
                { "https:///x", false },
                { "psd_abc", false },
                { "HTTPS://client.example/x", false },
                { "https://client.example/a b", false },
                { "https://client.example\\@evil/x", false },
        };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
                if (metadata_id_ok(rows[i].id) != rows[i].ok)
                        fail_msg("%s", rows[i].id);
}

static void test_freshness(void **state)
{
        (void) state;
        assert_int_equal(metadata_fresh_sec(STR("")), 3600);
        assert_int_equal(metadata_fresh_sec(STR("public, max-age=7200")), 7200);
        assert_int_equal(metadata_fresh_sec(STR("max-age=1")), 300);
        assert_int_equal(metadata_fresh_sec(STR("Max-Age=99999999")), 86400);
        assert_int_equal(metadata_fresh_sec(STR("no-store, max-age=7200")), 300);
        assert_int_equal(metadata_fresh_sec(STR("max-age=x")), 3600);
}

static void test_documents(void **state)
{
        static const struct {
                const char *text;
                bool ok;
        } rows[] = {
                { DOCUMENT, true },
                { "{\"client_id\":\"https://localhost/other\",\"client_name\":\"One\",\"redirect_uris\":[\"http://"
                  "localhost/callback\"]}",
                  false },
                { "{\"client_id\":\"" ID "\",\"redirect_uris\":[\"http://localhost/callback\"]}", false },
                { "{\"client_id\":\"" ID "\",\"client_name\":\"One\"}", false },
                { "{\"client_id\":\"" ID "\",\"client_name\":\"One\",\"redirect_uris\":[\"http://evil.example/\"]}",
                  false },
                { "{\"client_id\":\"" ID
                  "\",\"client_name\":\"One\",\"redirect_uris\":[\"https://a.example/\"],\"client_secret\":\"x\"}",
                  false },
                { "{\"client_id\":\"" ID "\",\"client_name\":\"One\",\"redirect_uris\":[\"https://a.example/"
                  "\"],\"token_endpoint_auth_method\":\"private_key_jwt\"}",
                  false },
                { "[]", false },
                { "", false },
                { "{", false },
        };

        (void) state;
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_client_ struct client c = { 0 };

                if ((metadata_read(str_of(rows[i].text), ID, &c, NULL) == 0) != rows[i].ok)
                        fail_msg("%s", rows[i].text);
        }
}

/* ---- fetching ---- */

static char dir[] = "/tmp/psbx-metadata-XXXXXX";
static char cert_path[64], key_path[64];
static unsigned port;
static const char *mode;

static void write_pem(void)
{
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *x = X509_new();
        X509V3_CTX ctx;

        CHECK(mkdtemp(dir) != NULL);
        (void) snprintf(cert_path, sizeof cert_path, "%s/cert.pem", dir);
        (void) snprintf(key_path, sizeof key_path, "%s/key.pem", dir);
        ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
        X509_set_version(x, X509_VERSION_3);
        X509_gmtime_adj(X509_getm_notBefore(x), -3600);
        X509_gmtime_adj(X509_getm_notAfter(x), 3600);
        X509_set_pubkey(x, key);
        X509_NAME *name = X509_get_subject_name(x);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *) "test", -1, -1, 0);
        X509_set_issuer_name(x, name);
        X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
        X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, "DNS:localhost");
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
        (void) arg;
        CHECK(str_eq(call_path(c), STR("/clients/one.json")) && str_eq(call_host(c), STR("localhost")));
        if (cstr_eq(mode, "redirect")) {
                (void) call_add_header(c, "Location", ID);
                (void) call_reply(c, 302, NULL, NULL, 0);
        } else if (cstr_eq(mode, "long")) {
                char *p = xcalloc(1, 6000);

                memset(p, ' ', 6000);
                (void) call_reply(c, 200, "application/json", p, 6000);
                free(p);
        } else if (cstr_eq(mode, "html")) {
                (void) call_reply(c, 200, "text/html", DOCUMENT, strlen(DOCUMENT));
        } else {
                (void) call_add_header(c, "Cache-Control", "max-age=600");
                (void) call_reply(c, 200, "application/json; charset=utf-8", DOCUMENT, strlen(DOCUMENT));
        }
}

static bool everywhere(const char *address)
{
        return address[0] != '\0';
}

static int coroutine_fn fetch(const char *how, const struct fetch_policy *p, struct client *c, int64_t *fresh)
{
        struct err e = { 0 };

        mode = how;
        return metadata_fetch(ID, p, c, fresh, &e);
}

static void do_fetch(void *arg)
{
        _cleanup_client_ struct client c = { 0 };
        struct fetch_policy open = { .allowed = everywhere, .ca = cert_path },
                            guarded = { .allowed = address_public, .ca = cert_path },
                            untrusted = { .allowed = everywhere };
        struct http_server *server;
        int64_t fresh = 0;
        struct err e = { 0 };

        (void) arg;
        write_pem();
        server = http_server_new(NULL, handler, NULL);
        CHECK_INT(http_server_listen_tls(server, "127.0.0.1", 0, cert_path, key_path, &e), 0);
        port = open.port = guarded.port = untrusted.port = http_server_port(server);
        CHECK_INT(fetch("good", &open, &c, &fresh), 0);
        CHECK(cstr_eq(c.name, "One") && cstr_eq(c.id, ID) && c.document && fresh == 600);
        client_done(&c);
        CHECK_INT(fetch("good", &guarded, &c, &fresh), -EACCES); /* loopback is not the Internet */
        CHECK(fetch("good", &untrusted, &c, &fresh) < 0);        /* nobody vouches for the certificate */
        CHECK_INT(fetch("redirect", &open, &c, &fresh), -EPROTO);
        CHECK(fetch("long", &open, &c, &fresh) < 0);
        CHECK_INT(fetch("html", &open, &c, &fresh), -EPROTO);
        http_server_stop(server, 5000);
        http_server_free(server);
        (void) unlink(cert_path);
        (void) unlink(key_path);
        (void) rmdir(dir);
}

static void test_fetch(void **state)
{
        (void) state;
        run(do_fetch, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids), cmocka_unit_test(test_freshness),
                                            cmocka_unit_test(test_documents), LOOP_TEST(test_fetch) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
