#include "auth/webauthn.h"

#include "auth/cose.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define CLIENT_DATA_MAX 8192

int authenticator_data_parse(struct str bytes, struct authenticator_data *ret)
{
        const unsigned char *p = (const unsigned char *) bytes.p;

        if (bytes.n < 37)
                return -EBADMSG;
        *ret = (struct authenticator_data){ .rp_id_hash = p, .flags = p[32] };
        ret->sign_count = (uint32_t) p[33] << 24 | (uint32_t) p[34] << 16 | (uint32_t) p[35] << 8 | p[36];
        struct cbor rest = { p + 37, bytes.n - 37 };
        if (ret->flags & AUTH_AT) {
                if (rest.n < 18) /* AAGUID and the credential's length */
                        return -EBADMSG;
                size_t n = (size_t) rest.p[16] << 8 | rest.p[17];
                if (n == 0 || n > 1023 || rest.n - 18 < n) /* §7.1, step 25: at most 1023 bytes */
                        return -EBADMSG;
                ret->credential = str_n((const char *) rest.p + 18, n);
                rest.p += 18 + n;
                rest.n -= 18 + n;
                if (cbor_skip(&rest, &ret->public_key) < 0)
                        return -EBADMSG;
        }
        if ((ret->flags & AUTH_ED) && cbor_skip(&rest, NULL) < 0)
                return -EBADMSG;
        return rest.n ? -EBADMSG : 0;
}

int attestation_parse(struct str bytes, struct str *ret_auth_data)
{
        struct cbor c = { (const unsigned char *) bytes.p, bytes.n }, whole = c, at;
        struct cbor_item i;

        if (cbor_skip(&whole, NULL) < 0 || whole.n || cbor_find_text(c, "authData", &at) <= 0 ||
            cbor_next(&at, &i) < 0 || i.type != CBOR_BYTES)
                return -EBADMSG;
        *ret_auth_data = i.bytes;
        return 0;
}

int client_data_check(struct str json, const char *type, const char *challenge, const char *origin, struct err *e)
{
        _cleanup_json_ struct json *j = NULL;

        if (json.n > CLIENT_DATA_MAX || json_parse(json.p, json.n, &j, NULL) < 0 || json_type(j) != JSON_OBJECT)
                return err_set(e, -EBADMSG, "the passkey's client data is malformed");
        const char *given = json_get_str(j, "challenge", "");
        if (!cstr_eq(json_get_str(j, "type", ""), type))
                return err_set(e, -EACCES, "the passkey's answer is for another purpose");
        if (strlen(given) != strlen(challenge) || !mem_equal(given, challenge, strlen(challenge)))
                return err_set(e, -EACCES, "the passkey's answer is to another question");
        if (!cstr_eq(json_get_str(j, "origin", ""), origin))
                return err_set(e, -EACCES, "the passkey's answer is from another page");
        if (json_get_bool(j, "crossOrigin", false))
                return err_set(e, -EACCES, "the passkey's answer is from a frame of another page");
        return 0;
}

static int check_data(const struct authenticator_data *d, const char *rp_id, struct err *e)
{
        unsigned char hash[HASH_LEN];

        sha256_of(rp_id, strlen(rp_id), hash);
        if (!mem_equal(hash, d->rp_id_hash, HASH_LEN))
                return err_set(e, -EACCES, "the passkey is for another server");
        if (!(d->flags & AUTH_UP))
                return err_set(e, -EACCES, "nobody touched the passkey");
        return 0;
}

int registration_check(struct str client_data, struct str attestation, const char *challenge, const char *origin,
                       const char *rp_id, struct authenticator_data *ret, struct err *e)
{
        struct cose_key key;
        struct str data;
        int r = client_data_check(client_data, "webauthn.create", challenge, origin, e);

        if (r < 0)
                return r;
        if (attestation_parse(attestation, &data) < 0 || authenticator_data_parse(data, ret) < 0 || !ret->credential.n)
                return err_set(e, -EBADMSG, "the passkey's answer is malformed");
        r = check_data(ret, rp_id, e);
        if (r < 0)
                return r;
        if (ret->public_key.n > 1000 || cose_parse(ret->public_key, &key) < 0)
                return err_set(e, -ENOTSUP, "the passkey uses an algorithm that is not known here");
        return 0;
}

int assertion_check(struct str client_data, struct str auth_data, struct str signature, struct str public_key,
                    const char *challenge, const char *origin, const char *rp_id, struct authenticator_data *ret,
                    struct err *e)
{
        _cleanup_buf_ struct buf message = BUF_MAX(4096);
        unsigned char hash[HASH_LEN];
        int r = client_data_check(client_data, "webauthn.get", challenge, origin, e);

        if (r < 0)
                return r;
        if (authenticator_data_parse(auth_data, ret) < 0)
                return err_set(e, -EBADMSG, "the passkey's answer is malformed");
        r = check_data(ret, rp_id, e);
        if (r < 0)
                return r;
        sha256_of(client_data.p, client_data.n, hash);
        if (buf_addstr(&message, auth_data) < 0 || buf_add(&message, hash, sizeof hash) < 0)
                return err_set(e, -EBADMSG, "the passkey's answer is too long");
        return cose_verify(public_key, buf_str(&message), signature, e);
}

int rp_id_of(const char *origin, char ret[static 256])
{
        const char *host = strstr(origin, "://");
        struct in_addr four;

        if (!host || host[3] == '[')
                return -EINVAL;
        host += 3;
        size_t n = strcspn(host, ":/");
        if (n == 0 || n > 255)
                return -EINVAL;
        (void) snprintf(ret, 256, "%.*s", (int) n, host);
        return inet_pton(AF_INET, ret, &four) == 1 ? -EINVAL : 0;
}
