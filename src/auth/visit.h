/*
 * visit: a browser's request for a page: who is signed in, the language, the cookies, the form tokens, and how a page
 * is answered. A visit lives as long as its request. Functions marked coroutine_fn answer and may suspend.
 */
#pragma once

#include "auth/auth.h"
#include "store/oauth.h"
#include "store/people.h"

#define SESSION_MS (30 * 24 * 3600 * (int64_t) 1000)
#define FORM_MS (3600 * (int64_t) 1000)

struct visit {
        struct auth *a;
        struct call *call;
        char origin[ORIGIN_MAX];
        char browser[48]; /* the browser's own random number, from its cookie or new */
        bool signed_in;
        struct person person;
        struct login login;
        unsigned lang;
        struct json *data; /* what the page shows */
        struct buf form;   /* body of a POST */
};

/* ---- session.c ---- */
/* The person of the session cookie; -ENOENT. Renews a session that is in use. */
int session_find(struct auth *a, const struct call *call, struct person *ret, struct login *ret_login);
/* Begins a session for the person in this browser, and ends the one it had. */
int session_start(struct visit *v, const struct person *p, struct err *e);
void session_end(struct visit *v);
/* For requests of scripts: a token that belongs to the session. Allocated. */
char *session_csrf(struct auth *a, const struct login *l);
bool session_csrf_ok(struct auth *a, const struct login *l, struct str given);
bool cookie_get(const struct call *call, const char *name, char *ret, size_t n);
void cookie_set(struct visit *v, const char *name, const char *value, int64_t max_age_sec);
/* Whether this browser signed in as login before (ret: its number): it has a rate limit of its own. */
bool browser_known(struct visit *v, const char *login, char ret[48]);
void browser_remember(struct visit *v, const char *login);
/* The cookie lasts as long as the session that was just renewed. */
void session_renew_cookie(struct visit *v);

/* ---- csrf.c ---- */
/* A token for one form of this browser, valid an hour, usable once. Allocated. */
char *form_token(struct visit *v, const char *purpose);
/* 0; -EACCES: not of this browser or purpose, over, or used. */
int form_token_use(struct visit *v, const char *purpose, struct str token);
/* The Origin (or Sec-Fetch-Site) of a request that a browser sends with a form is our own, or the client is no browser.
 */
bool same_origin(const struct call *call);

/* ---- visit.c ---- */
struct visit *visit_new(struct auth *a, struct call *call);
void visit_free(struct visit *v);
/* Reads the form, checks its origin and its token ("csrf"). False when a page with the reason was answered. */
bool coroutine_fn visit_form(struct visit *v, const char *purpose);
char *visit_field(const struct visit *v, const char *name); /* allocated, "" when absent */
/* A page: templates and texts of web/pages, with v->data. */
void coroutine_fn visit_page(struct visit *v, unsigned status, const char *page);
void coroutine_fn visit_message(struct visit *v, unsigned status, const char *title_key, const char *text_key);
void coroutine_fn visit_redirect(struct visit *v, const char *location);
/* Signed in, or sent to the sign-in page (false). */
bool coroutine_fn visit_need_person(struct visit *v);
/* The text of a page's language. */
const char *visit_text(const struct visit *v, const char *key);
/* A path on this server to go on to, or NULL. */
bool local_path_ok(const char *path);
/* "2026-01-02 03:04 UTC" */
void time_text(int64_t ms, char ret[32]);
void coroutine_fn serve_asset(struct call *call);
void visit_add_headers(struct call *call);
