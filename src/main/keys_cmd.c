#include "cli.h"

#include "auth/keys.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/accounts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct options {
        char *state;
        bool json;
};

static int parse(int argc, char **argv, struct options *o)
{
        static const struct option longs[] = { { "state", required_argument, NULL, 's' },
                                               { "json", no_argument, NULL, 'j' },
                                               { 0 } };
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
                if (c == 's') {
                        free(o->state);
                        o->state = xstrdup(optarg);
                } else if (c == 'j') {
                        o->json = true;
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

static int add(struct db *db, const char *name, bool json)
{
        _cleanup_free_ char *account = NULL, *key = NULL, *id = NULL;
        _cleanup_buf_ struct buf b = BUF_MAX(1024);
        struct err e = { 0 };
        struct jw w;

        if (accounts_first(db, &account, &e) < 0 || key_add(db, account, name, &key, &id, &e) < 0)
                return complain("keys", 1, "%s", err_text(&e));
        if (!json) {
                (void) printf("%s\n", key);
                return 0;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "id", id);
        jw_kstr(&w, "name", name);
        jw_kstr(&w, "key", key);
        print_json(&w, &b);
        return 0;
}

static int json_row(const struct key_row *k, void *arg)
{
        char at[RFC3339_LEN];
        struct jw *w = arg;

        jw_obj(w);
        jw_kstr(w, "id", k->id);
        jw_kstr(w, "name", k->name);
        jw_kstr(w, "hint", k->hint);
        jw_kstr(w, "createdAt", rfc3339(k->created_at, at));
        jw_kstr(w, "lastUsedAt", k->last_used_at ? rfc3339(k->last_used_at, at) : NULL);
        jw_kstr(w, "revokedAt", k->revoked_at ? rfc3339(k->revoked_at, at) : NULL);
        jw_end(w);
        return 0;
}

static int text_row(const struct key_row *k, void *arg)
{
        char at[RFC3339_LEN];

        (void) arg;
        (void) printf("%s  %-12s  %-20s  %s\n", k->id, k->hint, k->name,
                      k->revoked_at     ? "revoked"
                      : k->last_used_at ? rfc3339(k->last_used_at, at)
                                        : "never used");
        return 0;
}

static int list(struct db *db, bool json)
{
        _cleanup_buf_ struct buf b = BUF_MAX(4 << 20);
        struct jw w;

        if (!json)
                return keys_each(db, text_row, NULL) < 0 ? complain("keys", 1, "the keys cannot be read") : 0;
        jw_init(&w, &b);
        jw_arr(&w);
        (void) keys_each(db, json_row, &w);
        print_json(&w, &b);
        return 0;
}

static int revoke(struct db *db, const char *which)
{
        struct err e = { 0 };
        int n = keys_revoke(db, which, &e);

        if (n < 0)
                return complain("keys", 1, "%s", err_text(&e));
        if (n == 0)
                return complain("keys", 1, "no live key has the id or name \"%s\": parallelsandbox keys list", which);
        (void) printf("%d key%s revoked\n", n, n == 1 ? "" : "s");
        return 0;
}

static bool known(int n, char **words)
{
        return (n == 2 && (cstr_eq(words[0], "add") || cstr_eq(words[0], "revoke"))) ||
               (n == 1 && cstr_eq(words[0], "list"));
}

static int run(struct db *db, char **words, bool json)
{
        if (cstr_eq(words[0], "add"))
                return add(db, words[1], json);
        return cstr_eq(words[0], "list") ? list(db, json) : revoke(db, words[1]);
}

int cmd_keys(int argc, char **argv)
{
        struct options o = { .state = default_state_dir() };
        _cleanup_(db_closep) struct db *db = NULL;
        struct err e = { 0 };
        int code;

        if (parse(argc, argv, &o) < 0 || !known(argc - optind, argv + optind))
                code = complain("keys", EXIT_USAGE, "usage: keys add NAME | list | revoke ID [--state DIR] [--json]");
        else if (state_prepare(o.state, &e) < 0 || state_enter(o.state, &e) < 0 || db_open("state.db", &db, &e) < 0)
                code = complain("keys", 1, "%s", err_text(&e));
        else
                code = run(db, argv + optind, o.json);
        free(o.state);
        return code;
}
