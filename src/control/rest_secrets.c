/* /v1/secrets: names and times go out, values only come in. */
#include "control/rest.h"
#include "control/secrets.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>

#define BODY_MAX (8 * SECRET_VALUE_MAX) /* a value whose every byte is escaped, and a little */

void secret_write(struct jw *w, const struct secret_row *s)
{
        char at[RFC3339_LEN];

        jw_obj(w);
        jw_kstr(w, "name", s->name);
        jw_kstr(w, "createdAt", rfc3339(s->created_at, at));
        jw_kstr(w, "changedAt", rfc3339(s->changed_at, at));
        jw_kstr(w, "lastUsedAt", s->used_at ? rfc3339(s->used_at, at) : NULL);
        jw_end(w);
}

static int add_row(const struct secret_row *s, void *arg)
{
        secret_write(arg, s);
        return 0;
}

void coroutine_fn rest_secrets_list(struct rest *r)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 10);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "secrets");
        int code = secrets_each(r->c->db, r->who->account, add_row, &w);
        if (code < 0 || jw_end_all(&w) < 0)
                (void) call_reply_error(r->call, 500, "internal", "the secrets cannot be listed");
        else
                (void) call_reply(r->call, 200, "application/json", b.p, b.len);
}

/* The value lies in the parsed body and nowhere else; wiped before that is freed. */
static void wipe_value(struct json *body)
{
        struct str value = json_strn(json_get(body, "value"));

        if (value.p)
                mem_wipe((char *) (uintptr_t) value.p, value.n);
}

static int only_value(const char *key, struct json *value, void *arg)
{
        (void) value;
        return cstr_eq(key, "value")
                       ? 0
                       : err_set(arg, -EINVAL, "the body is {\"value\": \"…\"}; \"%.80s\" is not known", key);
}

static int read_value(struct json *body, struct str *ret, struct err *e)
{
        struct json *value = json_get(body, "value");

        if (json_type(body) != JSON_OBJECT)
                return err_set(e, -EINVAL, "the body is {\"value\": \"…\"}, got %s", json_type_name(body));
        if (!value)
                return err_set(e, -EINVAL, "`value` is required: what the secret is from now on");
        if (json_type(value) != JSON_STRING)
                return err_set(e, -EINVAL, "`value` must be a string, got %s", json_type_name(value));
        *ret = json_strn(value);
        return json_each(body, only_value, e);
}

static void coroutine_fn answer(struct rest *r, const struct secret_row *row)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4096);
        struct jw w;

        jw_init(&w, &b);
        secret_write(&w, row);
        (void) jw_end_all(&w);
        (void) call_reply(r->call, 200, "application/json", b.p, b.len);
}

void coroutine_fn rest_secret_put(struct rest *r)
{
        _cleanup_secret_ struct buf text = BUF_MAX(BODY_MAX);
        _cleanup_json_ struct json *body = NULL;
        struct secret_row row = { 0 };
        struct str value = { NULL, 0 };
        struct err e = { 0 };
        int code = 0;

        if (!r->id[0] || strlen(r->id) > SECRET_NAME_MAX) /* too long a segment names nothing (rest.c) */
                code = err_set(&e, -EINVAL, "a secret's name has 1 to %d characters", SECRET_NAME_MAX);
        if (code == 0)
                code = secret_name_check(r->id, &e);
        if (code == 0 && !buf_room(&text, BODY_MAX)) /* all at once: growing would leave copies */
                code = err_set(&e, -ENOMEM, "no memory for the body");
        if (code == 0 && (code = call_read_all(r->call, &text, &e)) == -EMSGSIZE)
                code = err_set(&e, -EMSGSIZE, "a secret's value has at most %zu bytes", SECRET_VALUE_MAX);
        if (code == 0) { /* the parser's words could quote the text */
                code = json_parse(text.p, text.len, &body, NULL);
                if (code < 0)
                        code = err_set(&e, -EINVAL, "the body is no JSON: it must be {\"value\": \"…\"}");
        }
        if (code == 0)
                code = read_value(body, &value, &e);
        if (code == 0)
                code = secrets_set(r->c, r->who->account, r->id, value, &row, &e);
        wipe_value(body);
        if (code < 0)
                rest_fail(r, code, &e);
        else
                answer(r, &row);
}

void coroutine_fn rest_secret_delete(struct rest *r)
{
        struct err e = { 0 };
        int code = secret_name_check(r->id, &e);

        if (code == 0)
                code = secrets_remove(r->c, r->who->account, r->id, &e);

        if (code < 0)
                rest_fail(r, code, &e);
        else
                (void) call_reply(r->call, 204, NULL, NULL, 0);
}
