/*
 * csrf: form tokens. A token is a random number, the time it ends and an HMAC over both, the purpose and the browser's
 * cookie: strangers who only look at pages fill no memory. That it is used once is kept in the store, when it is used.
 */
#include "auth/visit.h"

#include "base/b64.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NONCE_LEN 16
#define BODY_LEN (NONCE_LEN + 8)
#define TOKEN_LEN (BODY_LEN + 16)

static void sign(const struct visit *v, const char *purpose, const unsigned char body[BODY_LEN],
                 unsigned char mac[HASH_LEN])
{
        _cleanup_buf_ struct buf text = BUF_MAX(512);

        (void) buf_addf(&text, "form\n%s\n%s\n", purpose, v->browser);
        (void) buf_add(&text, body, BODY_LEN);
        hmac_sha256(v->a->key, text.p, text.len, mac);
}

char *form_token(struct visit *v, const char *purpose)
{
        _cleanup_buf_ struct buf out = BUF_MAX(128);
        unsigned char raw[TOKEN_LEN], mac[HASH_LEN];
        uint64_t until = (uint64_t) (v->a->now() + FORM_MS);

        random_bytes(raw, NONCE_LEN);
        for (size_t i = 0; i < 8; i++)
                raw[NONCE_LEN + i] = (unsigned char) (until >> (56 - 8 * i));
        sign(v, purpose, raw, mac);
        memcpy(raw + BODY_LEN, mac, TOKEN_LEN - BODY_LEN);
        (void) b64url_encode(&out, raw, sizeof raw);
        return buf_steal(&out);
}

int form_token_use(struct visit *v, const char *purpose, struct str token)
{
        _cleanup_buf_ struct buf raw = BUF_MAX(TOKEN_LEN);
        unsigned char mac[HASH_LEN];
        uint64_t until = 0;

        if (b64url_decode(&raw, token) < 0 || raw.len != TOKEN_LEN)
                return -EACCES;
        const unsigned char *p = (const unsigned char *) raw.p;
        sign(v, purpose, p, mac);
        if (!mem_equal(mac, p + BODY_LEN, TOKEN_LEN - BODY_LEN))
                return -EACCES;
        for (size_t i = 0; i < 8; i++)
                until = until << 8 | p[NONCE_LEN + i];
        if ((int64_t) until < v->a->now())
                return -EACCES;
        int r = forms_use(v->a->db, p, (int64_t) until);
        return r == -EEXIST ? -EACCES : r;
}

bool same_origin(const struct call *call)
{
        struct str origin = call_header(call, "Origin"), site = call_header(call, "Sec-Fetch-Site");
        char own[ORIGIN_MAX];

        auth_origin(call, own);
        if (origin.p)
                return str_ieq(origin, str_of(own));
        return !site.p || str_eq(site, STR("same-origin")) || str_eq(site, STR("none"));
}
