/* settings: what a person sees and ends: connected clients, API keys, passkeys, the password, sign-ins, people. And the
 * home page. */
#include "auth/handlers.h"
#include "auth/invite.h"
#include "auth/keys.h"
#include "auth/password.h"
#include "auth/webauthn.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what there is ---- */

struct lists {
        struct visit *v;
        struct json *list;
};

static void set_time(struct json *o, const char *key, int64_t ms)
{
        char text[32];

        time_text(ms, text);
        json_set_str(o, key, text[0] ? text : NULL);
}

static int add_grant(const struct grant *g, void *arg)
{
        struct lists *l = arg;
        struct json *o = json_obj();

        json_set_str(o, "id", g->id);
        json_set_str(o, "name", g->client_name[0] ? g->client_name : visit_text(l->v, "client_unnamed"));
        json_set_str(o, "redirect", g->redirect_host);
        json_set_str(o, "person", g->person_name);
        set_time(o, "created", g->created_at);
        set_time(o, "used", g->used_at);
        json_push(l->list, o);
        return 0;
}

static int add_key(const struct key_row *k, void *arg)
{
        struct lists *l = arg;

        if (k->revoked_at || !cstr_eq(k->account, l->v->person.account))
                return 0;
        struct json *o = json_obj();
        json_set_str(o, "id", k->id);
        json_set_str(o, "name", k->name);
        json_set_str(o, "hint", k->hint);
        set_time(o, "created", k->created_at);
        set_time(o, "used", k->last_used_at);
        json_push(l->list, o);
        return 0;
}

static int add_passkey(const struct passkey *k, void *arg)
{
        struct lists *l = arg;
        struct json *o = json_obj();

        json_set_str(o, "id", k->id);
        json_set_str(o, "name", k->name);
        json_set_str(o, "rp", k->rp_id);
        set_time(o, "created", k->created_at);
        set_time(o, "used", k->used_at);
        json_push(l->list, o);
        return 0;
}

/* "Firefox, Linux" from a User-Agent: enough to tell one's own browsers apart. */
static void agent_text(const char *agent, char ret[64])
{
        static const char *const browsers[] = { "Edg/", "OPR/", "Firefox/", "Chrome/", "Safari/", "curl/" };
        static const char *const names[] = { "Edge", "Opera", "Firefox", "Chrome", "Safari", "curl" };
        static const char *const systems[] = { "Android", "iPhone", "iPad", "Windows", "Mac OS X", "CrOS", "Linux" };
        const char *browser = NULL, *system = NULL;

        for (size_t i = 0; !browser && i < ARRAY_LEN(browsers); i++)
                if (strstr(agent, browsers[i]))
                        browser = names[i];
        for (size_t i = 0; !system && i < ARRAY_LEN(systems); i++)
                if (strstr(agent, systems[i]))
                        system = cstr_eq(systems[i], "Mac OS X") ? "macOS" : systems[i];
        (void) snprintf(ret, 64, "%s%s%s", browser ? browser : "", browser && system ? ", " : "", system ? system : "");
}

static int add_login(const struct login *g, void *arg)
{
        struct lists *l = arg;
        struct json *o = json_obj();
        char agent[64];

        agent_text(g->agent, agent);
        json_set_str(o, "id", g->id);
        json_set_str(o, "agent", agent[0] ? agent : visit_text(l->v, "browser_unknown"));
        json_set_str(o, "address", g->address);
        json_set_bool(o, "current", cstr_eq(g->id, l->v->login.id));
        set_time(o, "created", g->created_at);
        set_time(o, "used", g->used_at);
        json_push(l->list, o);
        return 0;
}

static int add_person(const struct person *p, void *arg)
{
        struct lists *l = arg;
        struct json *o = json_obj();

        json_set_str(o, "id", p->id);
        json_set_str(o, "name", p->name);
        json_set_str(o, "login", p->login);
        json_set_bool(o, "self", cstr_eq(p->id, l->v->person.id));
        set_time(o, "seen", p->seen_at);
        json_push(l->list, o);
        return 0;
}

static int add_invite(const struct invite *i, void *arg)
{
        struct lists *l = arg;
        struct json *o = json_obj();

        json_set_str(o, "id", i->id);
        json_set_str(o, "note", i->note[0] ? i->note : visit_text(l->v, "invite_unnamed"));
        set_time(o, "expires", i->expires_at);
        json_push(l->list, o);
        return 0;
}

static int count_box(const struct box_row *b, void *arg)
{
        int64_t *n = arg;

        n[0]++;
        n[1] += cstr_eq(b->state, "running");
        return 0;
}

static void put_list(struct visit *v, const char *name, struct lists *l)
{
        _cleanup_free_ char *count = xasprintf("%s_count", name);

        json_set_int(v->data, count, (int64_t) json_len(l->list));
        json_set(v->data, name, l->list);
        l->list = json_arr();
}

static void collect(struct visit *v)
{
        struct lists l = { v, json_arr() };
        struct db *db = v->a->db;

        (void) grants_each(db, v->person.account, add_grant, &l);
        put_list(v, "grants", &l);
        (void) keys_each(db, add_key, &l);
        put_list(v, "keys", &l);
        (void) passkeys_each(db, v->person.id, add_passkey, &l);
        put_list(v, "passkeys", &l);
        (void) logins_each(db, v->person.id, v->a->now(), add_login, &l);
        put_list(v, "sessions", &l);
        (void) people_each(db, v->person.account, add_person, &l);
        put_list(v, "people", &l);
        (void) invites_each(db, v->person.account, v->a->now(), add_invite, &l);
        put_list(v, "invites", &l);
        json_unref(l.list);
}

void coroutine_fn page_home(struct visit *v)
{
        int64_t boxes[2] = { 0 };

        if (!visit_need_person(v))
                return;
        collect(v);
        (void) boxes_each(v->a->db, v->person.account, false, 10000, count_box, boxes);
        json_set_int(v->data, "boxes_count", boxes[0]);
        json_set_int(v->data, "running_count", boxes[1]);
        json_set_str(v->data, "origin", v->origin);
        json_set_bool(v->data, "at_home", true);
        visit_page(v, 200, "home.html");
}

static void coroutine_fn settings_page(struct visit *v, unsigned status)
{
        _cleanup_free_ char *token = form_token(v, "settings"), *csrf = session_csrf(v->a, &v->login);
        char rp[256];

        collect(v);
        json_set_str(v->data, "here", "/settings");
        json_set_bool(v->data, "at_settings", true);
        json_set_str(v->data, "csrf", token);
        json_set_str(v->data, "session_csrf", csrf);
        json_set_bool(v->data, "passkeys_possible", rp_id_of(v->origin, rp) == 0);
        visit_page(v, status, "settings.html");
}

void coroutine_fn page_settings(struct visit *v)
{
        if (visit_need_person(v))
                settings_page(v, 200);
}

/* ---- what can be done; each answers nothing, and returns 0 to go back to the page, or 1 when it put something on it
 * ---- */

static int add_new_key(struct visit *v, const char *name)
{
        _cleanup_free_ char *key = NULL, *id = NULL;
        struct err e = { 0 };
        int r = key_add(v->a->db, v->person.account, name, &key, &id, &e);

        if (r < 0)
                json_set_str(v->data, "key_error", visit_text(v, r == -EINVAL ? "error_key_name" : "error_busy"));
        else
                json_set_str(v->data, "new_key", key);
        return 1;
}

static int revoke_key(struct visit *v, const char *id)
{
        (void) keys_revoke_one(v->a->db, v->person.account, id);
        return 0;
}

static int revoke_grant(struct visit *v, const char *id)
{
        (void) grants_delete(v->a->db, v->person.account, id);
        return 0;
}

static int revoke_session(struct visit *v, const char *id)
{
        (void) logins_delete(v->a->db, v->person.id, id);
        return 0;
}

static int revoke_others(struct visit *v, const char *id)
{
        (void) id;
        (void) logins_delete_others(v->a->db, v->person.id, v->login.id);
        return 0;
}

static int remove_passkey(struct visit *v, const char *id)
{
        (void) passkeys_delete(v->a->db, v->person.id, id);
        return 0;
}

static int invite(struct visit *v, const char *note)
{
        _cleanup_free_ char *path = NULL, *link = NULL;
        struct err e = { 0 };
        int r = invite_make(v->a->db, v->person.account, note, false, v->person.id, v->a->now(), &path, &e);

        if (r < 0) {
                json_set_str(v->data, "invite_error", visit_text(v, r == -EINVAL ? "error_note" : "error_busy"));
                return 1;
        }
        link = xasprintf("%s%s", v->origin, path);
        json_set_str(v->data, "new_invite", link);
        return 1;
}

static int revoke_invite(struct visit *v, const char *id)
{
        (void) invites_delete(v->a->db, v->person.account, id);
        return 0;
}

/* Oneself only from the command line: nobody shuts the account's door from inside by mistake. */
static int remove_person(struct visit *v, const char *id)
{
        if (!cstr_eq(id, v->person.id))
                (void) people_delete(v->a->db, v->person.account, id, NULL);
        return 0;
}

static const struct action {
        const char *path, *field;
        int (*fn)(struct visit *v, const char *value);
} actions[] = {
        { "/settings/keys", "name", add_new_key },
        { "/settings/keys/revoke", "id", revoke_key },
        { "/settings/grants/revoke", "id", revoke_grant },
        { "/settings/sessions/revoke", "id", revoke_session },
        { "/settings/sessions/revoke-others", "id", revoke_others },
        { "/settings/passkeys/remove", "id", remove_passkey },
        { "/settings/people/invite", "note", invite },
        { "/settings/people/remove", "id", remove_person },
        { "/settings/invites/revoke", "id", revoke_invite },
};

/* The old password again: a session left open is not enough. Other sessions end. */
static void coroutine_fn change_password(struct visit *v)
{
        _cleanup_free_ char *old = visit_field(v, "current"), *new = visit_field(v, "password");
        _cleanup_free_ struct person *p = xcalloc(1, sizeof *p);
        char hash[160];
        struct err e = { 0 };
        int64_t wait = 0;
        const char *problem = password_problem(new, v->person.login);
        int r = problem ? 0 : password_sign_in(v, v->person.login, old, p, &wait);

        if (problem) {
                json_set_str(v->data, "password_error", visit_text(v, problem));
        } else if (r == -EACCES) {
                json_set_str(v->data, "current_error", visit_text(v, "error_current_password"));
        } else if (r == 0 && password_hash(v->a, new, hash, &e) == 0 &&
                   people_set_password(v->a->db, v->person.id, hash) == 0) {
                (void) logins_delete_others(v->a->db, v->person.id, v->login.id);
                json_set_bool(v->data, "password_changed", true);
                problem = NULL;
                settings_page(v, 200);
                return;
        } else {
                json_set_str(v->data, "current_error", visit_text(v, "error_busy"));
        }
        settings_page(v, 422);
}

void coroutine_fn page_settings_action(struct visit *v)
{
        if (!visit_need_person(v) || !visit_form(v, "settings"))
                return;
        if (str_eq(call_path(v->call), STR("/settings/password"))) {
                change_password(v);
                return;
        }
        for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
                if (!str_eq(call_path(v->call), str_of(actions[i].path)))
                        continue;
                _cleanup_free_ char *value = visit_field(v, actions[i].field);
                if (actions[i].fn(v, value))
                        settings_page(v,
                                      json_get(v->data, "key_error") || json_get(v->data, "invite_error") ? 422 : 200);
                else
                        visit_redirect(v, "/settings");
                return;
        }
        visit_message(v, 404, "not_found_title", "not_found_text");
}
