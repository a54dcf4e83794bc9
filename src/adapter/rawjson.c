#include "adapter/rawjson.h"
#include "base/json.h"

#define SPACE " \t\r\n"

struct str raw_trim(struct str s)
{
        return str_trim(s, SPACE);
}

static void skip_space(struct str *s)
{
        while (s->n && memchr(SPACE, s->p[0], 4))
                *s = str_n(s->p + 1, s->n - 1);
}

static size_t string_len(struct str s)
{
        size_t i = 1;

        while (i < s.n && s.p[i] != '"')
                i += s.p[i] == '\\' ? 2 : 1;
        return i < s.n ? i + 1 : s.n;
}

static size_t nested_len(struct str s)
{
        size_t depth = 0, i = 0;

        while (i < s.n) {
                char c = s.p[i];

                if (c == '"') {
                        i += string_len(str_n(s.p + i, s.n - i));
                        continue;
                }
                i++;
                if (c == '{' || c == '[')
                        depth++;
                else if ((c == '}' || c == ']') && --depth == 0)
                        break;
        }
        return i;
}

static size_t value_len(struct str s)
{
        size_t i = 0;

        if (s.n == 0)
                return 0;
        if (s.p[0] == '"')
                return string_len(s);
        if (s.p[0] == '{' || s.p[0] == '[')
                return nested_len(s);
        while (i < s.n && !memchr(",]} \t\r\n", s.p[i], 7))
                i++;
        return i;
}

struct raw_it raw_begin(struct str obj)
{
        struct str s = raw_trim(obj);

        if (s.n < 2 || s.p[0] != '{')
                return (struct raw_it){ .rest = str_n(NULL, 0) };
        return (struct raw_it){ .rest = str_n(s.p + 1, s.n - 2) };
}

bool raw_next(struct raw_it *it, struct str *key, struct str *value)
{
        struct str s = it->rest;
        size_t n;

        skip_space(&s);
        if (s.n && s.p[0] == ',') {
                s = str_n(s.p + 1, s.n - 1);
                skip_space(&s);
        }
        if (s.n < 2 || s.p[0] != '"')
                return false;
        n = string_len(s);
        *key = str_n(s.p + 1, n >= 2 ? n - 2 : 0);
        s = str_n(s.p + n, s.n - n);
        skip_space(&s);
        if (!s.n || s.p[0] != ':')
                return false;
        s = str_n(s.p + 1, s.n - 1);
        skip_space(&s);
        n = value_len(s);
        *value = str_n(s.p, n);
        it->rest = str_n(s.p + n, s.n - n);
        return n > 0;
}

bool raw_key_is(struct str key, const char *name)
{
        if (!memchr(key.p, '\\', key.n))
                return str_eq(key, str_of(name));
        _cleanup_json_ struct json *j = NULL;
        /* key points between its quotes */
        return json_parse(key.p - 1, key.n + 2, &j, NULL) == 0 && str_eq(json_strn(j), str_of(name));
}

bool raw_get(struct str obj, const char *key, struct str *ret)
{
        struct str k, v;

        for (struct raw_it it = raw_begin(obj); raw_next(&it, &k, &v);)
                if (raw_key_is(k, key)) {
                        *ret = v;
                        return true;
                }
        *ret = str_n(NULL, 0);
        return false;
}

int raw_add_line(struct buf *out, struct str s)
{
        char *p = buf_room(out, s.n);

        if (!p)
                return s.n ? -1 : 0;
        memcpy(p, s.p, s.n);
        for (char *q = p; (q = memchr(q, '\n', s.n - (size_t) (q - p)));)
                *q = ' ';
        for (char *q = p; (q = memchr(q, '\r', s.n - (size_t) (q - p)));)
                *q = ' ';
        buf_grew(out, s.n);
        return 0;
}

struct str raw_array_inside(struct str array)
{
        struct str s = raw_trim(array);

        if (s.n < 2 || s.p[0] != '[')
                return str_n(s.p, 0);
        return raw_trim(str_n(s.p + 1, s.n - 2));
}
