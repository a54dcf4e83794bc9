/* join: a one-time link becomes a person with a login and a password. */
#include "auth/handlers.h"
#include "auth/invite.h"
#include "auth/password.h"

#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct str token_of(const struct visit *v)
{
        struct str path = call_path(v->call), prefix = STR("/join/");

        return str_n(path.p + prefix.n, path.n - prefix.n);
}

static void coroutine_fn join_page(struct visit *v, const struct invite *i, unsigned status)
{
        _cleanup_free_ char *token = form_token(v, "join");

        json_set_str(v->data, "csrf", token);
        json_set_bool(v->data, "first", i->first);
        visit_page(v, status, "join.html");
}

/* The errors go to their fields; true when there is none. */
static bool check_fields(struct visit *v, struct person *p, const char *login, const char *name, const char *password)
{
        struct str n = str_trim(str_of(name), " \t");
        const char *problem = NULL;
        bool ok = true;

        json_set_str(v->data, "login", login);
        json_set_str(v->data, "name", name);
        if (login_normalize(login, p->login) < 0) {
                json_set_str(v->data, "login_error", visit_text(v, "error_login"));
                ok = false;
        }
        if (n.n > 100) {
                json_set_str(v->data, "name_error", visit_text(v, "error_name"));
                ok = false;
        }
        problem = password_problem(password, p->login);
        if (problem) {
                json_set_str(v->data, "password_error", visit_text(v, problem));
                ok = false;
        }
        (void) snprintf(p->name, sizeof p->name, "%.*s", (int) min_size(n.n, 100), n.n ? n.p : "");
        if (!p->name[0])
                (void) snprintf(p->name, sizeof p->name, "%s", p->login);
        return ok;
}

/* The invitation is looked at again: hashing took a while, and somebody else may have used it. */
static int create(struct visit *v, struct person *p, struct err *e)
{
        struct db *db = v->a->db;
        struct invite i;
        int r = db_begin(db, e);

        if (r < 0)
                return r;
        r = invite_find(db, token_of(v), v->a->now(), &i);
        if (r == 0)
                r = invites_delete(db, i.account, i.id);
        if (r == 0)
                r = people_insert(db, p, e);
        if (r == 0)
                r = invites_delete_first(db);
        if (r == 0)
                r = db_commit(db, e);
        if (r < 0)
                db_rollback(db);
        return r;
}

static void coroutine_fn join_post(struct visit *v, const struct invite *i)
{
        _cleanup_free_ char *login = visit_field(v, "login"), *name = visit_field(v, "name"),
                            *password = visit_field(v, "password");
        _cleanup_free_ struct person *p = xcalloc(1, sizeof *p);
        struct err e = { 0 };

        if (!check_fields(v, p, login, name, password)) {
                join_page(v, i, 422);
                return;
        }
        random_id(p->id, 12);
        (void) snprintf(p->account, sizeof p->account, "%s", i->account);
        p->created_at = v->a->now();
        int r = password_hash(v->a, password, p->password, &e);
        if (r == 0)
                r = create(v, p, &e);
        if (r == -ECANCELED)
                return;
        if (r == -EEXIST) {
                json_set_str(v->data, "login_error", visit_text(v, "error_login_taken"));
                join_page(v, i, 422);
        } else if (r == -ENOENT) {
                visit_message(v, 410, "join_over_title", "join_over_text");
        } else if (r < 0) {
                json_set_str(v->data, "error", visit_text(v, "error_busy"));
                join_page(v, i, 503);
        } else if (session_start(v, p, &e) < 0) {
                visit_redirect(v, "/sign-in");
        } else {
                visit_redirect(v, "/");
        }
}

void coroutine_fn page_join(struct visit *v)
{
        struct invite i;

        if (invite_find(v->a->db, token_of(v), v->a->now(), &i) < 0) {
                visit_message(v, 410, "join_over_title", "join_over_text");
                return;
        }
        if (!str_eq(call_method(v->call), STR("POST")))
                join_page(v, &i, 200);
        else if (visit_form(v, "join"))
                join_post(v, &i);
}
