#include "base/seal.h"

#include "base/hash.h"
#include "base/ids.h"

#include <errno.h>
#include <sodium.h>

#define VERSION 1
#define ID_LEN 8
#define NONCE_AT (1 + ID_LEN)
#define TEXT_AT (NONCE_AT + crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)

_Static_assert(SEAL_KEY_LEN == crypto_aead_xchacha20poly1305_ietf_KEYBYTES, "the key's length");
_Static_assert(SEAL_EXTRA == TEXT_AT + crypto_aead_xchacha20poly1305_ietf_ABYTES, "the sealed value's length");

void mem_wipe(void *p, size_t n)
{
        sodium_memzero(p, n);
}

void buf_wipe(struct buf *b)
{
        if (b->p)
                sodium_memzero(b->p, b->cap);
        buf_done(b);
}

/* Tells keys apart without telling anything of them. */
static void key_id(const unsigned char key[SEAL_KEY_LEN], unsigned char id[ID_LEN])
{
        unsigned char mac[HASH_LEN];

        hmac_sha256(key, "seal key id", 11, mac);
        memcpy(id, mac, ID_LEN);
}

int seal(const unsigned char key[SEAL_KEY_LEN], struct str context, const void *p, size_t n, struct buf *out)
{
        unsigned char *at = (unsigned char *) buf_room(out, SEAL_EXTRA + n);

        if (!at)
                return -ENOBUFS;
        at[0] = VERSION;
        key_id(key, at + 1);
        random_bytes(at + NONCE_AT, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES);
        if (crypto_aead_xchacha20poly1305_ietf_encrypt(at + TEXT_AT, NULL, p, n, (const unsigned char *) context.p,
                                                       context.n, NULL, at + NONCE_AT, key) != 0)
                return -EIO;
        buf_grew(out, SEAL_EXTRA + n);
        return 0;
}

int unseal(const unsigned char key[SEAL_KEY_LEN], struct str context, const void *p, size_t n, struct buf *out)
{
        const unsigned char *at = p;
        unsigned char id[ID_LEN];

        if (n < SEAL_EXTRA || at[0] != VERSION)
                return -EPROTO;
        key_id(key, id);
        if (!mem_equal(id, at + 1, ID_LEN))
                return -EKEYREJECTED;
        unsigned char *room = (unsigned char *) buf_room(out, n - SEAL_EXTRA + 1); /* never NULL for an empty value */
        if (!room)
                return -ENOBUFS;
        if (crypto_aead_xchacha20poly1305_ietf_decrypt(room, NULL, NULL, at + TEXT_AT, n - TEXT_AT,
                                                       (const unsigned char *) context.p, context.n, at + NONCE_AT,
                                                       key) != 0)
                return -EBADMSG;
        buf_grew(out, n - SEAL_EXTRA);
        return 0;
}
