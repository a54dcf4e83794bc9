#include "auth/cose.h"

#include "base/mem.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

/* COSE key parameters (RFC 9052 §7, RFC 9053 §7, RFC 8230 §4). */
enum { KTY = 1, ALG = 3, CRV = -1, X = -2, Y = -3, RSA_N = -1, RSA_E = -2 };
enum { KTY_OKP = 1, KTY_EC2 = 2, KTY_RSA = 3 };
enum { CRV_P256 = 1, CRV_ED25519 = 6 };

static int number(struct cbor map, int64_t key, int64_t *ret)
{
        struct cbor at;
        int r = cbor_find_int(map, key, &at);

        if (r <= 0)
                return -EBADMSG;
        return cbor_int(&at, ret);
}

static int bytes_of(struct cbor map, int64_t key, size_t min, size_t max, struct str *ret)
{
        struct cbor_item i;
        struct cbor at;

        if (cbor_find_int(map, key, &at) <= 0 || cbor_next(&at, &i) < 0 || i.type != CBOR_BYTES || i.bytes.n < min ||
            i.bytes.n > max)
                return -EBADMSG;
        *ret = i.bytes;
        return 0;
}

static int parse_ec(struct cbor map, struct cose_key *ret)
{
        int64_t curve;
        int r = number(map, CRV, &curve);

        if (r < 0)
                return r;
        if (curve != CRV_P256)
                return -ENOTSUP;
        r = bytes_of(map, X, 32, 32, &ret->x);
        return r < 0 ? r : bytes_of(map, Y, 32, 32, &ret->y);
}

static int parse_okp(struct cbor map, struct cose_key *ret)
{
        int64_t curve;
        int r = number(map, CRV, &curve);

        if (r < 0)
                return r;
        return curve != CRV_ED25519 ? -ENOTSUP : bytes_of(map, X, 32, 32, &ret->x);
}

static int parse_rsa(struct cbor map, struct cose_key *ret)
{
        int r = bytes_of(map, RSA_N, 256, 512, &ret->n); /* 2048 to 4096 bits */

        return r < 0 ? r : bytes_of(map, RSA_E, 1, 4, &ret->e);
}

int cose_parse(struct str bytes, struct cose_key *ret)
{
        struct cbor c = { (const unsigned char *) bytes.p, bytes.n }, whole = c;
        struct cose_key k = { 0 };
        int64_t kty;
        int r = cbor_skip(&whole, NULL);

        if (r < 0 || whole.n) /* one item and nothing after it */
                return -EBADMSG;
        r = number(c, KTY, &kty);
        if (r == 0)
                r = number(c, ALG, &k.alg);
        if (r < 0)
                return r;
        if (k.alg == COSE_ES256 && kty == KTY_EC2)
                r = parse_ec(c, &k);
        else if (k.alg == COSE_EDDSA && kty == KTY_OKP)
                r = parse_okp(c, &k);
        else if (k.alg == COSE_RS256 && kty == KTY_RSA)
                r = parse_rsa(c, &k);
        else
                r = -ENOTSUP;
        if (r == 0)
                *ret = k;
        return r;
}

/* ---- OpenSSL ---- */

static void pkey_freep(EVP_PKEY **p)
{
        EVP_PKEY_free(*p);
}

static void md_ctx_freep(EVP_MD_CTX **p)
{
        EVP_MD_CTX_free(*p);
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *b)
{
        OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(b);
        EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
        EVP_PKEY *key = NULL;

        if (params && ctx && EVP_PKEY_fromdata_init(ctx) == 1)
                (void) EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params);
        EVP_PKEY_CTX_free(ctx);
        OSSL_PARAM_free(params);
        return key;
}

/* OpenSSL refuses a point that is not on the curve. */
static EVP_PKEY *ec_key(const struct cose_key *k)
{
        OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
        unsigned char point[65] = { 4 };
        EVP_PKEY *key = NULL;

        memcpy(point + 1, k->x.p, 32);
        memcpy(point + 33, k->y.p, 32);
        if (b && OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
            OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) == 1)
                key = from_params("EC", b);
        OSSL_PARAM_BLD_free(b);
        return key;
}

static EVP_PKEY *rsa_key(const struct cose_key *k)
{
        OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
        BIGNUM *n = BN_bin2bn((const unsigned char *) k->n.p, (int) k->n.n, NULL),
               *e = BN_bin2bn((const unsigned char *) k->e.p, (int) k->e.n, NULL);
        EVP_PKEY *key = NULL;

        if (b && n && e && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
            OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, e) == 1)
                key = from_params("RSA", b);
        BN_free(n);
        BN_free(e);
        OSSL_PARAM_BLD_free(b);
        return key;
}

static EVP_PKEY *pkey_of(const struct cose_key *k)
{
        switch (k->alg) {
        case COSE_ES256:
                return ec_key(k);
        case COSE_EDDSA:
                return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, (const unsigned char *) k->x.p, k->x.n);
        default:
                return rsa_key(k);
        }
}

int cose_verify(struct str key, struct str data, struct str signature, struct err *e)
{
        _cleanup_(pkey_freep) EVP_PKEY *pkey = NULL;
        _cleanup_(md_ctx_freep) EVP_MD_CTX *ctx = NULL;
        struct cose_key k;
        int r = cose_parse(key, &k);

        if (r < 0)
                return err_set(e, r, "the passkey's public key is not one we can use");
        pkey = pkey_of(&k);
        ctx = EVP_MD_CTX_new();
        if (!pkey || !ctx)
                return err_set(e, -EBADMSG, "the passkey's public key is not valid");
        const EVP_MD *md = k.alg == COSE_EDDSA ? NULL : EVP_sha256();
        /* RS256 is PKCS#1 v1.5 (RFC 8812 §2), OpenSSL's default for RSA; ES256 signatures come in DER here (WebAuthn
         * §6.5.5). */
        if (EVP_DigestVerifyInit(ctx, NULL, md, NULL, pkey) != 1 ||
            EVP_DigestVerify(ctx, (const unsigned char *) signature.p, signature.n, (const unsigned char *) data.p,
                             data.n) != 1)
                return err_set(e, -EACCES, "the passkey's signature is not valid");
        return 0;
}
