#include "base/json_scan.h"
#include "base/json.h"
#include "base/json_keys.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* No number with fewer characters and without an exponent exceeds a double. */
#define SAFE_DIGITS 300

struct level {
        bool obj;
        size_t first_key; /* number in keys */
};

struct scan {
        struct str text;
        size_t at;
        size_t start; /* of the value */
        unsigned depth;
        struct level levels[JSON_DEPTH_MAX];
        struct json_keys keys;
        struct buf *wide;
        struct err *e;
};

static int bad_at(struct scan *s, size_t at, const char *why)
{
        size_t line = 1, begin = 0;

        for (size_t i = 0; i < at; i++)
                if (s->text.p[i] == '\n') {
                        line++;
                        begin = i + 1;
                }
        return err_set(s->e, -EINVAL, "line %zu column %zu: %s", line, at - begin + 1, why);
}

static int bad(struct scan *s, const char *why)
{
        return bad_at(s, s->at, s->at < s->text.n ? why : "the text ends too early");
}

static int no_memory(struct scan *s)
{
        return err_set(s->e, -ENOMEM, "out of memory");
}

/* The byte at offset i, or 0 at the end; a NUL in the text is never welcome, so the two need no distinction. */
static char byte(const struct scan *s, size_t i)
{
        return i < s->text.n ? s->text.p[i] : '\0';
}

static char skip_space(struct scan *s)
{
        char c;

        while ((c = byte(s, s->at)) == ' ' || c == '\n' || c == '\r' || c == '\t')
                s->at++;
        return c;
}

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

static bool scan_unit(const struct scan *s, size_t at, unsigned *ret)
{
        unsigned v = 0;

        if (byte(s, at) != '\\' || byte(s, at + 1) != 'u')
                return false;
        for (size_t i = at + 2; i < at + 6; i++) {
                char c = byte(s, i);

                if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
                        return false;
                v = v << 4 | (is_digit(c) ? (unsigned) (c - '0') : (unsigned) ((c | 0x20) - 'a' + 10));
        }
        *ret = v;
        return true;
}

static int scan_escape(struct scan *s)
{
        char c = byte(s, s->at + 1);
        unsigned unit, low;

        if (c && strchr("\"\\/bfnrt", c)) {
                s->at += 2;
                return 0;
        }
        if (!scan_unit(s, s->at, &unit))
                return bad(s, "invalid escape in a string");
        if (unit >= 0xd800 && unit <= 0xdfff) {
                if (unit >= 0xdc00 || !scan_unit(s, s->at + 6, &low) || low < 0xdc00 || low > 0xdfff)
                        return bad(s, "lone surrogate in a string");
                s->at += 6;
        }
        s->at += 6;
        return 0;
}

/* From the opening quote to behind the closing one. */
static int scan_string(struct scan *s, bool *ret_escaped)
{
        *ret_escaped = false;
        s->at++;
        for (;;) {
                const unsigned char c = (unsigned char) byte(s, s->at);

                if (c == '"') {
                        s->at++;
                        return 0;
                }
                if (c < 0x20)
                        return bad(s, "raw control byte in a string");
                if (c == '\\') {
                        int r = scan_escape(s);
                        if (r < 0)
                                return r;
                        *ret_escaped = true;
                } else if (c < 0x80) {
                        s->at++;
                } else {
                        size_t len = utf8_seq(str_n(s->text.p + s->at, s->text.n - s->at));
                        if (!len)
                                return bad(s, "invalid UTF-8 in a string");
                        s->at += len;
                }
        }
}

static size_t skip_digits(struct scan *s)
{
        size_t from = s->at;

        while (is_digit(byte(s, s->at)))
                s->at++;
        return s->at - from;
}

/* A number json-c would turn into infinity is refused: no reader could tell what was meant. */
static int check_finite(struct scan *s, size_t from)
{
        _cleanup_free_ char *copy = try_malloc(s->at - from + 1);

        if (!copy)
                return no_memory(s);
        memcpy(copy, s->text.p + from, s->at - from);
        copy[s->at - from] = '\0';
        return isfinite(strtod(copy, NULL)) ? 0 : bad_at(s, from, "number out of range");
}

static int note_wide(struct scan *s, size_t from)
{
        bool minus = s->text.p[from] == '-';
        struct str digits = str_n(s->text.p + from + minus, s->at - from - minus);
        size_t end = s->at - s->start;
        uint64_t v;

        if (parse_u64(digits, (uint64_t) INT64_MAX + minus, &v) == 0)
                return 0;
        return buf_add(s->wide, &end, sizeof end) < 0 ? no_memory(s) : 0;
}

static int scan_number(struct scan *s)
{
        size_t from = s->at;
        bool integer = true, exponent = false;

        s->at += byte(s, s->at) == '-';
        if (byte(s, s->at) == '0')
                s->at++;
        else if (skip_digits(s) == 0)
                return bad(s, "expected a digit");
        if (is_digit(byte(s, s->at)))
                return bad(s, "a number must not start with 0");
        if (byte(s, s->at) == '.') {
                s->at++;
                integer = false;
                if (skip_digits(s) == 0)
                        return bad(s, "expected a digit after the decimal point");
        }
        if ((byte(s, s->at) | 0x20) == 'e') {
                s->at++;
                integer = false;
                exponent = true;
                s->at += byte(s, s->at) == '+' || byte(s, s->at) == '-';
                if (skip_digits(s) == 0)
                        return bad(s, "expected a digit in the exponent");
        }
        int r = integer ? note_wide(s, from) : 0;
        return r == 0 && (exponent || s->at - from > SAFE_DIGITS) ? check_finite(s, from) : r;
}

static int scan_scalar(struct scan *s, char c)
{
        static const struct str words[] = { { "true", 4 }, { "false", 5 }, { "null", 4 } };
        struct str rest = str_n(s->text.p + s->at, s->text.n - s->at);
        bool escaped;

        if (c == '"')
                return scan_string(s, &escaped);
        if (c == '-' || is_digit(c))
                return scan_number(s);
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                if (str_starts(rest, words[i])) {
                        s->at += words[i].n;
                        return 0;
                }
        return bad(s, "expected a value");
}

static int scan_key(struct scan *s)
{
        const struct level *l = &s->levels[s->depth - 1];
        bool escaped;

        if (skip_space(s) != '"')
                return bad(s, "expected a key in double quotes");
        size_t from = s->at;
        int r = scan_string(s, &escaped);
        if (r < 0)
                return r;
        r = json_keys_add(&s->keys, str_n(s->text.p + from + 1, s->at - from - 2), escaped, l->first_key);
        if (r < 0)
                return r == -EEXIST   ? bad_at(s, from, "duplicate key")
                       : r == -EILSEQ ? bad_at(s, from, "NUL in a key")
                                      : no_memory(s);
        if (skip_space(s) != ':')
                return bad(s, "expected ':'");
        s->at++;
        return 0;
}

static int open_level(struct scan *s, bool obj)
{
        if (s->depth == JSON_DEPTH_MAX)
                return bad(s, "nested too deeply");
        s->levels[s->depth++] = (struct level){ .obj = obj, .first_key = s->keys.len };
        s->at++;
        return 0;
}

static bool close_level(struct scan *s)
{
        const struct level *l = &s->levels[s->depth - 1];

        if (skip_space(s) != (l->obj ? '}' : ']'))
                return false;
        json_keys_drop(&s->keys, l->first_key);
        s->at++;
        s->depth--;
        return true;
}

/* A scalar or an empty container; on the way the containers it is the first item of are opened. */
static int scan_value(struct scan *s)
{
        for (;;) {
                char c = skip_space(s);
                if (c != '{' && c != '[')
                        return scan_scalar(s, c);
                int r = open_level(s, c == '{');
                if (r < 0 || close_level(s))
                        return r;
                if (c == '{' && (r = scan_key(s)) < 0)
                        return r;
        }
}

/* What follows a value inside a container. */
static int scan_next(struct scan *s)
{
        bool obj = s->levels[s->depth - 1].obj;

        if (close_level(s))
                return 0;
        if (byte(s, s->at) != ',')
                return bad(s, obj ? "expected ',' or '}'" : "expected ',' or ']'");
        s->at++;
        int r = obj ? scan_key(s) : 0;
        return r < 0 ? r : scan_value(s);
}

static int scan_text(struct scan *s, struct str *ret_value)
{
        (void) skip_space(s);
        s->start = s->at;
        int r = scan_value(s);
        while (r == 0 && s->depth)
                r = scan_next(s);
        if (r < 0)
                return r;
        *ret_value = str_n(s->text.p + s->start, s->at - s->start);
        (void) skip_space(s);
        return s->at < s->text.n ? bad(s, "unexpected text after the value") : 0;
}

int json_scan(struct str text, struct str *ret_value, struct buf *wide, struct err *e)
{
        struct scan s = { .text = text, .wide = wide, .e = e };

        json_keys_init(&s.keys, text);
        int r = scan_text(&s, ret_value);
        json_keys_done(&s.keys);
        return r;
}
