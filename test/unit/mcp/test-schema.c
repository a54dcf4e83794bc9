#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mcp/mcp.h"

#include <stdlib.h>

static struct json *parse(const char *text)
{
        struct json *j = NULL;
        struct err e = { 0 };

        if (json_parse(text, strlen(text), &j, &e) < 0)
                fail_msg("%s: %s", text, e.msg);
        return j;
}

#define OBJ(props, more) "{\"type\":\"object\",\"properties\":{" props "}" more "}"
#define EXEC                                                                                                    \
        OBJ("\"id\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":5,\"description\":\"the box\"},"         \
            "\"timeoutSec\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":3600},"                             \
            "\"size\":{\"type\":\"string\",\"enum\":[\"small\",\"large\"]},"                                    \
            "\"background\":{\"type\":\"boolean\"},"                                                            \
            "\"agent\":{\"type\":\"string\",\"maxLength\":64,\"pattern\":\"^[a-z]+$\"},"                        \
            "\"share\":{\"type\":\"number\",\"minimum\":0.5},"                                                  \
            "\"low\":{\"type\":\"number\",\"maximum\":7},"                                                      \
            "\"env\":{\"type\":\"object\",\"maxProperties\":2,\"additionalProperties\":{\"type\":\"string\"}}," \
            "\"any\":{},"                                                                                       \
            "\"paths\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":{\"type\":\"string\"}},"     \
            "\"services\":{\"type\":\"array\",\"items\":" OBJ(                                                  \
                    "\"port\":{\"type\":\"integer\",\"maximum\":65535}",                                        \
                    ",\"required\":[\"port\"],\"additionalProperties\":false") "}",                             \
            ",\"required\":[\"id\"],\"additionalProperties\":false")

static void test_check(void **state)
{
        static const struct {
                const char *args, *want; /* want NULL: valid */
        } rows[] = {
                { "{\"id\":\"b\"}", NULL },
                { "{\"id\":\"b\",\"timeoutSec\":3600,\"size\":\"large\",\"background\":false,\"agent\":\"abc\"}",
                  NULL },
                { "{\"id\":\"b\",\"timeoutSec\":5.0}", NULL },
                { "{\"id\":\"b\",\"timeoutSec\":null,\"paths\":null}", NULL },
                { "{\"id\":\"b\",\"any\":[1,{}]}", NULL },
                { "{\"id\":\"\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\"}", NULL },
                { "{\"id\":\"b\",\"env\":{\"A\":\"1\",\"B\":\"\"},\"services\":[{\"port\":1}]}", NULL },
                { "{}", "`id` is required: the box" },
                { "{\"id\":null}", "`id` is required: the box" },
                { "[]", "the arguments must be an object, got an array of 0" },
                { "\"x\"", "the arguments must be an object, got \"x\"" },
                { "{\"id\":\"\"}", "`id` must be a string of 1 to 5 characters, got \"\"" },
                { "{\"id\":\"123456\"}", "`id` must be a string of 1 to 5 characters, got \"123456\"" },
                { "{\"id\":7}", "`id` must be a string of 1 to 5 characters, got 7" },
                { "{\"id\":{\"a\":1}}", "`id` must be a string of 1 to 5 characters, got an object" },
                { "{\"id\":\"a\\u0000b\"}", "`id` must not hold a NUL character" },
                { "{\"id\":\"b\",\"timeoutSec\":\"abc\"}",
                  "`timeoutSec` must be an integer from 1 to 3600, got \"abc\"" },
                { "{\"id\":\"b\",\"timeoutSec\":0}", "`timeoutSec` must be an integer from 1 to 3600, got 0" },
                { "{\"id\":\"b\",\"timeoutSec\":3601}", "`timeoutSec` must be an integer from 1 to 3600, got 3601" },
                { "{\"id\":\"b\",\"timeoutSec\":1.5}", "`timeoutSec` must be an integer from 1 to 3600, got 1.5" },
                { "{\"id\":\"b\",\"timeoutSec\":1e300}", "`timeoutSec` must be an integer from 1 to 3600, got 1e300" },
                { "{\"id\":\"b\",\"timeoutSec\":true}", "`timeoutSec` must be an integer from 1 to 3600, got true" },
                { "{\"id\":\"b\",\"size\":\"huge\"}", "`size` must be one of \"small\", \"large\", got \"huge\"" },
                { "{\"id\":\"b\",\"background\":\"yes\"}", "`background` must be true or false, got \"yes\"" },
                { "{\"id\":\"b\",\"agent\":\"A\"}",
                  "`agent` must be a string of at most 64 characters that matches ^[a-z]+$, got \"A\"" },
                { "{\"id\":\"b\",\"share\":0.25}", "`share` must be a number of at least 0.5, got 0.25" },
                { "{\"id\":\"b\",\"low\":8}", "`low` must be a number of at most 7, got 8" },
                { "{\"id\":\"b\",\"paths\":[]}", "`paths` must be an array of 1 to 2 items, got an array of 0" },
                { "{\"id\":\"b\",\"paths\":[\"a\",5]}", "`paths[1]` must be a string, got 5" },
                { "{\"id\":\"b\",\"paths\":\"a\"}", "`paths` must be an array of 1 to 2 items, got \"a\"" },
                { "{\"id\":\"b\",\"env\":{\"A\":1}}", "`env.A` must be a string, got 1" },
                { "{\"id\":\"b\",\"env\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}",
                  "`env` must be an object of at most 2 members, got an object of 3" },
                { "{\"id\":\"b\",\"services\":[{\"port\":1},{}]}",
                  "`services[1].port` is required: an integer of at most 65535" },
                { "{\"id\":\"b\",\"services\":[{\"port\":1,\"web\":true}]}",
                  "`services[0].web` is not known here; known are `port`" },
        };
        _cleanup_json_ struct json *schema = parse(EXEC);
        struct err e = { 0 };
        struct schema *s = schema_compile(schema, &e);

        if (!s)
                fail_msg("%s", e.msg);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                _cleanup_json_ struct json *args = parse(rows[i].args);
                int r;

                e = (struct err){ 0 };
                r = schema_check(s, args, &e);
                if (r == 0 ? rows[i].want != NULL : !cstr_eq(rows[i].want, e.msg))
                        fail_msg("%s: %d %s", rows[i].args, r, e.msg);
        }
        schema_free(s);
}

static void test_unknown(void **state)
{
        _cleanup_json_ struct json *schema = parse(OBJ("\"goal\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"}",
                                                       ",\"additionalProperties\":false"));
        _cleanup_json_ struct json *args = parse("{\"containers\":true}");
        struct err e = { 0 };
        struct schema *s = schema_compile(schema, &e);

        /* The tree may go: the schema keeps it. */
        json_unref(steal_ptr(schema));
        assert_true(schema_check(s, args, &e) < 0);
        assert_string_equal(e.msg, "`containers` is not an argument of this tool; it takes `goal`, `name`");
        schema_free(s);
}

/* A message names a hostile value or key without repeating megabytes, and stays valid UTF-8. */
static void test_long_values(void **state)
{
        _cleanup_json_ struct json *schema =
                parse(OBJ("\"id\":{\"type\":\"string\",\"maxLength\":5}", ",\"additionalProperties\":false"));
        struct schema *s = schema_compile(schema, NULL);
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct err e = { 0 };
        struct json *args;

        (void) buf_adds(&b, "{\"id\":\"");
        for (int i = 0; i < 5000; i++)
                (void) buf_adds(&b, "\xe2\x82\xac");
        (void) buf_adds(&b, "\"}");
        args = parse(buf_cstr(&b));
        assert_true(schema_check(s, args, &e) < 0);
        assert_non_null(strstr(e.msg, "\xe2\x82\xac\"\xe2\x80\xa6 (5000 characters)"));
        json_unref(args);

        buf_clear(&b);
        (void) buf_adds(&b, "{\"");
        for (int i = 0; i < 5000; i++)
                (void) buf_adds(&b, "\xe2\x82\xac");
        (void) buf_adds(&b, "\":1}");
        args = parse(buf_cstr(&b));
        assert_true(schema_check(s, args, &e) < 0);
        assert_non_null(strstr(e.msg, "it takes `id`"));
        json_unref(args);
        schema_free(s);
}

static void test_bad_schemas(void **state)
{
        static const char *const bad[] = {
                "[]",
                "{\"type\":\"thing\"}",
                "{\"type\":[\"string\"]}",
                "{\"type\":\"string\",\"enum\":[]}",
                "{\"type\":\"string\",\"enum\":[1]}",
                "{\"type\":\"string\",\"minLength\":-1}",
                "{\"type\":\"string\",\"maxLength\":\"5\"}",
                "{\"type\":\"string\",\"pattern\":\"(a|b)\"}",
                "{\"type\":\"integer\",\"minimum\":\"1\"}",
                "{\"type\":\"object\",\"required\":[\"x\"]}",
                "{\"type\":\"object\",\"required\":[1]}",
                "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":5}}}",
                "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"x\"}}",
        };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                _cleanup_json_ struct json *j = parse(bad[i]);
                struct err e = { 0 };

                if (schema_compile(j, &e))
                        fail_msg("%s was accepted", bad[i]);
                assert_true(e.msg[0]);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_check),
                cmocka_unit_test(test_unknown),
                cmocka_unit_test(test_long_values),
                cmocka_unit_test(test_bad_schemas),
        };

        return cmocka_run_group_tests_name("mcp-schema", tests, NULL, NULL);
}
