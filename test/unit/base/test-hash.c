#include "base/hash.h"
#include "base/b64.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void check(const unsigned char got[HASH_LEN], const char *want)
{
        char text[2 * HASH_LEN + 1];

        hex_encode(got, HASH_LEN, text);
        assert_string_equal(text, want);
}

/* RFC 7693 prints BLAKE2b-512 only; these are the 256-bit values of its reference code. */
static void blake2b(void **state)
{
        unsigned char out[HASH_LEN];
        char many[1000];

        hash_of("", 0, out);
        check(out, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
        hash_of("abc", 3, out);
        check(out, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
        memset(many, 'a', sizeof many);
        hash_of(many, sizeof many, out);
        check(out, "e00b0ddbf1e2cdaf5c898e1a5e8826ea3a2c339bcf2a478da2e5fca9ff126672");
        hash_of(NULL, 0, out);
        check(out, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
}

static void pieces_give_the_same(void **state)
{
        char many[1000];

        memset(many, 'a', sizeof many);
        for (size_t step = 1; step < sizeof many; step += 37) {
                unsigned char out[HASH_LEN];
                struct hash_state h;

                hash_init(&h);
                for (size_t i = 0; i < sizeof many; i += step)
                        hash_update(&h, many + i, step < sizeof many - i ? step : sizeof many - i);
                hash_update(&h, NULL, 0);
                hash_final(&h, out);
                check(out, "e00b0ddbf1e2cdaf5c898e1a5e8826ea3a2c339bcf2a478da2e5fca9ff126672");
        }
}

/* RFC 6234, section 8.5 */
static void sha256(void **state)
{
        static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        size_t n = 1000000;
        _cleanup_free_ char *many = xmalloc(n);
        unsigned char out[HASH_LEN];

        sha256_of("abc", 3, out);
        check(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        sha256_of(two_blocks, sizeof two_blocks - 1, out);
        check(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        memset(many, 'a', n);
        sha256_of(many, n, out);
        check(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
        sha256_of("", 0, out);
        check(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* RFC 4231, section 4; HMAC pads short keys with zeros, so its 20-byte keys fit a 32-byte one. */
static void hmac(void **state)
{
        unsigned char key[HASH_LEN] = { 0 }, out[HASH_LEN], data[50];

        memset(key, 0x0b, 20);
        hmac_sha256(key, "Hi There", 8, out);
        check(out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");

        memset(key, 0, sizeof key);
        memcpy(key, "Jefe", 4);
        hmac_sha256(key, "what do ya want for nothing?", 28, out);
        check(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");

        memset(key, 0xaa, 20);
        memset(data, 0xdd, sizeof data);
        hmac_sha256(key, data, sizeof data, out);
        check(out, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");

        for (unsigned char i = 0; i < 25; i++)
                key[i] = (unsigned char) (i + 1);
        memset(data, 0xcd, sizeof data);
        hmac_sha256(key, data, sizeof data, out);
        check(out, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

static void equality(void **state)
{
        char a[] = "0123456789", b[] = "0123456789";

        assert_true(mem_equal(a, b, 10));
        assert_true(mem_equal(a, b, 0));
        for (size_t i = 0; i < 10; i++) {
                b[i] ^= 0x40;
                assert_false(mem_equal(a, b, 10));
                assert_true(mem_equal(a, b, i));
                b[i] ^= 0x40;
        }
}

static void table_hash_is_a_function(void **state)
{
        assert_true(hash_bytes("abc", 3) == hash_bytes("abc", 3));
        assert_true(hash_bytes("abc", 3) != hash_bytes("abd", 3));
        assert_true(hash_bytes("abc", 3) != hash_bytes("abc\0", 4));
        assert_true(hash_bytes(NULL, 0) == hash_bytes("", 0));
}

/* Keys that differ in the top bit of two bytes collide in the low bits of FNV-1a under every seed. */
static void table_hash_spreads_crafted_keys(void **state)
{
        unsigned seen[256] = { 0 };

        for (unsigned i = 0; i < 4096; i++) {
                unsigned char key[24];

                for (unsigned bit = 0; bit < 12; bit++)
                        key[2 * bit] = key[2 * bit + 1] = i >> bit & 1 ? 0x80 : 0;
                seen[hash_bytes(key, sizeof key) & 255]++;
        }
        for (unsigned i = 0; i < 256; i++)
                assert_true(seen[i] < 64); /* 16 expected */
}

static uint64_t hash_in_a_child(void)
{
        uint64_t h = 0;
        int status, pipe_fd[2];

        assert_int_equal(pipe(pipe_fd), 0);
        pid_t pid = fork();
        if (pid == 0) {
                h = hash_bytes("abc", 3);
                _exit(write(pipe_fd[1], &h, sizeof h) == sizeof h ? 0 : 1);
        }
        assert_int_equal(read(pipe_fd[0], &h, sizeof h), sizeof h);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        (void) close(pipe_fd[0]);
        (void) close(pipe_fd[1]);
        return h;
}

/* Runs first: the children must not inherit a seed. */
static void table_hash_is_seeded_per_process(void **state)
{
        assert_true(hash_in_a_child() != hash_in_a_child());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(table_hash_is_seeded_per_process),
                cmocka_unit_test(blake2b),
                cmocka_unit_test(pieces_give_the_same),
                cmocka_unit_test(sha256),
                cmocka_unit_test(hmac),
                cmocka_unit_test(equality),
                cmocka_unit_test(table_hash_is_a_function),
                cmocka_unit_test(table_hash_spreads_crafted_keys),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
