/* json-c has types of these names. */
#define json_type jsonc_type
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_bool
#undef json_type

#include "base/json.h"
#include "base/json_scan.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

static struct json_object *node(const struct json *j)
{
        return (struct json_object *) (uintptr_t) j;
}

static struct json *handle(struct json_object *o)
{
        return (struct json *) o;
}

/* Builders end the process without memory, as xmalloc does. */
static struct json *made(struct json_object *o)
{
        if (!o)
                abort();
        return handle(o);
}

static struct json_object *feed(struct json_tokener *tok, struct str s)
{
        return s.n ? json_tokener_parse_ex(tok, s.p, (int) s.n) : NULL;
}

/* json-c refuses integers beyond 64 bits; with ".0" behind them it reads them as the doubles they have to become. */
static struct json_object *build(struct json_tokener *tok, struct str value, const struct buf *wide)
{
        size_t from = 0, end;

        for (size_t i = 0; i + sizeof end <= wide->len; i += sizeof end) {
                memcpy(&end, wide->p + i, sizeof end);
                (void) feed(tok, str_n(value.p + from, end - from));
                (void) feed(tok, STR(".0"));
                from = end;
        }
        struct json_object *o = feed(tok, str_n(value.p + from, value.n - from));
        /* A number at the top is over only when something else follows; the NUL counts. */
        if (json_tokener_get_error(tok) == json_tokener_continue)
                o = json_tokener_parse_ex(tok, "", 1);
        return o;
}

int json_parse(const char *p, size_t n, struct json **ret, struct err *e)
{
        _cleanup_buf_ struct buf wide = BUF_MAX(SIZE_MAX / 2);
        struct str value;

        if (n > INT_MAX)
                return err_set(e, -EINVAL, "longer than %d bytes", INT_MAX);
        int r = json_scan(n ? str_n(p, n) : STR(""), &value, &wide, e);
        if (r < 0)
                return r;
        /* json-c counts a scalar as a level; our limit was enforced by the scan. */
        struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
        if (!tok)
                return err_set(e, -ENOMEM, "out of memory");
        /*
         * No flags: the scan has judged grammar and encoding, more strictly than json-c. Where char is signed, 0.18 in
         * its strict mode takes every byte above 127 for a control character.
         */
        json_tokener_set_flags(tok, 0);
        struct json_object *o = build(tok, value, &wide);
        enum json_tokener_error why = json_tokener_get_error(tok);
        json_tokener_free(tok);
        if (why != json_tokener_success)
                return err_set(e, -EINVAL, "%s", json_tokener_error_desc(why));
        *ret = handle(o);
        return 0;
}

struct json *json_ref(struct json *j)
{
        return handle(json_object_get(node(j)));
}

void json_unref(struct json *j)
{
        (void) json_object_put(node(j));
}

void json_unrefp(struct json **j)
{
        json_unref(*j);
}

enum json_type json_type(const struct json *j)
{
        switch (json_object_get_type(node(j))) {
        case json_type_boolean:
                return JSON_BOOL;
        case json_type_int:
                return JSON_INT;
        case json_type_double:
                return JSON_DOUBLE;
        case json_type_string:
                return JSON_STRING;
        case json_type_array:
                return JSON_ARRAY;
        case json_type_object:
                return JSON_OBJECT;
        case json_type_null:
        default:
                return JSON_NULL;
        }
}

const char *json_type_name(const struct json *j)
{
        static const char *const names[] = {
                [JSON_NULL] = "null",     [JSON_BOOL] = "boolean", [JSON_INT] = "integer",  [JSON_DOUBLE] = "number",
                [JSON_STRING] = "string", [JSON_ARRAY] = "array",  [JSON_OBJECT] = "object"
        };

        return names[json_type(j)];
}

static bool is(const struct json *j, enum json_type t)
{
        return json_type(j) == t;
}

struct json *json_get(const struct json *j, const char *key)
{
        struct json_object *o = NULL;

        if (!is(j, JSON_OBJECT) || !json_object_object_get_ex(node(j), key, &o))
                return NULL;
        return handle(o);
}

bool json_has(const struct json *j, const char *key)
{
        return is(j, JSON_OBJECT) && json_object_object_get_ex(node(j), key, NULL);
}

size_t json_len(const struct json *j)
{
        if (is(j, JSON_ARRAY))
                return json_object_array_length(node(j));
        return is(j, JSON_OBJECT) ? (size_t) json_object_object_length(node(j)) : 0;
}

struct json *json_at(const struct json *j, size_t i)
{
        return is(j, JSON_ARRAY) ? handle(json_object_array_get_idx(node(j), i)) : NULL;
}

int json_each(const struct json *j, int (*fn)(const char *key, struct json *value, void *arg), void *arg)
{
        if (!is(j, JSON_OBJECT))
                return 0;
        struct json_object_iterator at = json_object_iter_begin(node(j));
        struct json_object_iterator end = json_object_iter_end(node(j));
        while (!json_object_iter_equal(&at, &end)) {
                const char *key = json_object_iter_peek_name(&at);
                struct json *value = handle(json_object_iter_peek_value(&at));

                /* First on, then the call: fn may delete the member it is given. */
                json_object_iter_next(&at);
                int r = fn(key, value, arg);
                if (r != 0)
                        return r;
        }
        return 0;
}

const char *json_str(const struct json *j)
{
        return is(j, JSON_STRING) ? json_object_get_string(node(j)) : NULL;
}

struct str json_strn(const struct json *j)
{
        return is(j, JSON_STRING) ? str_n(json_str(j), (size_t) json_object_get_string_len(node(j))) : str_n(NULL, 0);
}

/* An integer, or a double that is one. */
static bool as_int(const struct json *j, int64_t *ret)
{
        if (is(j, JSON_INT)) {
                *ret = json_object_get_int64(node(j));
                return true;
        }
        if (!is(j, JSON_DOUBLE))
                return false;
        double v = json_object_get_double(node(j));
        if (!(v >= -0x1p63 && v < 0x1p63) || v != floor(v))
                return false;
        *ret = (int64_t) v;
        return true;
}

int64_t json_int(const struct json *j)
{
        int64_t v;

        return as_int(j, &v) ? v : 0;
}

double json_double(const struct json *j)
{
        return is(j, JSON_DOUBLE) || is(j, JSON_INT) ? json_object_get_double(node(j)) : 0;
}

bool json_bool(const struct json *j)
{
        return is(j, JSON_BOOL) && json_object_get_boolean(node(j));
}

const char *json_get_str(const struct json *j, const char *key, const char *def)
{
        const char *s = json_str(json_get(j, key));

        return s ? s : def;
}

int64_t json_get_int(const struct json *j, const char *key, int64_t def)
{
        int64_t v;

        return as_int(json_get(j, key), &v) ? v : def;
}

bool json_get_bool(const struct json *j, const char *key, bool def)
{
        const struct json *v = json_get(j, key);

        return is(v, JSON_BOOL) ? json_bool(v) : def;
}

static int lacks(const struct json *j, const char *key, const char *what, struct err *e)
{
        const struct json *v = json_get(j, key);

        if (!v)
                return err_set(e, -EINVAL, "`%s` is required: %s", key, what);
        return err_set(e, -EINVAL, "`%s` must be %s, got %s", key, what, json_type_name(v));
}

int json_need_str(const struct json *j, const char *key, const char **ret, struct err *e)
{
        const char *s = json_str(json_get(j, key));

        if (!s)
                return lacks(j, key, "a string", e);
        *ret = s;
        return 0;
}

int json_need_int(const struct json *j, const char *key, int64_t *ret, struct err *e)
{
        return as_int(json_get(j, key), ret) ? 0 : lacks(j, key, "an integer", e);
}

struct json *json_obj(void)
{
        return made(json_object_new_object());
}

struct json *json_arr(void)
{
        return made(json_object_new_array());
}

struct json *json_new_str(const char *s)
{
        return json_new_strn(str_of(s));
}

struct json *json_new_strn(struct str s)
{
        if (s.n > INT_MAX)
                abort();
        return made(json_object_new_string_len(s.n ? s.p : "", (int) s.n));
}

struct json *json_new_int(int64_t v)
{
        return made(json_object_new_int64(v));
}

struct json *json_new_bool(bool v)
{
        return made(json_object_new_boolean(v));
}

void json_set(struct json *o, const char *key, struct json *child)
{
        if (!is(o, JSON_OBJECT))
                json_unref(child);
        else if (json_object_object_add(node(o), key, node(child)) < 0)
                abort();
}

void json_set_str(struct json *o, const char *key, const char *s)
{
        if (s)
                json_set(o, key, json_new_str(s));
}

void json_set_int(struct json *o, const char *key, int64_t v)
{
        json_set(o, key, json_new_int(v));
}

void json_set_bool(struct json *o, const char *key, bool v)
{
        json_set(o, key, json_new_bool(v));
}

void json_del(struct json *o, const char *key)
{
        if (is(o, JSON_OBJECT))
                json_object_object_del(node(o), key);
}

void json_push(struct json *a, struct json *child)
{
        if (!is(a, JSON_ARRAY))
                json_unref(child);
        else if (json_object_array_add(node(a), node(child)) < 0)
                abort();
}

static int write_member(const char *key, struct json *value, void *arg)
{
        struct jw *w = arg;

        jw_key(w, key);
        jw_json(w, value);
        return w->r;
}

/* A parsed double is written as it was spelled; json-c keeps the text beside the value. */
static void write_double(struct jw *w, const struct json *j)
{
        const char *text = json_object_get_userdata(node(j));

        if (text)
                jw_raw(w, str_of(text));
        else
                jw_double(w, json_double(j));
}

/* Here and not with the rest of jw because it sees json-c. Recursion ends where the writer's levels do. */
void jw_json(struct jw *w, const struct json *j)
{
        switch (json_type(j)) {
        case JSON_NULL:
                jw_null(w);
                break;
        case JSON_BOOL:
                jw_bool(w, json_bool(j));
                break;
        case JSON_INT:
                jw_int(w, json_int(j));
                break;
        case JSON_DOUBLE:
                write_double(w, j);
                break;
        case JSON_STRING:
                jw_strn(w, json_strn(j));
                break;
        case JSON_ARRAY:
                jw_arr(w);
                for (size_t i = 0; i < json_len(j) && w->r == 0; i++)
                        jw_json(w, json_at(j, i));
                jw_end(w);
                break;
        case JSON_OBJECT:
                jw_obj(w);
                if (w->r == 0)
                        (void) json_each(j, write_member, w);
                jw_end(w);
                break;
        }
}

int json_print(const struct json *j, struct buf *b)
{
        struct jw w;

        jw_init(&w, b);
        jw_json(&w, j);
        return jw_end_all(&w);
}

char *json_text(const struct json *j)
{
        _cleanup_buf_ struct buf b = BUF_MAX(SIZE_MAX / 2);

        return json_print(j, &b) < 0 ? NULL : buf_steal(&b);
}
