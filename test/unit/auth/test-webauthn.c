/* Keys and signatures are made here with OpenSSL, as an authenticator would. */
#include "test.h"

#include "auth/cose.h"
#include "auth/webauthn.h"
#include "base/b64.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <stdio.h>

#define ORIGIN "http://localhost:7420"

static void add_head(struct buf *b, unsigned major, size_t n)
{
        assert_true(n < 65536);
        if (n < 24)
                (void) buf_addc(b, (char) (major << 5 | n));
        else if (n < 256)
                (void) buf_add(b, (unsigned char[]){ (unsigned char) (major << 5 | 24), (unsigned char) n }, 2);
        else
                (void) buf_add(b,
                               (unsigned char[]){ (unsigned char) (major << 5 | 25), (unsigned char) (n >> 8),
                                                  (unsigned char) n },
                               3);
}

static void add_bytes(struct buf *b, const void *p, size_t n)
{
        add_head(b, 2, n);
        (void) buf_add(b, p, n);
}

static void add_text(struct buf *b, const char *s)
{
        add_head(b, 3, strlen(s));
        (void) buf_adds(b, s);
}

static EVP_PKEY *make_key(int alg)
{
        return alg == COSE_ES256   ? EVP_EC_gen("P-256")
               : alg == COSE_RS256 ? EVP_RSA_gen(2048)
                                   : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static void add_number(struct buf *b, EVP_PKEY *k, const char *name, int pad)
{
        BIGNUM *n = NULL;
        unsigned char bytes[512];

        assert_int_equal(EVP_PKEY_get_bn_param(k, name, &n), 1);
        int len = pad ? BN_bn2binpad(n, bytes, pad) : BN_bn2bin(n, bytes);
        assert_true(len > 0);
        add_bytes(b, bytes, (size_t) len);
        BN_free(n);
}

/* The COSE key. */
static void public_key(EVP_PKEY *k, int alg, struct buf *b)
{
        if (alg == COSE_ES256) {
                (void) buf_add(b, "\xa5\x01\x02\x03\x26\x20\x01\x21", 8);
                add_number(b, k, OSSL_PKEY_PARAM_EC_PUB_X, 32);
                (void) buf_add(b, "\x22", 1);
                add_number(b, k, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
        } else if (alg == COSE_EDDSA) {
                unsigned char raw[32];
                size_t n = sizeof raw;

                assert_int_equal(EVP_PKEY_get_raw_public_key(k, raw, &n), 1);
                (void) buf_add(b, "\xa4\x01\x01\x03\x27\x20\x06\x21", 8);
                add_bytes(b, raw, n);
        } else {
                (void) buf_add(b, "\xa4\x01\x03\x03\x39\x01\x00\x20", 8);
                add_number(b, k, OSSL_PKEY_PARAM_RSA_N, 0);
                (void) buf_add(b, "\x21", 1);
                add_number(b, k, OSSL_PKEY_PARAM_RSA_E, 0);
        }
}

static void sign(EVP_PKEY *k, int alg, struct str data, struct buf *b)
{
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        unsigned char sig[1024];
        size_t n = sizeof sig;

        assert_int_equal(EVP_DigestSignInit(ctx, NULL, alg == COSE_EDDSA ? NULL : EVP_sha256(), NULL, k), 1);
        assert_int_equal(EVP_DigestSign(ctx, sig, &n, (const unsigned char *) data.p, data.n), 1);
        (void) buf_add(b, sig, n);
        EVP_MD_CTX_free(ctx);
}

static void auth_data(const char *rp, unsigned flags, uint32_t count, struct str credential, struct str key,
                      struct buf *b)
{
        unsigned char hash[HASH_LEN];

        sha256_of(rp, strlen(rp), hash);
        (void) buf_add(b, hash, sizeof hash);
        (void) buf_add(b,
                       (unsigned char[]){ (unsigned char) flags, (unsigned char) (count >> 24),
                                          (unsigned char) (count >> 16), (unsigned char) (count >> 8),
                                          (unsigned char) count },
                       5);
        if (!(flags & AUTH_AT))
                return;
        (void) buf_add(b, "0123456789abcdef", 16);
        (void) buf_add(b, (unsigned char[]){ (unsigned char) (credential.n >> 8), (unsigned char) credential.n }, 2);
        (void) buf_addstr(b, credential);
        (void) buf_addstr(b, key);
}

static void client_data(const char *type, const char *challenge, const char *origin, const char *more, struct buf *b)
{
        (void) buf_addf(b, "{\"type\":\"%s\",\"challenge\":\"%s\",\"origin\":\"%s\"%s}", type, challenge, origin, more);
}

static void test_algorithms(void **state)
{
        static const int algorithms[] = { COSE_ES256, COSE_EDDSA, COSE_RS256 };

        (void) state;
        for (size_t i = 0; i < COUNT(algorithms); i++) {
                _cleanup_buf_ struct buf key = BUF_MAX(2048), sig = BUF_MAX(2048), other = BUF_MAX(2048);
                EVP_PKEY *k = make_key(algorithms[i]), *k2 = make_key(algorithms[i]);
                struct err e = { 0 };

                public_key(k, algorithms[i], &key);
                public_key(k2, algorithms[i], &other);
                sign(k, algorithms[i], STR("what is signed"), &sig);
                assert_int_equal(cose_verify(buf_str(&key), STR("what is signed"), buf_str(&sig), &e), 0);
                assert_int_equal(cose_verify(buf_str(&key), STR("what is Signed"), buf_str(&sig), &e), -EACCES);
                assert_int_equal(cose_verify(buf_str(&other), STR("what is signed"), buf_str(&sig), &e), -EACCES);
                assert_int_equal(cose_verify(buf_str(&key), STR("what is signed"), str_n(sig.p, sig.len - 1), &e),
                                 -EACCES);
                assert_int_equal(cose_verify(buf_str(&key), STR("what is signed"), STR(""), &e), -EACCES);
                /* Cut off, or with something after it. */
                for (size_t n = 0; n < key.len; n++)
                        assert_true(cose_verify(str_n(key.p, n), STR("what is signed"), buf_str(&sig), &e) < 0);
                (void) buf_addc(&key, 0);
                assert_int_equal(cose_verify(buf_str(&key), STR("what is signed"), buf_str(&sig), &e), -EBADMSG);
                EVP_PKEY_free(k);
                EVP_PKEY_free(k2);
        }
}

static void test_other_keys(void **state)
{
        static const struct {
                const char *bytes;
                size_t n;
                int r;
        } rows[] = {
                { "\xa2\x01\x02\x03\x38\x22", 6, -ENOTSUP },     /* ES384 */
                { "\xa2\x01\x01\x03\x26", 5, -ENOTSUP },         /* ES256 with an OKP key */
                { "\xa3\x01\x02\x03\x26\x20\x02", 7, -ENOTSUP }, /* ES256 on P-384 */
                { "\xa3\x01\x02\x03\x26\x20\x01", 7, -EBADMSG }, /* no point */
                { "\xa5\x01\x02\x03\x26\x20\x01\x21\x41x\x22\x41y", 13, -EBADMSG },
                { "\xa1\x01\x02", 3, -EBADMSG }, /* no algorithm */
                { "\x80", 1, -EBADMSG },
        };
        struct cose_key k;

        (void) state;
        for (size_t i = 0; i < COUNT(rows); i++)
                assert_int_equal(cose_parse(str_n(rows[i].bytes, rows[i].n), &k), rows[i].r);
        /* A point that is not on the curve. */
        unsigned char key[77] = "\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20";
        memset(key + 10, 1, 32);
        memcpy(key + 42, "\x22\x58\x20", 3);
        memset(key + 45, 2, 32);
        assert_int_equal(cose_verify(str_n((char *) key, sizeof key), STR("x"), STR("y"), NULL), -EBADMSG);
}

static void test_registration(void **state)
{
        _cleanup_buf_ struct buf key = BUF_MAX(2048), data = BUF_MAX(4096), attestation = BUF_MAX(8192),
                                 client = BUF_MAX(1024);
        EVP_PKEY *k = make_key(COSE_ES256);
        struct authenticator_data d;
        struct err e = { 0 };

        (void) state;
        public_key(k, COSE_ES256, &key);
        auth_data("localhost", AUTH_UP | AUTH_AT, 5, STR("credential"), buf_str(&key), &data);
        (void) buf_add(&attestation, "\xa3", 1);
        add_text(&attestation, "fmt");
        add_text(&attestation, "none");
        add_text(&attestation, "attStmt");
        (void) buf_add(&attestation, "\xa0", 1);
        add_text(&attestation, "authData");
        add_bytes(&attestation, data.p, data.len);
        client_data("webauthn.create", "abc", ORIGIN, ",\"crossOrigin\":false", &client);
        assert_int_equal(
                registration_check(buf_str(&client), buf_str(&attestation), "abc", ORIGIN, "localhost", &d, &e), 0);
        assert_true(str_eq(d.credential, STR("credential")) && str_eq(d.public_key, buf_str(&key)) &&
                    d.sign_count == 5);
        assert_int_equal(
                registration_check(buf_str(&client), buf_str(&attestation), "abd", ORIGIN, "localhost", &d, &e),
                -EACCES);
        assert_int_equal(registration_check(buf_str(&client), buf_str(&attestation), "abc", "http://localhost:1",
                                            "localhost", &d, &e),
                         -EACCES);
        assert_int_equal(registration_check(buf_str(&client), buf_str(&attestation), "abc", ORIGIN, "other", &d, &e),
                         -EACCES);
        for (size_t n = 0; n < attestation.len; n++)
                assert_true(registration_check(buf_str(&client), str_n(attestation.p, n), "abc", ORIGIN, "localhost",
                                               &d, &e) < 0);
        for (size_t n = 0; n < data.len; n++)
                assert_int_equal(authenticator_data_parse(str_n(data.p, n), &d), -EBADMSG);
        (void) buf_addc(&data, 0);
        assert_int_equal(authenticator_data_parse(buf_str(&data), &d), -EBADMSG);
        EVP_PKEY_free(k);
}

static int assert_with(EVP_PKEY *k, struct str key, unsigned flags, const char *type, const char *origin,
                       const char *rp, const char *more)
{
        _cleanup_buf_ struct buf data = BUF_MAX(4096), client = BUF_MAX(1024), message = BUF_MAX(8192),
                                 sig = BUF_MAX(1024);
        struct authenticator_data d;
        unsigned char hash[HASH_LEN];
        struct err e = { 0 };

        auth_data(rp, flags, 6, STR(""), STR(""), &data);
        client_data(type, "abc", origin, more, &client);
        sha256_of(client.p, client.len, hash);
        (void) buf_addstr(&message, buf_str(&data));
        (void) buf_add(&message, hash, sizeof hash);
        sign(k, COSE_ES256, buf_str(&message), &sig);
        return assertion_check(buf_str(&client), buf_str(&data), buf_str(&sig), key, "abc", ORIGIN, "localhost", &d,
                               &e);
}

static void test_assertion(void **state)
{
        _cleanup_buf_ struct buf key = BUF_MAX(2048);
        EVP_PKEY *k = make_key(COSE_ES256), *other = make_key(COSE_ES256);

        (void) state;
        public_key(k, COSE_ES256, &key);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP, "webauthn.get", ORIGIN, "localhost", ""), 0);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP | AUTH_UV, "webauthn.get", ORIGIN, "localhost", ""), 0);
        assert_int_equal(assert_with(other, buf_str(&key), AUTH_UP, "webauthn.get", ORIGIN, "localhost", ""), -EACCES);
        assert_int_equal(assert_with(k, buf_str(&key), 0, "webauthn.get", ORIGIN, "localhost", ""), -EACCES);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP, "webauthn.create", ORIGIN, "localhost", ""), -EACCES);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP, "webauthn.get", "http://evil.example", "localhost", ""),
                         -EACCES);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP, "webauthn.get", ORIGIN, "evil.example", ""), -EACCES);
        assert_int_equal(
                assert_with(k, buf_str(&key), AUTH_UP, "webauthn.get", ORIGIN, "localhost", ",\"crossOrigin\":true"),
                -EACCES);
        assert_int_equal(assert_with(k, buf_str(&key), AUTH_UP, "webauthn.get", ORIGIN, "localhost",
                                     ",\"type\":\"webauthn.get\""),
                         -EBADMSG);
        EVP_PKEY_free(k);
        EVP_PKEY_free(other);
}

static void test_rp_id(void **state)
{
        char rp[256];

        (void) state;
        assert_int_equal(rp_id_of("http://localhost:7420", rp), 0);
        assert_string_equal(rp, "localhost");
        assert_int_equal(rp_id_of("https://boxes.example.org", rp), 0);
        assert_string_equal(rp, "boxes.example.org");
        assert_int_equal(rp_id_of("http://127.0.0.1:7420", rp), -EINVAL);
        assert_int_equal(rp_id_of("http://[::1]:7420", rp), -EINVAL);
        assert_int_equal(rp_id_of("nothing", rp), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_algorithms), cmocka_unit_test(test_other_keys),
                                            cmocka_unit_test(test_registration), cmocka_unit_test(test_assertion),
                                            cmocka_unit_test(test_rp_id) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
