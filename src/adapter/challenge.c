#include "adapter/challenge.h"
#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>

#define VALUE_MAX 8192

void challenge_done(struct challenge *c)
{
        free(c->resource_metadata);
        free(c->scope);
        free(c->error);
        *c = (struct challenge){ 0 };
}

static bool is_token(char c)
{
        return c_is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static void skip(struct str *s, const char *set)
{
        while (s->n && strchr(set, s->p[0]))
                *s = str_n(s->p + 1, s->n - 1);
}

static struct str take_token(struct str *s)
{
        size_t n = 0;

        while (n < s->n && is_token(s->p[n]))
                n++;
        struct str t = str_n(s->p, n);
        *s = str_n(s->p + n, s->n - n);
        return t;
}

/* A token (also an empty one) or a quoted string, without its quotes and escapes. False when a quote has no end. */
static bool take_value(struct str *s, struct buf *out)
{
        if (!s->n || s->p[0] != '"') {
                /* Sloppy servers, and what stands behind a scheme in place of parameters: up to the next comma or
                 * space. */
                size_t n = 0;

                while (n < s->n && !memchr(", \t", s->p[n], 3))
                        n++;
                bool ok = n == 0 || buf_add(out, s->p, n) == 0;
                *s = str_n(s->p + n, s->n - n);
                return ok;
        }
        for (size_t i = 1; i < s->n; i++) {
                if (s->p[i] == '"') {
                        *s = str_n(s->p + i + 1, s->n - i - 1);
                        return true;
                }
                if (s->p[i] == '\\' && i + 1 < s->n)
                        i++;
                if (buf_addc(out, s->p[i]) < 0)
                        return false;
        }
        return false;
}

static void keep(char **to, struct buf *value)
{
        if (!*to && value->len)
                *to = xstrdup(buf_cstr(value));
}

static void add_param(struct challenge *c, struct str name, struct buf *value)
{
        if (str_ieq(name, STR("resource_metadata")))
                keep(&c->resource_metadata, value);
        else if (str_ieq(name, STR("scope")))
                keep(&c->scope, value);
        else if (str_ieq(name, STR("error")))
                keep(&c->error, value);
}

void challenge_parse(struct challenge *c, struct str s)
{
        bool bearer = false;

        for (;;) {
                _cleanup_buf_ struct buf value = BUF_MAX(VALUE_MAX);

                skip(&s, ", \t");
                struct str word = take_token(&s);
                if (!word.n)
                        return;
                skip(&s, " \t");
                if (!s.n || s.p[0] != '=') { /* a word without a value names the next scheme */
                        bearer = str_ieq(word, STR("bearer"));
                        c->bearer |= bearer;
                        continue;
                }
                skip(&s, "=");
                skip(&s, " \t");
                if (!take_value(&s, &value))
                        return;
                if (bearer)
                        add_param(c, word, &value);
        }
}

bool scope_has(const char *scope, struct str word)
{
        struct str rest = str_of(scope ? scope : "");

        while (rest.n) {
                struct str w = str_cut(&rest, ' ');

                if (str_eq(w, word))
                        return true;
        }
        return false;
}

char *scope_union(const char *a, const char *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX(2 * VALUE_MAX);
        const char *const both[] = { a, b };

        for (size_t i = 0; i < ARRAY_LEN(both); i++) {
                struct str rest = str_of(both[i] ? both[i] : "");

                while (rest.n) {
                        struct str w = str_cut(&rest, ' ');

                        if (!w.n || scope_has(buf_cstr(&out), w))
                                continue;
                        if (out.len)
                                (void) buf_addc(&out, ' ');
                        (void) buf_addstr(&out, w);
                }
        }
        return out.len ? xstrdup(buf_cstr(&out)) : NULL;
}
