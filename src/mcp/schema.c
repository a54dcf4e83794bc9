#include "mcp/mcp.h"
#include "mcp/pattern.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SEEN_MAX 80 /* bytes of an offending value that a message repeats */

enum kind { K_ANY, K_OBJECT, K_ARRAY, K_STRING, K_INTEGER, K_NUMBER, K_BOOLEAN };

struct member {
        const char *key;
        struct schema *s;
        bool required;
};

/* Strings and enum values are borrowed from the JSON text's tree, which the root keeps alive. */
struct schema {
        struct json *tree; /* root only */
        enum kind kind;
        const char *description;
        const struct json *choices; /* enum: an array of strings, or NULL */
        struct pattern *pattern;
        const char *pattern_text;
        double min, max;          /* numbers */
        int64_t min_len, max_len; /* characters, items or members; max -1 = none */
        struct member *members;
        size_t n_members;
        bool closed;         /* additionalProperties: false */
        struct schema *rest; /* additionalProperties: a schema */
        struct schema *items;
};

/* Where in the arguments the check is; lives on the stack and becomes text only in a message. */
struct place {
        const struct place *up;
        const char *key; /* or: */
        size_t index;
};

void schema_free(struct schema *s)
{
        if (!s)
                return;
        for (size_t i = 0; i < s->n_members; i++)
                schema_free(s->members[i].s);
        free(s->members);
        schema_free(s->rest);
        schema_free(s->items);
        pattern_free(s->pattern);
        json_unref(s->tree);
        free(s);
}

/* ---- compiling ---- */

static int compile(const struct json *j, struct schema **ret, struct err *e);

struct compiling {
        struct schema *s;
        struct err *e;
};

static int compile_member(const char *key, struct json *value, void *arg)
{
        struct compiling *c = arg;
        struct member *m = &c->s->members[c->s->n_members];
        int r = compile(value, &m->s, c->e);

        if (r < 0) {
                (void) err_wrap(c->e, "%s", key);
                return r;
        }
        m->key = key;
        c->s->n_members++;
        return 0;
}

static struct member *find(const struct schema *s, const char *key)
{
        for (size_t i = 0; i < s->n_members; i++)
                if (cstr_eq(s->members[i].key, key))
                        return &s->members[i];
        return NULL;
}

static int compile_object(struct schema *s, const struct json *j, struct err *e)
{
        const struct json *props = json_get(j, "properties"), *required = json_get(j, "required"),
                          *rest = json_get(j, "additionalProperties");
        struct compiling c = { s, e };
        int r;

        if (json_len(props) > 0) {
                s->members = xcalloc(json_len(props), sizeof(*s->members));
                r = json_each(props, compile_member, &c);
                if (r < 0)
                        return r;
        }
        for (size_t i = 0; i < json_len(required); i++) {
                struct member *m = find(s, json_str(json_at(required, i)));

                if (!m)
                        return err_set(e, -EINVAL, "requires a property that is not described");
                m->required = true;
        }
        if (json_type(rest) == JSON_OBJECT)
                return compile(rest, &s->rest, e);
        s->closed = json_type(rest) == JSON_BOOL && !json_bool(rest);
        return 0;
}

static int length_of(const struct json *j, const char *key, int64_t def, int64_t *ret, struct err *e)
{
        const struct json *v = json_get(j, key);

        *ret = v ? json_int(v) : def;
        if (v && (json_type(v) != JSON_INT || *ret < 0))
                return err_set(e, -EINVAL, "%s must be a whole number", key);
        return 0;
}

static int bound_of(const struct json *j, const char *key, double def, double *ret, struct err *e)
{
        const struct json *v = json_get(j, key);

        *ret = v ? json_double(v) : def;
        if (v && json_type(v) != JSON_INT && json_type(v) != JSON_DOUBLE)
                return err_set(e, -EINVAL, "%s must be a number", key);
        return 0;
}

static int compile_lengths(struct schema *s, const struct json *j, struct err *e)
{
        static const char *const names[][2] = {
                [K_OBJECT] = { "minProperties", "maxProperties" },
                [K_ARRAY] = { "minItems", "maxItems" },
                [K_STRING] = { "minLength", "maxLength" },
        };
        int r = 0;

        s->max_len = -1;
        if (s->kind != K_OBJECT && s->kind != K_ARRAY && s->kind != K_STRING)
                return 0;
        r = length_of(j, names[s->kind][0], 0, &s->min_len, e);
        if (r == 0)
                r = length_of(j, names[s->kind][1], -1, &s->max_len, e);
        return r;
}

static int compile_string(struct schema *s, const struct json *j, struct err *e)
{
        s->choices = json_get(j, "enum");
        for (size_t i = 0; i < json_len(s->choices); i++)
                if (json_type(json_at(s->choices, i)) != JSON_STRING)
                        return err_set(e, -EINVAL, "enum takes strings");
        if (s->choices && json_len(s->choices) == 0)
                return err_set(e, -EINVAL, "enum needs values");
        s->pattern_text = json_get_str(j, "pattern", NULL);
        return s->pattern_text ? pattern_compile(s->pattern_text, &s->pattern, e) : 0;
}

static int kind_of(const struct json *j, enum kind *ret, struct err *e)
{
        static const char *const names[] = { [K_OBJECT] = "object",   [K_ARRAY] = "array",   [K_STRING] = "string",
                                             [K_INTEGER] = "integer", [K_NUMBER] = "number", [K_BOOLEAN] = "boolean" };
        const struct json *type = json_get(j, "type");

        *ret = K_ANY;
        if (!type)
                return 0;
        for (size_t i = K_OBJECT; i < ARRAY_LEN(names); i++)
                if (cstr_eq(json_str(type), names[i])) {
                        *ret = (enum kind) i;
                        return 0;
                }
        return err_set(e, -EINVAL, "type must be object, array, string, integer, number or boolean");
}

static int compile(const struct json *j, struct schema **ret, struct err *e)
{
        struct schema *s;
        int r;

        if (json_type(j) != JSON_OBJECT)
                return err_set(e, -EINVAL, "a schema must be an object, got %s", json_type_name(j));
        s = xcalloc(1, sizeof(*s));
        s->description = json_get_str(j, "description", NULL);
        r = kind_of(j, &s->kind, e);
        if (r == 0)
                r = compile_lengths(s, j, e);
        if (r == 0 && s->kind == K_OBJECT)
                r = compile_object(s, j, e);
        if (r == 0 && s->kind == K_STRING)
                r = compile_string(s, j, e);
        if (r == 0 && s->kind == K_ARRAY && json_has(j, "items"))
                r = compile(json_get(j, "items"), &s->items, e);
        if (r == 0)
                r = bound_of(j, "minimum", -INFINITY, &s->min, e);
        if (r == 0)
                r = bound_of(j, "maximum", INFINITY, &s->max, e);
        if (r < 0) {
                schema_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct schema *schema_compile(const struct json *schema, struct err *e)
{
        struct schema *s = NULL;

        (void) compile(schema, &s, e);
        if (!s)
                return NULL;
        s->tree = json_ref((struct json *) (uintptr_t) schema);
        return s;
}

/* ---- messages ---- */

static void add_place(struct buf *b, const struct place *p)
{
        if (p->up && p->up->up)
                add_place(b, p->up);
        if (p->key) {
                (void) buf_adds(b, p->up->up ? "." : "");
                (void) buf_addstr(b, utf8_prefix(str_of(p->key), SEEN_MAX)); /* may be any size when it is unknown */
        } else {
                (void) buf_addf(b, "[%zu]", p->index);
        }
}

static void add_name(struct buf *b, const struct place *p)
{
        if (!p->up) {
                (void) buf_adds(b, "the arguments");
                return;
        }
        (void) buf_addc(b, '`');
        add_place(b, p);
        (void) buf_addc(b, '`');
}

static void add_range(struct buf *b, double min, double max, const char *unit)
{
        if (isfinite(min) && isfinite(max))
                (void) buf_addf(b, " %s %.15g to %.15g", unit ? "of" : "from", min, max);
        else if (isfinite(max))
                (void) buf_addf(b, " of at most %.15g", max);
        else if (isfinite(min))
                (void) buf_addf(b, " of at least %.15g", min);
        else
                return;
        if (unit)
                (void) buf_addf(b, " %s", unit);
}

static void add_lengths(struct buf *b, const struct schema *s, const char *unit)
{
        if (s->min_len > 0 || s->max_len >= 0)
                add_range(b, s->min_len > 0 ? (double) s->min_len : -INFINITY,
                          s->max_len >= 0 ? (double) s->max_len : INFINITY, unit);
}

static void add_choices(struct buf *b, const struct schema *s)
{
        struct jw w;

        (void) buf_adds(b, json_len(s->choices) > 1 ? "one of " : "");
        for (size_t i = 0; i < json_len(s->choices); i++) {
                (void) buf_adds(b, i ? ", " : "");
                jw_init(&w, b);
                jw_json(&w, json_at(s->choices, i));
        }
}

static void add_form(struct buf *b, const struct schema *s)
{
        switch (s->kind) {
        case K_ANY:
                (void) buf_adds(b, "any value");
                break;
        case K_OBJECT:
                (void) buf_adds(b, "an object");
                add_lengths(b, s, "members");
                break;
        case K_ARRAY:
                (void) buf_adds(b, "an array");
                add_lengths(b, s, "items");
                break;
        case K_STRING:
                if (s->choices) {
                        add_choices(b, s);
                        break;
                }
                (void) buf_adds(b, "a string");
                add_lengths(b, s, "characters");
                if (s->pattern)
                        (void) buf_addf(b, " that matches %s", s->pattern_text);
                break;
        case K_INTEGER:
                (void) buf_adds(b, "an integer");
                add_range(b, s->min, s->max, NULL);
                break;
        case K_NUMBER:
                (void) buf_adds(b, "a number");
                add_range(b, s->min, s->max, NULL);
                break;
        case K_BOOLEAN:
                (void) buf_adds(b, "true or false");
                break;
        }
}

static int64_t characters(struct str s)
{
        int64_t n = 0;

        for (size_t i = 0; i < s.n; i++)
                n += ((unsigned char) s.p[i] & 0xc0) != 0x80;
        return n;
}

/* What was seen, short: a model recognises its own value without getting all of it back. */
static void add_seen(struct buf *b, const struct schema *s, const struct json *v)
{
        struct str text = json_strn(v), head = utf8_prefix(text, SEEN_MAX);
        struct jw w;

        jw_init(&w, b);
        switch (json_type(v)) {
        case JSON_STRING:
                jw_strn(&w, head);
                if (head.n < text.n)
                        (void) buf_addf(b, "… (%" PRId64 " characters)", characters(text));
                break;
        case JSON_ARRAY:
                (void) buf_addf(b, "an array of %zu", json_len(v));
                break;
        case JSON_OBJECT:
                (void) buf_addf(b, s->kind == K_OBJECT ? "an object of %zu" : "an object", json_len(v));
                break;
        default:
                jw_json(&w, v);
                break;
        }
}

static int mismatch(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);

        add_name(&b, at);
        (void) buf_adds(&b, " must be ");
        add_form(&b, s);
        (void) buf_adds(&b, ", got ");
        add_seen(&b, s, v);
        return err_set(e, -EINVAL, "%s", buf_cstr(&b));
}

static int missing(const struct member *m, const struct place *at, struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);

        add_name(&b, at);
        (void) buf_adds(&b, " is required: ");
        if (m->s->description)
                (void) buf_adds(&b, m->s->description);
        else
                add_form(&b, m->s);
        return err_set(e, -EINVAL, "%s", buf_cstr(&b));
}

static int unknown(const struct schema *s, const struct place *at, struct err *e)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8192);
        bool top = !at->up->up;

        add_name(&b, at);
        (void) buf_adds(&b, top ? " is not an argument of this tool; it takes " : " is not known here; known are ");
        for (size_t i = 0; i < s->n_members; i++)
                (void) buf_addf(&b, "%s`%s`", i ? ", " : "", s->members[i].key);
        if (s->n_members == 0)
                (void) buf_adds(&b, "none");
        return err_set(e, -EINVAL, "%s", buf_cstr(&b));
}

/* ---- checking ---- */

static int check(const struct schema *s, const struct json *v, const struct place *at, struct err *e);

static int check_string(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        struct str text = json_strn(v);
        int64_t n;
        int r;

        if (json_type(v) != JSON_STRING)
                return mismatch(s, v, at, e);
        /* Handlers see C strings; what a NUL hides from them must not have been checked as part of the value. */
        if (memchr(text.p, 0, text.n)) {
                _cleanup_buf_ struct buf b = BUF_MAX(8192);

                add_name(&b, at);
                return err_set(e, -EINVAL, "%s must not hold a NUL character", buf_cstr(&b));
        }
        if (s->choices) {
                for (size_t i = 0; i < json_len(s->choices); i++)
                        if (str_eq(text, json_strn(json_at(s->choices, i))))
                                return 0;
                return mismatch(s, v, at, e);
        }
        n = characters(text);
        if (n < s->min_len || (s->max_len >= 0 && n > s->max_len))
                return mismatch(s, v, at, e);
        r = s->pattern ? pattern_match(s->pattern, text) : 1;
        if (r < 0)
                return err_set(e, r, "out of memory");
        return r == 1 ? 0 : mismatch(s, v, at, e);
}

static int check_number(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        double d = json_double(v);

        if (json_type(v) != JSON_INT && json_type(v) != JSON_DOUBLE)
                return mismatch(s, v, at, e);
        if (s->kind == K_INTEGER && d != floor(d))
                return mismatch(s, v, at, e);
        return d >= s->min && d <= s->max ? 0 : mismatch(s, v, at, e);
}

static int check_array(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        size_t n = json_len(v);
        int r = 0;

        if (json_type(v) != JSON_ARRAY || n < (size_t) s->min_len || (s->max_len >= 0 && n > (size_t) s->max_len))
                return mismatch(s, v, at, e);
        for (size_t i = 0; s->items && i < n && r == 0; i++) {
                struct place item = { at, NULL, i };

                r = check(s->items, json_at(v, i), &item, e);
        }
        return r;
}

struct checking {
        const struct schema *s;
        const struct place *at;
        struct err *e;
};

static int check_member(const char *key, struct json *value, void *arg)
{
        const struct checking *c = arg;
        struct place at = { c->at, key, 0 };
        const struct member *m = find(c->s, key);

        if (m)
                /* null for an optional argument means that it was left out: strict function calling sends it so. */
                return json_type(value) == JSON_NULL ? 0 : check(m->s, value, &at, c->e);
        if (c->s->rest)
                return check(c->s->rest, value, &at, c->e);
        return c->s->closed ? unknown(c->s, &at, c->e) : 0;
}

static int check_object(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        struct checking c = { s, at, e };
        size_t n = json_len(v);

        if (json_type(v) != JSON_OBJECT || n < (size_t) s->min_len || (s->max_len >= 0 && n > (size_t) s->max_len))
                return mismatch(s, v, at, e);
        for (size_t i = 0; i < s->n_members; i++)
                if (s->members[i].required && !json_get(v, s->members[i].key)) {
                        struct place member = { at, s->members[i].key, 0 };

                        return missing(&s->members[i], &member, e);
                }
        return json_each(v, check_member, &c);
}

static int check(const struct schema *s, const struct json *v, const struct place *at, struct err *e)
{
        switch (s->kind) {
        case K_OBJECT:
                return check_object(s, v, at, e);
        case K_ARRAY:
                return check_array(s, v, at, e);
        case K_STRING:
                return check_string(s, v, at, e);
        case K_INTEGER:
        case K_NUMBER:
                return check_number(s, v, at, e);
        case K_BOOLEAN:
                return json_type(v) == JSON_BOOL ? 0 : mismatch(s, v, at, e);
        case K_ANY:
                break;
        }
        return 0;
}

int schema_check(const struct schema *s, const struct json *value, struct err *e)
{
        struct place top = { 0 };

        return check(s, value, &top, e);
}
