#include "control/control.h"

#include "base/b64.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "http/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SIGNATURE_LEN 16 /* bytes of the HMAC that are kept: 128 bits */

static void sign(const struct control *c, struct str object, struct str expires, struct buf *out)
{
        _cleanup_buf_ struct buf text = BUF_MAX(512);
        unsigned char mac[HASH_LEN];

        (void) buf_addstr(&text, object);
        (void) buf_addc(&text, '\n');
        (void) buf_addstr(&text, expires);
        hmac_sha256(c->cfg.link_key, text.p, text.len, mac);
        (void) b64url_encode(out, mac, SIGNATURE_LEN);
}

char *link_make(const struct control *c, const char *object, const char *name, int64_t expires_ms)
{
        _cleanup_buf_ struct buf out = BUF_MAX(4096), signature = BUF_MAX(64);
        char expires[24];
        int n = snprintf(expires, sizeof expires, "%lld", (long long) (expires_ms / 1000));

        sign(c, str_of(object), str_n(expires, (size_t) n), &signature);
        (void) buf_addf(&out, "%s/v1/blobs/%s/", c->origin, object);
        (void) url_encode(&out, str_of(name));
        (void) buf_addf(&out, "?exp=%s&sig=%s", expires, buf_cstr(&signature));
        return buf_steal(&out);
}

int link_check(const struct control *c, struct str object, struct str expires, struct str signature)
{
        _cleanup_buf_ struct buf want = BUF_MAX(64);
        uint64_t until = 0;

        if (object.n > 64 || parse_u64(expires, UINT32_MAX, &until) < 0)
                return -EACCES;
        sign(c, object, expires, &want);
        if (want.len != signature.n || !mem_equal(want.p, signature.p, want.len))
                return -EACCES;
        return (int64_t) until * 1000 < wall_ms() ? -ETIME : 0;
}
