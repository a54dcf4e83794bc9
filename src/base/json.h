/*
 * json: reading JSON into a tree (a facade over json-c, which only json.c sees) and writing it by appending.
 *
 * struct json is reference counted: what json_parse, json_obj … return belongs to the caller
 * (json_unref, _cleanup_json_); what json_get and json_at return is borrowed from its parent.
 * Reading is strict: RFC 8259, valid UTF-8, no duplicate keys, at most JSON_DEPTH_MAX levels.
 * Nothing here suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 64

struct json;
struct mask;

enum json_type { JSON_NULL, JSON_BOOL, JSON_INT, JSON_DOUBLE, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Parses exactly one value with nothing but white space after it. -EINVAL with position and reason. */
int json_parse(const char *p, size_t n, struct json **ret, struct err *e);

struct json *json_ref(struct json *j);
void json_unref(struct json *j);
void json_unrefp(struct json **j);
#define _cleanup_json_ _cleanup_(json_unrefp)

enum json_type json_type(const struct json *j);   /* NULL pointer counts as JSON_NULL */
const char *json_type_name(const struct json *j); /* "string", "object" … for messages */

/* Member of an object, borrowed; NULL when j is no object or lacks it, or the value is null. */
struct json *json_get(const struct json *j, const char *key);
bool json_has(const struct json *j, const char *key); /* true also for an explicit null */
size_t json_len(const struct json *j);                /* of an array or object, else 0 */
struct json *json_at(const struct json *j, size_t i);

/* Calls fn for each member in order until it returns non-zero, which is returned. */
int json_each(const struct json *j, int (*fn)(const char *key, struct json *value, void *arg), void *arg);

/* Values; for the wrong type: NULL, 0, false. String bytes live as long as the node; may hold NULs (see json_strn). */
const char *json_str(const struct json *j);
struct str json_strn(const struct json *j);
int64_t json_int(const struct json *j); /* doubles with an integral value count */
double json_double(const struct json *j);
bool json_bool(const struct json *j);

/* "member of type T or a default": a missing member gives def; a member of the wrong type gives def too. */
const char *json_get_str(const struct json *j, const char *key, const char *def);
int64_t json_get_int(const struct json *j, const char *key, int64_t def);
bool json_get_bool(const struct json *j, const char *key, bool def);

/* Required members: -EINVAL and "`key` is required: …" / "`key` must be a string, got …" in e. */
int json_need_str(const struct json *j, const char *key, const char **ret, struct err *e);
int json_need_int(const struct json *j, const char *key, int64_t *ret, struct err *e);

/* Building trees. json_set and json_push take over the reference of child. */
struct json *json_obj(void);
struct json *json_arr(void);
struct json *json_new_str(const char *s);
struct json *json_new_strn(struct str s);
struct json *json_new_int(int64_t v);
struct json *json_new_bool(bool v);
void json_set(struct json *o, const char *key, struct json *child); /* NULL child stores null */
void json_set_str(struct json *o, const char *key, const char *s);  /* NULL is skipped */
void json_set_int(struct json *o, const char *key, int64_t v);
void json_set_bool(struct json *o, const char *key, bool v);
void json_del(struct json *o, const char *key);
void json_push(struct json *a, struct json *child);

/* Compact text, no line break. -ENOBUFS when b is full. */
int json_print(const struct json *j, struct buf *b);
char *json_text(const struct json *j); /* allocated; free() */

/*
 * The append-only writer: commas and nesting are its business, errors are sticky and come out of
 * jw_end_all. Invalid UTF-8 in a string is written as U+FFFD.
 */
struct jw {
        struct buf *b;
        int r; /* first error */
        unsigned depth;
        uint64_t is_obj, has_item; /* bit per level */
        bool after_key;
        struct mask *mask; /* set it, and the values it knows go from every string (base/mask.h); borrowed */
};

void jw_init(struct jw *w, struct buf *b);
void jw_obj(struct jw *w);
void jw_arr(struct jw *w);
void jw_end(struct jw *w); /* closes the innermost object or array */
void jw_key(struct jw *w, const char *key);
void jw_str(struct jw *w, const char *s); /* NULL writes null */
void jw_strn(struct jw *w, struct str s);
void jw_int(struct jw *w, int64_t v);
void jw_double(struct jw *w, double v); /* finite only; others write null */
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, struct str s); /* one finished JSON value */
void jw_json(struct jw *w, const struct json *j);
void jw_b64(struct jw *w, const void *p, size_t n); /* a base64 string, straight into the buffer */
int jw_end_all(struct jw *w);                       /* closes what is open; 0 or the first error */

void jw_kstr(struct jw *w, const char *key, const char *s);
void jw_kstrn(struct jw *w, const char *key, struct str s);
void jw_kint(struct jw *w, const char *key, int64_t v);
void jw_kbool(struct jw *w, const char *key, bool v);
void jw_kobj(struct jw *w, const char *key);
void jw_karr(struct jw *w, const char *key);
