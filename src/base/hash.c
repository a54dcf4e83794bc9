#include "base/hash.h"
#include "base/ids.h"

#include <pthread.h>
#include <sodium.h>

#define STATE_ALIGN ((size_t) 64)

_Static_assert(sizeof(crypto_generichash_state) + STATE_ALIGN - 1 <= sizeof(struct hash_state),
               "hash_state is too small");
_Static_assert(_Alignof(crypto_generichash_state) <= STATE_ALIGN, "hash_state is not aligned");
_Static_assert(crypto_hash_sha256_BYTES == HASH_LEN, "SHA-256 has another length");
_Static_assert(crypto_auth_hmacsha256_BYTES == HASH_LEN && crypto_auth_hmacsha256_KEYBYTES == HASH_LEN,
               "HMAC-SHA-256 has another length");
_Static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "a short hash is no uint64_t");

static crypto_generichash_state *state(struct hash_state *h)
{
        uintptr_t at = ((uintptr_t) h->opaque + STATE_ALIGN - 1) & ~(uintptr_t) (STATE_ALIGN - 1);

        return (crypto_generichash_state *) (void *) (h->opaque + (at - (uintptr_t) h->opaque));
}

void hash_init(struct hash_state *h)
{
        (void) crypto_generichash_init(state(h), NULL, 0, HASH_LEN);
}

void hash_update(struct hash_state *h, const void *p, size_t n)
{
        (void) crypto_generichash_update(state(h), p, n);
}

void hash_final(struct hash_state *h, unsigned char out[HASH_LEN])
{
        (void) crypto_generichash_final(state(h), out, HASH_LEN);
}

void hash_of(const void *p, size_t n, unsigned char out[HASH_LEN])
{
        (void) crypto_generichash(out, HASH_LEN, p, n, NULL, 0);
}

void sha256_of(const void *p, size_t n, unsigned char out[HASH_LEN])
{
        (void) crypto_hash_sha256(out, p, n);
}

void hmac_sha256(const unsigned char key[HASH_LEN], const void *p, size_t n, unsigned char out[HASH_LEN])
{
        (void) crypto_auth_hmacsha256(out, p, n, key);
}

bool mem_equal(const void *a, const void *b, size_t n)
{
        return sodium_memcmp(a, b, n) == 0;
}

static unsigned char seed[crypto_shorthash_KEYBYTES];
static pthread_once_t seeded = PTHREAD_ONCE_INIT;

static void make_seed(void)
{
        random_bytes(seed, sizeof seed);
}

/* SipHash-2-4: strangers choose the keys of our tables, so a hash whose low bits can be steered will not do. */
uint64_t hash_bytes(const void *p, size_t n)
{
        uint64_t h;

        (void) pthread_once(&seeded, make_seed);
        (void) crypto_shorthash((unsigned char *) &h, p, n, seed);
        return h;
}
