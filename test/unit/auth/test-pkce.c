#include "test.h"

#include "auth/pkce.h"

/* RFC 7636, appendix B */
#define VERIFIER "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
#define CHALLENGE "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

static void test_vector(void **state)
{
        (void) state;
        assert_true(pkce_matches(STR(VERIFIER), STR(CHALLENGE)));
        assert_false(pkce_matches(STR(VERIFIER "x"), STR(CHALLENGE)));
        assert_false(pkce_matches(STR(VERIFIER), STR("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cN")));
        assert_false(pkce_matches(STR(CHALLENGE), STR(CHALLENGE))); /* plain */
        assert_false(pkce_matches(STR(""), STR("")));
}

static void test_forms(void **state)
{
        char text[200];

        (void) state;
        memset(text, 'a', sizeof text);
        assert_false(pkce_verifier_ok(str_n(text, 42)));
        assert_true(pkce_verifier_ok(str_n(text, 43)));
        assert_true(pkce_verifier_ok(str_n(text, 128)));
        assert_false(pkce_verifier_ok(str_n(text, 129)));
        memcpy(text, "-._~", 4);
        assert_true(pkce_verifier_ok(str_n(text, 43)));
        for (const char *p = " +/=%\n\x7f"; *p; p++) {
                text[5] = *p;
                assert_false(pkce_verifier_ok(str_n(text, 43)));
        }
        assert_true(pkce_challenge_ok(STR(CHALLENGE)));
        assert_false(pkce_challenge_ok(STR("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-c")));
        assert_false(pkce_challenge_ok(STR("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM")));
        assert_false(pkce_challenge_ok(STR(CHALLENGE "=")));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_vector), cmocka_unit_test(test_forms) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
