/* users: the people who may sign in. */
#include "cli.h"

#include "auth/invite.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/accounts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define USAGE "usage: users invite [NOTE] | list | remove LOGIN [--first] [--new-account NAME] [--state DIR] [--json]"

struct options {
        char *state;
        bool json, first;
        const char *new_account; /* or NULL */
        char url[160];
};

static int parse(int argc, char **argv, struct options *o)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "json", no_argument, NULL, 'j' },
                                               { "first", no_argument, NULL, 'f' },
                                               { "new-account", required_argument, NULL, 'a' },
                                               { 0 } };
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(o->state);
                        o->state = xstrdup(optarg);
                } else if (c == 'j') {
                        o->json = true;
                } else if (c == 'f') {
                        o->first = true;
                } else if (c == 'a') {
                        o->new_account = optarg;
                } else {
                        return -EINVAL;
                }
        }
        return 0;
}

static void print_json(struct jw *w, struct buf *b)
{
        if (jw_end_all(w) == 0)
                (void) printf("%s\n", buf_cstr(b));
}

/* With --first nothing is printed, and nothing is wrong, when there is a person already: `up` asks every time. */
static int invite(struct db *db, const char *note, const struct options *o)
{
        _cleanup_free_ char *account = NULL, *path = NULL;
        _cleanup_buf_ struct buf b = BUF_MAX(1024);
        struct err e = { 0 };
        struct jw w;

        int r = o->new_account ? accounts_add(db, o->new_account, &account, &e) : accounts_first(db, &account, &e);
        if (r < 0)
                return complain("users", 1, "%s", err_text(&e));
        bool first = people_count(db) == 0;
        if (o->first && !first)
                return 0;
        r = invite_make(db, account, note, first, NULL, wall_ms(), &path, &e);
        if (r < 0)
                return complain("users", 1, "%s", err_text(&e));
        if (!o->json) {
                (void) printf("%s%s\n", o->url, path);
                return 0;
        }
        _cleanup_free_ char *link = xasprintf("%s%s", o->url, path);
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "link", link);
        jw_kbool(&w, "first", first);
        print_json(&w, &b);
        return 0;
}

static int json_row(const struct person *p, void *arg)
{
        char at[RFC3339_LEN];
        struct jw *w = arg;

        jw_obj(w);
        jw_kstr(w, "id", p->id);
        jw_kstr(w, "login", p->login);
        jw_kstr(w, "name", p->name);
        jw_kstr(w, "createdAt", rfc3339(p->created_at, at));
        jw_kstr(w, "lastSignInAt", p->seen_at ? rfc3339(p->seen_at, at) : NULL);
        jw_end(w);
        return 0;
}

static int text_row(const struct person *p, void *arg)
{
        char at[RFC3339_LEN];

        (void) arg;
        (void) printf("%-24s  %-24s  %s\n", p->login, p->name,
                      p->seen_at ? rfc3339(p->seen_at, at) : "never signed in");
        return 0;
}

static int list(struct db *db, bool json)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4 << 20);
        struct jw w;

        if (!json)
                return people_each(db, NULL, text_row, NULL) < 0 ? complain("users", 1, "the people cannot be read")
                                                                 : 0;
        jw_init(&w, &b);
        jw_arr(&w);
        (void) people_each(db, NULL, json_row, &w);
        print_json(&w, &b);
        return 0;
}

static int remove_one(struct db *db, const char *login)
{
        struct person p;
        struct err e = { 0 };

        if (people_by_login(db, login, &p) < 0)
                return complain("users", 1, "nobody has the login \"%s\": parallelsandbox users list", login);
        if (people_delete(db, NULL, p.id, &e) < 0)
                return complain("users", 1, "%s", err_text(&e));
        (void) printf("%s was removed; their sign-ins and the clients they let in have ended\n", p.login);
        return 0;
}

static int run(struct db *db, int n, char **words, const struct options *o)
{
        if ((n == 1 || n == 2) && cstr_eq(words[0], "invite"))
                return invite(db, n == 2 ? words[1] : "", o);
        if (n == 1 && cstr_eq(words[0], "list"))
                return list(db, o->json);
        if (n == 2 && cstr_eq(words[0], "remove"))
                return remove_one(db, words[1]);
        return complain("users", EXIT_USAGE, USAGE);
}

int cmd_users(int argc, char **argv)
{
        struct options o = { .state = default_state_dir() };
        _cleanup_(db_closep) struct db *db = NULL;
        struct server_info info;
        struct err e = { 0 };
        int code;

        if (parse(argc, argv, &o) < 0) {
                code = complain("users", EXIT_USAGE, USAGE);
        } else {
                /* Links lead to the running server; without one, to where it listens by default. */
                (void) snprintf(o.url, sizeof o.url, "%s",
                                server_info_read(o.state, &info, NULL) == 0 ? info.url : "http://" DEFAULT_LISTEN);
                if (state_prepare(o.state, &e) < 0 || state_enter(o.state, &e) < 0 || db_open("state.db", &db, &e) < 0)
                        code = complain("users", 1, "%s", err_text(&e));
                else
                        code = run(db, argc - optind, argv + optind, &o);
        }
        free(o.state);
        return code;
}
