/* signin: the sign-in page, and signing out. */
#include "auth/handlers.h"
#include "auth/params.h"
#include "auth/password.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void coroutine_fn sign_in_page(struct visit *v, unsigned status, const char *login, const char *next)
{
        _cleanup_free_ char *token = form_token(v, "sign-in");
        _cleanup_buf_ struct buf here = BUF_MAX(8192);

        (void) buf_adds(&here, "/sign-in");
        if (next[0])
                (void) param_add(&here, "next", next);
        json_set_str(v->data, "here", buf_cstr(&here));
        json_set_str(v->data, "csrf", token);
        json_set_str(v->data, "login", login);
        json_set_str(v->data, "next", next);
        json_set_str(v->data, "passkey_next", next);
        json_set_bool(v->data, "no_people", people_count(v->a->db) == 0);
        visit_page(v, status, "signin.html");
}

static void coroutine_fn sign_in_post(struct visit *v)
{
        _cleanup_free_ char *token = visit_field(v, "csrf"), *login = visit_field(v, "login"),
                            *password = visit_field(v, "password"), *next = visit_field(v, "next");
        _cleanup_free_ struct person *p = xcalloc(1, sizeof *p);
        struct err e = { 0 };
        int64_t wait = 0;

        if (!local_path_ok(next))
                next[0] = '\0';
        if (form_token_use(v, "sign-in", str_of(token)) < 0) {
                json_set_str(v->data, "error", visit_text(v, "error_stale"));
                sign_in_page(v, 403, login, next);
                return;
        }
        int r = password_sign_in(v, login, password, p, &wait);
        if (r == 0)
                r = session_start(v, p, &e);
        if (r == -ECANCELED)
                return;
        if (r == 0) {
                visit_redirect(v, next[0] ? next : "/");
                return;
        }
        if (r == -EAGAIN) {
                char after[24];

                (void) snprintf(after, sizeof after, "%lld", (long long) (wait + 999) / 1000);
                (void) call_add_header(v->call, "Retry-After", after);
                json_set_int(v->data, "seconds", (wait + 999) / 1000);
                json_set_bool(v->data, "wait", true);
        } else {
                json_set_str(v->data, "error", visit_text(v, r == -EACCES ? "error_sign_in" : "error_busy"));
        }
        sign_in_page(v, r == -EAGAIN ? 429 : r == -EACCES ? 422 : 503, login, next);
}

void coroutine_fn page_sign_in(struct visit *v)
{
        struct err e = { 0 };

        if (str_eq(call_method(v->call), STR("POST"))) {
                if (!same_origin(v->call))
                        visit_message(v, 403, "origin_title", "origin_text");
                else if (form_read(v->call, &v->form, &e) < 0)
                        visit_message(v, 400, "bad_form_title", "bad_form_text");
                else
                        sign_in_post(v);
                return;
        }
        _cleanup_buf_ struct buf next = BUF_MAX(8192);
        if (call_query(v->call, "next", &next) != 1 || !local_path_ok(buf_cstr(&next)))
                buf_clear(&next);
        if (v->signed_in)
                visit_redirect(v, next.len ? buf_cstr(&next) : "/");
        else
                sign_in_page(v, 200, "", buf_cstr(&next));
}

void coroutine_fn page_sign_out(struct visit *v)
{
        if (!str_eq(call_method(v->call), STR("POST"))) {
                if (v->signed_in)
                        visit_page(v, 200, "signout.html");
                else
                        visit_redirect(v, "/sign-in");
                return;
        }
        if (!visit_form(v, "sign-out"))
                return;
        _cleanup_free_ char *next = visit_field(v, "next");
        session_end(v);
        if (local_path_ok(next))
                visit_redirect(v, next);
        else
                visit_message(v, 200, "signed_out_title", "signed_out_text");
}
