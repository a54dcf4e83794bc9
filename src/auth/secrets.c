/* secrets: the page on which a person sets, replaces and deletes secrets. It shows names and times; a value only comes
 * in. */
#include "auth/handlers.h"

#include "base/mem.h"
#include "control/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define HERE "/settings/secrets"

struct listed {
        struct visit *v;
        struct json *rows;
};

static int add_secret(const struct secret_row *s, void *arg)
{
        struct listed *l = arg;
        struct json *o = json_obj();
        char text[32];

        json_set_str(o, "name", s->name);
        time_text(s->changed_at, text);
        json_set_str(o, "changed", text);
        time_text(s->used_at, text);
        /* The texts of the page put one into the other. */
        const char *line = visit_text(l->v, s->used_at ? "secret_used" : "secret_unused"),
                   *at = strstr(line, "{used_at}");
        _cleanup_free_ char *used =
                at ? xasprintf("%.*s%s%s", (int) (at - line), line, text, at + strlen("{used_at}")) : xstrdup(line);
        json_set_str(o, "used", used);
        json_push(l->rows, o);
        return 0;
}

static void coroutine_fn show(struct visit *v, unsigned status)
{
        _cleanup_free_ char *token = form_token(v, "secrets");
        struct listed l = { v, json_arr() };

        (void) secrets_each(v->a->db, v->person.account, add_secret, &l);
        json_set_int(v->data, "secrets_count", (int64_t) json_len(l.rows));
        json_set(v->data, "secrets", l.rows);
        json_set_str(v->data, "here", HERE);
        json_set_bool(v->data, "at_settings", true);
        json_set_str(v->data, "csrf", token);
        visit_page(v, status, "secrets.html");
}

/* "?set=NAME" or "?deleted=NAME" after a change: only a name can be said, and nothing but one that can be a name. */
static void note_change(struct visit *v, const char *key, const char *shown_as)
{
        _cleanup_buf_ struct buf name = BUF_MAX(SECRET_NAME_MAX);

        if (call_query(v->call, key, &name) == 1 && secret_name_check(buf_cstr(&name), NULL) == 0)
                json_set_str(v->data, shown_as, buf_cstr(&name));
}

static void coroutine_fn go_back(struct visit *v, const char *key, const char *name)
{
        _cleanup_free_ char *to = xasprintf(HERE "?%s=%s", key, name);

        visit_redirect(v, to);
}

/* What browsers make of a text: CRLF line breaks. And what people paste: a line break behind it. */
static size_t tidy(char *value)
{
        size_t n = 0;

        for (const char *p = value; *p; p++)
                if (p[0] != '\r' || p[1] != '\n')
                        value[n++] = *p;
        while (n && (value[n - 1] == '\n' || value[n - 1] == '\r'))
                n--;
        return n;
}

static void refuse(struct visit *v, int code)
{
        const char *text = code == -E2BIG    ? "error_secret_long"
                           : code == -EDQUOT ? "error_secret_many"
                           : code == -ENOKEY ? "error_secret_key"
                           : code == -EINVAL ? "error_secret_short"
                                             : "error_busy";

        if (code == -EINVAL || code == -E2BIG)
                json_set_str(v->data, "value_error", visit_text(v, text));
        else
                json_set_str(v->data, "secret_error", visit_text(v, text));
}

static void coroutine_fn set_secret(struct visit *v, const char *name)
{
        char *value = visit_field(v, "value");
        size_t whole = strlen(value), n = tidy(value);
        struct err e = { 0 };
        bool named = secret_name_check(name, NULL) == 0;
        int r = named ? secrets_set(v->a->control, v->person.account, name, str_n(value, n), NULL, &e) : -EINVAL;

        mem_wipe(value, whole);
        free(value);
        if (r == 0) {
                go_back(v, "set", name);
                return;
        }
        json_set_str(v->data, "given_name", name);
        if (named) {
                refuse(v, r);
        } else {
                json_set_str(v->data, "name_error", visit_text(v, "error_secret_name"));
                if (n)
                        json_set_str(v->data, "value_error", visit_text(v, "secret_again"));
        }
        show(v, r == -ENOKEY ? 500 : 422);
}

void coroutine_fn page_secrets(struct visit *v)
{
        if (!visit_need_person(v))
                return;
        if (!str_eq(call_method(v->call), STR("POST"))) {
                note_change(v, "set", "saved");
                note_change(v, "deleted", "deleted");
                show(v, 200);
                return;
        }
        if (!visit_form(v, "secrets"))
                return;
        _cleanup_free_ char *action = visit_field(v, "do"), *name = visit_field(v, "name");
        if (cstr_eq(action, "set")) {
                set_secret(v, name);
        } else if (cstr_eq(action, "delete")) {
                if (secrets_remove(v->a->control, v->person.account, name, NULL) == 0)
                        go_back(v, "deleted", name);
                else
                        visit_redirect(v, HERE);
        } else {
                visit_message(v, 400, "bad_form_title", "bad_form_text");
        }
}
