#include "test.h"

#include "auth/html.h"
#include "auth/template.h"

#include <errno.h>

static void check(const char *in, size_t n, const char *want)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);

        assert_int_equal(html_escape(&b, str_n(in, n)), 0);
        assert_string_equal(buf_cstr(&b), want);
}

static void test_escape(void **state)
{
        static const struct {
                const char *in, *want;
        } rows[] = {
                { "", "" },
                { "plain", "plain" },
                { "<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;" },
                { "\" onmouseover='x'", "&quot; onmouseover=&#39;x&#39;" },
                { "`a`", "&#96;a&#96;" },
                { "&lt;", "&amp;lt;" },
                { "日本語 é 😀", "日本語 é 😀" },
                { "a\u202eb", "a\ufffdb" },
                { "\u2066\u2069\u200e\u200f\u2028\u2029", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd" },
                { "\u200d", "\u200d" }, /* joins emoji */
                { "\x1b[31m\x7f\x01", "\ufffd[31m\ufffd\ufffd" },
                { "\xff\xfe", "\ufffd\ufffd" },
                { "\xc0\xbc", "\ufffd\ufffd" }, /* an overlong < */
                { "\xe0\x80\xbc", "\ufffd\ufffd\ufffd" },
                { "\xe3\x81", "\ufffd\ufffd" }, /* cut off */
                { "a\nb\tc", "a\nb\tc" },
        };

        (void) state;
        for (size_t i = 0; i < COUNT(rows); i++)
                check(rows[i].in, strlen(rows[i].in), rows[i].want);
        check("a\0b", 3, "a\ufffdb");
}

/* Whatever the bytes: no character that HTML knows is left over. */
static void test_every_byte(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);

        (void) state;
        for (int i = 0; i < 65536; i++) {
                char two[2] = { (char) (i >> 8), (char) i };

                assert_int_equal(html_escape(&b, str_n(two, 2)), 0);
        }
        for (size_t i = 0; i < b.len; i++)
                if (strchr("<>\"'`", b.p[i]) && b.p[i])
                        fail_msg("%c", b.p[i]);
}

static void test_limit(void **state)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8);

        (void) state;
        assert_int_equal(html_escape(&b, STR("<<")), 0);
        assert_int_equal(html_escape(&b, STR("<")), -ENOBUFS);
        assert_int_equal(b.len, 8);
}

/* ---- templates ---- */

static const char *const files[][2] = {
        { "value", "<p title=\"{{a}}\">{{a}}</p>" },
        { "section", "{{#list}}[{{name}}:{{outer}}]{{/list}}{{^list}}none{{/list}}" },
        { "bool", "{{#yes}}Y{{/yes}}{{#no}}N{{/no}}{{^no}}n{{/no}}{{#gone}}G{{/gone}}" },
        { "nested", "{{#o}}{{#o}}{{x}}{{/o}}{{/o}}" },
        { "text", "{{_hello}}" },
        { "fallback", "{{_only}}" },
        { "include", "({{>value}})" },
        { "asset", "{{@style}}" },
        { "loop", "{{>loop}}" },
        { "open", "{{a" },
        { "unclosed", "{{#a}}x" },
        { "stray", "{{/a}}" },
        { "empty", "{{}}" },
        { "unknown", "{{_nothing}}" },
        { "missing", "{{>nothing}}" },
        { "noasset", "{{@nothing}}" },
        { "items", "{{#words}}<{{.}}>{{/words}}" },
        { "count", "{{#n}}{{n}}{{/n}}{{#zero}}z{{/zero}}" },
};

static const char *file(const char *name, size_t *ret_len)
{
        for (size_t i = 0; i < COUNT(files); i++)
                if (strcmp(files[i][0], name) == 0) {
                        *ret_len = strlen(files[i][1]);
                        return files[i][1];
                }
        return NULL;
}

static const char *asset(const char *name)
{
        return strcmp(name, "style") == 0 ? "/assets/style.css" : NULL;
}

static void test_templates(void **state)
{
        static const char data[] = "{\"a\":\"<&\\\"{{b}}\",\"b\":\"B\",\"outer\":\"O\",\"list\":[{\"name\":\"<1>\"},{"
                                   "\"name\":\"2\",\"outer\":\"I\"}],"
                                   "\"yes\":true,\"no\":false,\"o\":{\"x\":\"<x>\"},\"who\":\"<Ada>\",\"words\":[\"a\","
                                   "\"<\"],\"n\":7,\"zero\":0}";
        static const struct {
                const char *file, *want; /* NULL: refused */
                int r;
        } rows[] = {
                { "value", "<p title=\"&lt;&amp;&quot;{{b}}\">&lt;&amp;&quot;{{b}}</p>", 0 },
                { "section", "[&lt;1&gt;:O][2:I]", 0 },
                { "bool", "Yn", 0 },
                { "nested", "&lt;x&gt;", 0 },
                { "text", "Hello &lt;b&gt; &lt;Ada&gt;!", 0 },
                { "fallback", "only &#39;here&#39;", 0 },
                { "include", "(<p title=\"&lt;&amp;&quot;{{b}}\">&lt;&amp;&quot;{{b}}</p>)", 0 },
                { "asset", "/assets/style.css", 0 },
                { "items", "<a><&lt;>", 0 },
                { "count", "7", 0 },
                { "loop", NULL, -EINVAL },
                { "open", NULL, -EINVAL },
                { "unclosed", NULL, -EINVAL },
                { "stray", NULL, -EINVAL },
                { "empty", NULL, -EINVAL },
                { "unknown", NULL, -ENOENT },
                { "missing", NULL, -ENOENT },
                { "noasset", NULL, -ENOENT },
                { "nowhere", NULL, -ENOENT },
        };
        _cleanup_json_ struct json *j = NULL, *texts = NULL, *english = NULL;

        (void) state;
        assert_int_equal(json_parse(data, strlen(data), &j, NULL), 0);
        assert_int_equal(json_parse("{\"hello\":\"Hello <b> {who}!\"}", 28, &texts, NULL), 0);
        assert_int_equal(json_parse("{\"only\":\"only 'here'\"}", 22, &english, NULL), 0);
        struct template_set set = { .file = file, .asset = asset, .texts = texts, .fallback = english };
        for (size_t i = 0; i < COUNT(rows); i++) {
                _cleanup_buf_ struct buf b = BUF_MAX(4096);

                int r = template_render(&set, rows[i].file, j, &b);
                if (r != rows[i].r)
                        fail_msg("%s: %d", rows[i].file, r);
                if (rows[i].want)
                        assert_string_equal(buf_cstr(&b), rows[i].want);
                else
                        assert_int_equal(b.len, 0);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_escape), cmocka_unit_test(test_every_byte),
                                            cmocka_unit_test(test_limit), cmocka_unit_test(test_templates) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
