#include "boxd/output.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static long read_text(void *arg, uint64_t off, void *p, size_t n)
{
        const char *s = arg;
        size_t len = strlen(s);

        if (off >= len)
                return 0;
        n = min_size(min_size(n, len - (size_t) off), 3); /* short reads on purpose */
        memcpy(p, s + off, n);
        return (long) n;
}

static void sent(const char *text, struct output_limit l, const char *want, uint64_t omitted, uint64_t omitted_at)
{
        struct kept_source s = { .kept = { .total = strlen(text), .len = strlen(text) },
                                 .read = read_text,
                                 .arg = (void *) (uintptr_t) text };
        struct output_cut cut;
        char got[1024], raw[4096];
        size_t n = 0;
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_int_equal(output_send(pair[0], GUEST_STDOUT, &s, &l, &cut), 0);
        close(pair[0]);
        ssize_t k = recv(pair[1], raw, sizeof(raw), MSG_WAITALL);
        for (char *p = raw; p < raw + k;) {
                struct guest_header h;

                assert_int_equal(guest_decode((unsigned char *) p, &h), 0);
                memcpy(got + n, p + GUEST_HEADER_LEN, h.length);
                n += h.length;
                p += GUEST_HEADER_LEN + h.length;
        }
        close(pair[1]);
        got[n] = '\0';
        assert_string_equal(got, want);
        assert_true(cut.omitted == omitted && cut.omitted_at == omitted_at);
}

static void head_and_tail(void **state)
{
        sent("abcdefghij", (struct output_limit){ 100, 0 }, "abcdefghij", 0, 0);
        sent("abcdefghij", (struct output_limit){ 10, 0 }, "abcdefghij", 0, 0);
        sent("abcdefghij", (struct output_limit){ 5, 0 }, "abhij", 5, 2);
        sent("abcdefghij", (struct output_limit){ 0, 0 }, "", 10, 0);
        sent("", (struct output_limit){ 5, 0 }, "", 0, 0);
}

static void tails(void **state)
{
        sent("a\nb\nc\n", (struct output_limit){ 100, 1 }, "c\n", 4, 0);
        sent("a\nb\nc", (struct output_limit){ 100, 2 }, "b\nc", 2, 0);
        sent("a\nb\nc\n", (struct output_limit){ 100, 9 }, "a\nb\nc\n", 0, 0);
        sent("a\nb\n\n", (struct output_limit){ 100, 1 }, "\n", 4, 0);
        sent("abcdef", (struct output_limit){ 3, 5 }, "def", 3, 0);
        sent("\n", (struct output_limit){ 3, 1 }, "\n", 0, 0);
}

static long read_big(void *arg, uint64_t off, void *p, size_t n)
{
        (void) arg;
        for (size_t i = 0; i < n; i++)
                ((char *) p)[i] = off + i == 16383 ? 'n' : off + i == 16384 ? 'e' : off + i == 16385 ? 'e' : 'x';
        return (long) n;
}

static void texts_across_pieces(void **state)
{
        struct kept_source s = { .kept = { .total = 40000, .len = 40000 }, .read = read_big };

        assert_true(output_contains(&s, STR("xneex")));
        assert_true(output_contains(&s, STR("x")));
        assert_false(output_contains(&s, STR("need")));
        assert_false(output_contains(&s, STR("")));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(head_and_tail),
                cmocka_unit_test(tails),
                cmocka_unit_test(texts_across_pieces),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
