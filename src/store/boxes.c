#include "store/boxes.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>

#define BOX_COLUMNS                                                                                      \
        "id, account_id, name, goal, image, size, state, why, agent_id, agent_client, services, repos, " \
        "wiring, created_at, used_at, ended_at, oom_kills, restorable_until"
#define COMMAND_MAX 8192
#define STEPS_KEPT 1000

void box_row_done(struct box_row *b)
{
        char **all[] = { &b->id,  &b->account, &b->name,         &b->goal,     &b->image, &b->size,  &b->state,
                         &b->why, &b->agent,   &b->agent_client, &b->services, &b->repos, &b->wiring };

        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                free(*all[i]);
                *all[i] = NULL;
        }
}

static void row_from(struct query *q, struct box_row *b)
{
        char **all[] = { &b->id,  &b->account, &b->name,         &b->goal,     &b->image, &b->size,  &b->state,
                         &b->why, &b->agent,   &b->agent_client, &b->services, &b->repos, &b->wiring };

        *b = (struct box_row){ 0 };
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                *all[i] = xstrdup(col_str(q, (int) i));
        b->created_at = col_int(q, 13);
        b->used_at = col_int(q, 14);
        b->ended_at = col_int(q, 15);
        b->oom_kills = col_int(q, 16);
        b->restorable_until = col_int(q, 17);
}

void boxes_watch(struct db *db, const struct boxes_watch *w)
{
        db_set_watch(db, w);
}

/* Tells of the box as its row says now; gone: of its end, while the row is still there. */
static void tell(struct db *db, const char *id, bool gone)
{
        const struct boxes_watch *w = db_watch(db);
        _cleanup_free_ char *account = NULL, *state = NULL;
        struct query q;

        if (!w)
                return;
        query(db, &q, "SELECT account_id, state FROM boxes WHERE id = ?");
        query_str(&q, id);
        if (query_row(&q)) {
                account = xstrdup(col_str(&q, 0));
                state = xstrdup(gone ? "deleted" : col_str(&q, 1));
        }
        (void) query_end(&q, NULL);
        if (account)
                w->box(account, id, state, w->arg);
}

static int told(struct db *db, const char *id, int r)
{
        if (r == 0)
                tell(db, id, false);
        return r;
}

static void tell_step(struct db *db, const struct step *s)
{
        const struct boxes_watch *w = db_watch(db);

        if (w)
                w->step(s, w->arg);
}

int boxes_insert(struct db *db, const struct box_row *b, struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO boxes (" BOX_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULL,0,NULL)");
        const char *values[] = { b->id,
                                 b->account,
                                 b->name,
                                 b->goal,
                                 b->image,
                                 b->size,
                                 b->state,
                                 b->why,
                                 b->agent,
                                 b->agent_client,
                                 b->services,
                                 b->repos,
                                 b->wiring ? b->wiring : "{}" };
        for (size_t i = 0; i < ARRAY_LEN(values); i++)
                query_str(&q, values[i]);
        query_int(&q, b->created_at);
        query_int(&q, b->used_at);
        return told(db, b->id, query_run(&q, e));
}

int boxes_get(struct db *db, const char *account, const char *id, struct box_row *ret, struct err *e)
{
        struct query q;
        int found = 0;

        query(db, &q,
              "SELECT " BOX_COLUMNS
              " FROM boxes WHERE id = ?1 AND (?2 IS NULL OR account_id = ?2) AND state <> 'deleted'");
        query_str(&q, id);
        query_str(&q, account);
        if (query_row(&q)) {
                row_from(&q, ret);
                found = 1;
        }
        int r = query_end(&q, e);
        if (r < 0)
                return r;
        return found ? 0 : err_set(e, -ENOENT, "no box with the id \"%.64s\": sandbox_list shows yours", id);
}

int boxes_set_state(struct db *db, const char *id, const char *state, const char *why, struct err *e)
{
        struct query q;

        query(db, &q,
              "UPDATE boxes SET state = ?1, why = ?2,"
              " ended_at = CASE WHEN ?1 IN ('starting','running','frozen') THEN NULL ELSE coalesce(ended_at, ?3) END"
              " WHERE id = ?4");
        query_str(&q, state);
        query_str(&q, why);
        query_int(&q, wall_ms());
        query_str(&q, id);
        return told(db, id, query_run(&q, e));
}

int boxes_end(struct db *db, const char *id, const char *state, const char *why, int64_t until, struct err *e)
{
        struct query q;

        query(db, &q,
              "UPDATE boxes SET state = ?1, why = ?2, ended_at = coalesce(ended_at, ?3), restorable_until = ?4 WHERE "
              "id = "
              "?5");
        query_str(&q, state);
        query_str(&q, why);
        query_int(&q, wall_ms());
        if (until)
                query_int(&q, until);
        else
                query_null(&q);
        query_str(&q, id);
        return told(db, id, query_run(&q, e));
}

int boxes_restored(struct db *db, const struct box_row *b, struct err *e)
{
        struct query q;

        query(db, &q,
              "UPDATE boxes SET state = 'running', why = NULL, ended_at = NULL, restorable_until = NULL, oom_kills = 0,"
              " name = ?1, goal = ?2, image = ?3, services = ?4, wiring = ?5, agent_id = coalesce(?6, agent_id),"
              " agent_client = coalesce(?7, agent_client), used_at = ?8 WHERE id = ?9");
        const char *values[] = { b->name,  b->goal,        b->image, b->services, b->wiring ? b->wiring : "{}",
                                 b->agent, b->agent_client };
        for (size_t i = 0; i < ARRAY_LEN(values); i++)
                query_str(&q, values[i]);
        query_int(&q, wall_ms());
        query_str(&q, b->id);
        return told(db, b->id, query_run(&q, e));
}

int boxes_each_expired(struct db *db, int64_t now, int (*fn)(const char *id, void *arg), void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q, "SELECT id FROM boxes WHERE restorable_until <= ? ORDER BY restorable_until LIMIT 100");
        query_int(&q, now);
        while (r == 0 && query_row(&q))
                r = fn(col_str(&q, 0), arg);
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int boxes_used(struct db *db, const char *id, int64_t at)
{
        struct query q;

        query(db, &q, "UPDATE boxes SET used_at = ?1 WHERE id = ?2 AND used_at < ?1");
        query_int(&q, at);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int boxes_touch(struct db *db, const char *id, const char *agent, const char *client)
{
        struct query q;

        query(db, &q,
              "UPDATE boxes SET used_at = ?1, agent_id = coalesce(?2, agent_id), agent_client = coalesce(?3, "
              "agent_client)"
              " WHERE id = ?4");
        query_int(&q, wall_ms());
        query_str(&q, agent);
        query_str(&q, client);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int boxes_set_repos(struct db *db, const char *id, const char *repos)
{
        struct query q;

        query(db, &q, "UPDATE boxes SET repos = ? WHERE id = ?");
        query_str(&q, repos);
        query_str(&q, id);
        return told(db, id, query_run(&q, NULL));
}

int boxes_set_wiring(struct db *db, const char *id, const char *services, const char *wiring, struct err *e)
{
        struct query q;

        query(db, &q, "UPDATE boxes SET services = ?, wiring = ? WHERE id = ?");
        query_str(&q, services);
        query_str(&q, wiring);
        query_str(&q, id);
        return told(db, id, query_run(&q, e));
}

int boxes_linking(struct db *db, const char *account, const char *id, int (*fn)(const struct box_row *b, void *arg),
                  void *arg)
{
        struct query q;
        int r = 0;

        query(db, &q,
              "SELECT " BOX_COLUMNS " FROM boxes WHERE account_id = ? AND instr(services, '\"fromBox\"') > 0"
              " AND instr(services, ?) > 0 AND state IN ('starting','running','frozen') ORDER BY created_at LIMIT 100");
        query_str(&q, account);
        query_str(&q, id);
        while (r == 0 && query_row(&q)) {
                struct box_row row;

                row_from(&q, &row);
                r = fn(&row, arg);
                box_row_done(&row);
        }
        int end = query_end(&q, NULL);
        return end < 0 ? end : r;
}

int boxes_set_oom(struct db *db, const char *id, int64_t kills)
{
        struct query q;

        query(db, &q, "UPDATE boxes SET oom_kills = ? WHERE id = ?");
        query_int(&q, kills);
        query_str(&q, id);
        return query_run(&q, NULL);
}

int boxes_delete(struct db *db, const char *id, struct err *e)
{
        struct query q;

        tell(db, id, true);
        query(db, &q, "DELETE FROM boxes WHERE id = ?");
        query_str(&q, id);
        return query_run(&q, e);
}

int boxes_each(struct db *db, const char *account, bool all, int limit, int (*fn)(const struct box_row *b, void *arg),
               void *arg)
{
        struct query q;
        struct box_row *rows = NULL;
        size_t n = 0;
        int r = 0;

        query(db, &q,
              "SELECT " BOX_COLUMNS " FROM boxes WHERE (?1 IS NULL OR account_id = ?1) AND state <> 'deleted'"
              " AND (?2 OR state IN ('starting','running','frozen','lost')) ORDER BY used_at DESC LIMIT ?3");
        query_str(&q, account);
        query_int(&q, all);
        query_int(&q, limit);
        /* Collected first: fn may run other statements, and the cached statement must be free for reuse. */
        while (query_row(&q)) {
                rows = xrealloc(rows, (n + 1) * sizeof *rows);
                row_from(&q, &rows[n++]);
        }
        r = query_end(&q, NULL);
        for (size_t i = 0; i < n; i++) {
                if (r == 0)
                        r = fn(&rows[i], arg);
                box_row_done(&rows[i]);
        }
        free(rows);
        return r;
}

int64_t boxes_count(struct db *db, const char *state)
{
        struct query q;

        query(db, &q, "SELECT count(*) FROM boxes WHERE state = ?");
        query_str(&q, state);
        int64_t n = query_number(&q);
        return n < 0 ? 0 : n;
}

int steps_begin(struct db *db, struct step *s, struct err *e)
{
        struct query q;

        query(db, &q,
              "INSERT INTO steps (box_id, tool, exec_id, agent_id, command, directory, note, started_at) VALUES "
              "(?,?,?,?,?,?,?,?)");
        query_str(&q, s->box);
        query_str(&q, s->tool);
        query_str(&q, s->exec_id);
        query_str(&q, s->agent);
        if (s->command)
                query_strn(&q, utf8_prefix(str_of(s->command), COMMAND_MAX));
        else
                query_null(&q);
        query_str(&q, s->directory);
        query_str(&q, s->note);
        query_int(&q, s->started_at);
        int r = query_run(&q, e);
        if (r < 0)
                return r;
        s->id = query_last_id(db);
        tell_step(db, s);
        /* Trimming every time would double the cost of a call. */
        if (s->id % 64 != 0)
                return 0;
        query(db, &q,
              "DELETE FROM steps WHERE box_id = ?1 AND id <= (SELECT id FROM steps WHERE box_id = ?1 ORDER BY id DESC "
              "LIMIT 1 OFFSET ?2)");
        query_str(&q, s->box);
        query_int(&q, STEPS_KEPT);
        (void) query_run(&q, NULL);
        return 0;
}

int steps_end(struct db *db, const struct step *s, struct err *e)
{
        struct query q;

        query(db, &q,
              "UPDATE steps SET ended_at=?, exit_code=?, signal=?, timed_out=?, oom_killed=?, error=? WHERE id=?");
        query_int(&q, s->ended_at);
        if (s->has_exit)
                query_int(&q, s->exit_code);
        else
                query_null(&q);
        query_str(&q, s->signal);
        query_int(&q, s->timed_out);
        query_int(&q, s->oom_killed);
        query_str(&q, s->error);
        query_int(&q, s->id);
        int r = query_run(&q, e);
        if (r == 0)
                tell_step(db, s);
        return r;
}

#define STEP_COLUMNS                                                                              \
        "id, tool, exec_id, agent_id, command, directory, note, started_at, ended_at, exit_code," \
        " signal, timed_out, oom_killed, error"

static int each_step(struct query *q, const char *box, int (*fn)(const struct step *s, void *arg), void *arg)
{
        int r = 0;

        while (r == 0 && query_row(q)) {
                struct step s = {
                        .id = col_int(q, 0),
                        .box = box,
                        .tool = col_str(q, 1),
                        .exec_id = col_str(q, 2),
                        .agent = col_str(q, 3),
                        .command = col_str(q, 4),
                        .directory = col_str(q, 5),
                        .note = col_str(q, 6),
                        .started_at = col_int(q, 7),
                        .ended_at = col_int(q, 8),
                        .has_exit = !col_null(q, 9),
                        .exit_code = col_int(q, 9),
                        .signal = col_str(q, 10),
                        .timed_out = col_int(q, 11) != 0,
                        .oom_killed = col_int(q, 12) != 0,
                        .error = col_str(q, 13),
                };
                r = fn(&s, arg);
        }
        int end = query_end(q, NULL);
        return end < 0 ? end : r;
}

int steps_last(struct db *db, const char *box, int n, int (*fn)(const struct step *s, void *arg), void *arg)
{
        struct query q;

        query(db, &q,
              "SELECT * FROM (SELECT " STEP_COLUMNS " FROM steps WHERE box_id = ? ORDER BY id DESC LIMIT ?) ORDER BY "
              "id");
        query_str(&q, box);
        query_int(&q, n);
        return each_step(&q, box, fn, arg);
}

int steps_before(struct db *db, const char *box, int64_t before, bool running, int n,
                 int (*fn)(const struct step *s, void *arg), void *arg)
{
        struct query q;

        query(db, &q,
              "SELECT " STEP_COLUMNS " FROM steps WHERE box_id = ?1 AND (?2 = 0 OR id < ?2) AND (?3 = 0 OR ended_at IS"
              " NULL) ORDER BY id DESC LIMIT ?4");
        query_str(&q, box);
        query_int(&q, before);
        query_int(&q, running);
        query_int(&q, n);
        return each_step(&q, box, fn, arg);
}

char *steps_agent_of(struct db *db, const char *box, const char *exec_id)
{
        struct query q;
        char *agent = NULL;

        query(db, &q, "SELECT agent_id FROM steps WHERE box_id = ? AND exec_id = ? ORDER BY id DESC LIMIT 1");
        query_str(&q, box);
        query_str(&q, exec_id);
        if (query_row(&q))
                agent = xstrdup(col_str(&q, 0));
        (void) query_end(&q, NULL);
        return agent;
}

int steps_close_open(struct db *db, const char *error)
{
        struct query q;

        query(db, &q, "UPDATE steps SET ended_at = ?, error = ? WHERE ended_at IS NULL");
        query_int(&q, wall_ms());
        query_str(&q, error);
        return query_run(&q, NULL);
}
