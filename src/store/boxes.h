/* boxes: rows of boxes and their steps. Strings in the structs are allocated; *_done frees them. */
#pragma once

#include "store/db.h"

struct box_row {
        char *id, *account, *name, *goal, *image, *size, *state, *why, *agent, *agent_client;
        char *services; /* JSON array */
        char *repos;    /* JSON array of strings */
        char *wiring;   /* JSON object; with services what control/wires.h reads; NULL on insert: none */
        int64_t created_at, used_at, ended_at, oom_kills;
        int64_t restorable_until; /* 0: nothing is kept that could be brought back */
};
void box_row_done(struct box_row *b);

int boxes_insert(struct db *db, const struct box_row *b, struct err *e);
/* -ENOENT for an unknown id, a foreign account's, or a deleted box. account NULL: any. */
int boxes_get(struct db *db, const char *account, const char *id, struct box_row *ret, struct err *e);
int boxes_set_state(struct db *db, const char *id, const char *state, const char *why,
                    struct err *e); /* sets ended_at when it ends */
/* It no longer runs ("archived", "lost", "deleted"); until: its files are kept so long, 0 when there are none. */
int boxes_end(struct db *db, const char *id, const char *state, const char *why, int64_t until, struct err *e);
/* It runs again: name, goal, services and the conversation are b's (agent NULL: whose it was), and what was said of its
 * end is gone. */
int boxes_restored(struct db *db, const struct box_row *b, struct err *e);
/* The ids of those whose files were kept until now and no longer. */
int boxes_each_expired(struct db *db, int64_t now, int (*fn)(const char *id, void *arg), void *arg);
int boxes_used(struct db *db, const char *id, int64_t at);
int boxes_touch(struct db *db, const char *id, const char *agent, const char *client);
int boxes_set_repos(struct db *db, const char *id, const char *repos);
/* Both at once: the whole table of names. */
int boxes_set_wiring(struct db *db, const char *id, const char *services, const char *wiring, struct err *e);
/* Calls fn for live boxes of the account whose services may link to box id, oldest first, at most 100. fn runs no other
 * statement of the same text; its non-zero stops and is returned. */
int boxes_linking(struct db *db, const char *account, const char *id, int (*fn)(const struct box_row *b, void *arg),
                  void *arg);
int boxes_set_oom(struct db *db, const char *id, int64_t kills);
int boxes_delete(struct db *db, const char *id, struct err *e);
/* Calls fn for each, most recently used first; account NULL: all; all: ended ones too. fn's non-zero stops and is
 * returned. */
int boxes_each(struct db *db, const char *account, bool all, int limit, int (*fn)(const struct box_row *b, void *arg),
               void *arg);
int64_t boxes_count(struct db *db, const char *state);

struct step {
        int64_t id;
        const char *box, *tool, *exec_id, *agent, *command, *directory, *note, *signal, *error;
        int64_t started_at, ended_at, exit_code;
        bool has_exit, timed_out, oom_killed;
};
/* Records that a call began; s->id is set. Long commands are cut at 8 KiB. At most 1,000 steps a box are kept. */
int steps_begin(struct db *db, struct step *s, struct err *e);
int steps_end(struct db *db, const struct step *s, struct err *e);
/* At most n of those before the given id (0: from the newest on), newest first; those that run alone, when asked. */
int steps_before(struct db *db, const char *box, int64_t before, bool running, int n,
                 int (*fn)(const struct step *s, void *arg), void *arg);
/* The last n, oldest first. */
int steps_last(struct db *db, const char *box, int n, int (*fn)(const struct step *s, void *arg), void *arg);
/* The agent that started a job, allocated, or NULL. */
char *steps_agent_of(struct db *db, const char *box, const char *exec_id);
/* Calls left open by a server that was killed get an error text. */
int steps_close_open(struct db *db, const char *error);

/*
 * Who is told what a person who looks on would see, right after it was written. Runs on the loop, must not suspend, and
 * must not end the box's row.
 */
struct boxes_watch {
        void (*box)(const char *account, const char *box, const char *state, void *arg); /* "deleted" when it goes */
        void (*step)(const struct step *s, void *arg);                                   /* begun, or with ended_at */
        void *arg;
};
void boxes_watch(struct db *db, const struct boxes_watch *w); /* kept, not copied; NULL: nobody is told any longer */
