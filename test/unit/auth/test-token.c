/* Codes and rotation on a clock of our own. */
#include "test.h"

#include "auth/token.h"
#include "base/hash.h"
#include "base/mem.h"
#include "scratch.h"
#include "store/accounts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define VERIFIER "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
#define CHALLENGE "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
#define REDIRECT "http://127.0.0.1:1111/cb"
#define RESOURCE "http://127.0.0.1:7420/mcp"

static int64_t clock_now = 1700000000000;

static int64_t now(void)
{
        return clock_now;
}

struct setting {
        struct scratch *scratch;
        struct auth a;
        char *account;
};

static void put_client(struct db *db, const char *id)
{
        struct client c = { .redirect_uris = (char *) "[\"" REDIRECT "\"]",
                            .created_at = clock_now,
                            .used_at = clock_now };

        (void) snprintf(c.id, sizeof c.id, "%s", id);
        assert_int_equal(clients_put(db, &c, NULL), 0);
}

static int setup(void **state)
{
        struct setting *s = xcalloc(1, sizeof *s);
        void *scratch = NULL;
        struct person p = { .id = "ada", .login = "ada", .name = "Ada", .password = "x", .created_at = 1 };

        if (scratch_setup(&scratch) < 0)
                return -1;
        s->scratch = scratch;
        s->a = (struct auth){ .db = s->scratch->db, .now = now, .key = { 1, 2, 3 } };
        assert_int_equal(accounts_first(s->a.db, &s->account, NULL), 0);
        (void) snprintf(p.account, sizeof p.account, "%s", s->account);
        assert_int_equal(people_insert(s->a.db, &p, NULL), 0);
        put_client(s->a.db, "c1");
        put_client(s->a.db, "c2");
        *state = s;
        return 0;
}

static int teardown(void **state)
{
        struct setting *s = *state;
        void *scratch = s->scratch;

        free(s->account);
        free(s);
        return scratch_teardown(&scratch);
}

static char *issue(struct setting *s)
{
        struct code c = { .person = "ada",
                          .client = (char *) "c1",
                          .redirect_uri = (char *) REDIRECT,
                          .challenge = (char *) CHALLENGE,
                          .scope = (char *) "sandbox",
                          .resource = (char *) RESOURCE };
        char *code = NULL;

        assert_int_equal(code_issue(&s->a, &c, &code, NULL), 0);
        return code;
}

static enum token_error redeem(struct setting *s, const char *code, struct token_pair *p)
{
        return code_redeem(&s->a, str_of(code), "c1", REDIRECT, STR(VERIFIER), NULL, p, NULL);
}

static void sign_in(struct setting *s, struct token_pair *p)
{
        _cleanup_free_ char *code = issue(s);

        assert_int_equal(redeem(s, code, p), TOKEN_OK);
}

static enum token_error refresh(struct setting *s, const char *token, struct token_pair *p)
{
        return refresh_rotate(&s->a, str_of(token), "c1", NULL, p, NULL);
}

static bool alive(struct setting *s, const char *token)
{
        unsigned char hash[32];
        struct token t;

        sha256_of(token, strlen(token), hash);
        return tokens_find(s->a.db, hash, &t) == 0 && t.expires_at > clock_now;
}

static void test_code(void **state)
{
        struct setting *s = *state;
        _cleanup_free_ char *code = issue(s), *late = issue(s), *wrong = issue(s), *foreign = issue(s);
        struct token_pair p = { 0 }, q = { 0 };

        assert_int_equal(redeem(s, "psc_unknown", &p), TOKEN_INVALID_GRANT);
        assert_int_equal(redeem(s, code, &p), TOKEN_OK);
        assert_true(p.expires_in == 3600 && alive(s, p.access) && alive(s, p.refresh));
        assert_int_equal(redeem(s, code, &q), TOKEN_INVALID_GRANT);
        assert_false(alive(s, p.access) || alive(s, p.refresh));
        assert_int_equal(code_redeem(&s->a, str_of(wrong), "c1", REDIRECT, STR(CHALLENGE), NULL, &p, NULL),
                         TOKEN_INVALID_GRANT);
        assert_int_equal(redeem(s, wrong, &p), TOKEN_INVALID_GRANT); /* burnt */
        assert_int_equal(code_redeem(&s->a, str_of(foreign), "c1", REDIRECT, STR(VERIFIER), "http://x/mcp", &p, NULL),
                         TOKEN_INVALID_TARGET);
        clock_now += CODE_MS;
        assert_int_equal(redeem(s, late, &p), TOKEN_INVALID_GRANT);
}

static void test_rotation(void **state)
{
        struct setting *s = *state;
        struct token_pair p, q, r, again;

        sign_in(s, &p);
        clock_now += 1000;
        assert_int_equal(refresh(s, p.refresh, &q), TOKEN_OK);
        assert_string_not_equal(p.refresh, q.refresh);
        assert_true(alive(s, p.access)); /* until its own end */
        clock_now += GRACE_MS;
        assert_int_equal(refresh(s, p.refresh, &again), TOKEN_OK);
        assert_string_equal(again.refresh, q.refresh);
        assert_string_equal(again.access, q.access);
        assert_int_equal(again.expires_in, 3600 - GRACE_MS / 1000);
        assert_int_equal(refresh(s, q.refresh, &r), TOKEN_OK);
        assert_int_equal(refresh(s, p.refresh, &again), TOKEN_OK); /* the end of the chain */
        assert_string_equal(again.refresh, r.refresh);
        clock_now += 1;
        assert_int_equal(refresh(s, p.refresh, &again), TOKEN_INVALID_GRANT);
        assert_int_equal(refresh(s, r.refresh, &again), TOKEN_INVALID_GRANT);
        assert_false(alive(s, r.access) || alive(s, p.access));
}

static void test_sliding(void **state)
{
        struct setting *s = *state;
        struct token_pair p, q;

        sign_in(s, &p);
        for (int i = 0; i < 5; i++) {
                clock_now += REFRESH_MS - 1;
                assert_false(alive(s, p.access));
                assert_int_equal(oauth_trim(s->a.db, clock_now), 0);
                assert_int_equal(refresh(s, p.refresh, &q), TOKEN_OK);
                p = q;
        }
        clock_now += REFRESH_MS;
        assert_int_equal(refresh(s, p.refresh, &q), TOKEN_INVALID_GRANT);
}

static void test_others(void **state)
{
        struct setting *s = *state;
        struct token_pair p, q;

        sign_in(s, &p);
        assert_int_equal(refresh_rotate(&s->a, str_of(p.refresh), "c2", NULL, &q, NULL), TOKEN_INVALID_GRANT);
        assert_int_equal(refresh_rotate(&s->a, str_of(p.access), "c1", NULL, &q, NULL), TOKEN_INVALID_GRANT);
        assert_int_equal(refresh_rotate(&s->a, str_of(p.refresh), "c1", "http://127.0.0.1:1/mcp", &q, NULL),
                         TOKEN_INVALID_TARGET);
        assert_int_equal(refresh_rotate(&s->a, str_of(p.refresh), "c1", RESOURCE "/", &q, NULL), TOKEN_OK);
        assert_int_equal(token_revoke(&s->a, str_of(q.refresh), "c2"), 0);
        assert_true(alive(s, q.refresh));
        assert_int_equal(token_revoke(&s->a, str_of(q.access), "c1"), 0);
        assert_true(!alive(s, q.access) && alive(s, q.refresh));
        /* The access token is gone, so the same pair cannot be given again; the refresh token still can be used. */
        assert_int_equal(refresh(s, p.refresh, &q), TOKEN_INVALID_GRANT);
        assert_int_equal(token_revoke(&s->a, STR("psr_unknown"), "c1"), 0);
}

static void test_trim(void **state)
{
        struct setting *s = *state;
        struct token_pair p;
        struct client c = { 0 };

        sign_in(s, &p);
        put_client(s->a.db, "c3");
        clock_now += 40 * 24 * 3600 * (int64_t) 1000;
        put_client(s->a.db, "c4");
        struct token_pair q;
        sign_in(s, &q);
        assert_int_equal(clients_trim(s->a.db, clock_now - 1000, clock_now + 1, 1), 0);
        assert_int_equal(clients_get(s->a.db, "c1", &c), 0); /* it has a grant */
        client_done(&c);
        assert_int_equal(clients_get(s->a.db, "c3", &c), -ENOENT);
        assert_int_equal(oauth_trim(s->a.db, clock_now), 0);
        assert_false(alive(s, p.access));
        assert_true(alive(s, q.access));
        assert_int_equal(people_delete(s->a.db, NULL, "ada", NULL), 0);
        assert_false(alive(s, q.access) || alive(s, q.refresh));
}

static void test_resource(void **state)
{
        (void) state;
        assert_true(resource_ok("http://127.0.0.1:7420/mcp", "http://127.0.0.1:7420"));
        assert_true(resource_ok("HTTP://127.0.0.1:7420/mcp/", "http://127.0.0.1:7420"));
        assert_false(resource_ok("http://127.0.0.1:7420/MCP", "http://127.0.0.1:7420"));
        assert_false(resource_ok("http://127.0.0.1:7420/mcp?x", "http://127.0.0.1:7420"));
        assert_false(resource_ok("http://127.0.0.1:7420/mcp2", "http://127.0.0.1:7420"));
        assert_false(resource_ok("http://127.0.0.1:74201/mcp", "http://127.0.0.1:7420"));
        assert_false(resource_ok("http://127.0.0.1:7420", "http://127.0.0.1:7420"));
        assert_false(resource_ok("https://127.0.0.1:7420/mcp", "http://127.0.0.1:7420"));
        assert_false(resource_ok("", "http://127.0.0.1:7420"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_code, setup, teardown),
                cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
                cmocka_unit_test_setup_teardown(test_sliding, setup, teardown),
                cmocka_unit_test_setup_teardown(test_others, setup, teardown),
                cmocka_unit_test_setup_teardown(test_trim, setup, teardown),
                cmocka_unit_test(test_resource),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
