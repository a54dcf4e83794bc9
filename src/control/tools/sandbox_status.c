#include "control/box_impl.h"
#include "control/guest_client.h"
#include "control/secrets.h"
#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#define STEPS 30
#define COMMAND_SHOWN 400

struct steps {
        struct buf text[STEPS]; /* each as JSON */
        size_t n;
};

static int add_step(const struct step *s, void *arg)
{
        struct steps *all = arg;
        char at[RFC3339_LEN];
        struct jw w;

        if (all->n == STEPS)
                return 0;
        all->text[all->n] = BUF_MAX(TOOL_TEXT_MAX);
        jw_init(&w, &all->text[all->n]);
        jw_obj(&w);
        jw_kstr(&w, "tool", s->tool);
        if (s->command)
                jw_kstrn(&w, "command", utf8_prefix(str_of(s->command), COMMAND_SHOWN));
        if (s->exec_id)
                jw_kstr(&w, "execId", s->exec_id);
        if (s->directory)
                jw_kstr(&w, "directory", s->directory);
        if (s->note)
                jw_kstr(&w, "note", s->note);
        jw_kstr(&w, "startedAt", rfc3339(s->started_at, at));
        if (s->has_exit)
                jw_kint(&w, "exitCode", s->exit_code);
        if (s->signal)
                jw_kstr(&w, "signal", s->signal);
        if (s->timed_out)
                jw_kbool(&w, "timedOut", true);
        if (s->oom_killed)
                jw_kbool(&w, "oomKilled", true);
        if (s->error)
                jw_kstr(&w, "error", s->error);
        if (!s->ended_at)
                jw_kbool(&w, "running", true);
        if (jw_end_all(&w) == 0)
                all->n++;
        else
                buf_done(&all->text[all->n]);
        return 0;
}

/* The newest of the last thirty, as many as fit; how many did not is said. */
static void write_steps(struct jw *w, struct control *c, const char *box, size_t room)
{
        _cleanup_free_ struct steps *all = xcalloc(1, sizeof *all);
        size_t first, used = 0;

        (void) steps_last(c->db, box, STEPS, add_step, all);
        for (first = all->n; first > 0 && used + all->text[first - 1].len + 1 <= room; first--)
                used += all->text[first - 1].len + 1;
        jw_karr(w, "steps");
        for (size_t i = first; i < all->n; i++)
                jw_raw(w, buf_str(&all->text[i]));
        jw_end(w);
        if (first)
                jw_kint(w, "stepsLeftOut", (int64_t) first);
        for (size_t i = 0; i < all->n; i++)
                buf_done(&all->text[i]);
}

static void write_pair(struct jw *w, const char *key, const char *used_key, int64_t used, int64_t limit)
{
        jw_kobj(w, key);
        jw_kint(w, used_key, used);
        if (limit > 0)
                jw_kint(w, "limit", limit);
        jw_end(w);
}

static void coroutine_fn write_health(struct tool_call *t, struct jw *w, const char *id)
{
        _cleanup_json_ struct json *hello = NULL;
        struct err e = { 0 };
        struct json *head = json_obj();

        json_set_str(head, "op", "hello");
        int r = guest_ask(t->c, id, head, &hello, &e);
        jw_kobj(w, "health");
        jw_kbool(w, "healthy", r == 0);
        if (r < 0)
                jw_kstr(w, "error", err_text(&e));
        else
                jw_kstr(w, "version", json_get_str(hello, "boxd", json_get_str(hello, "version", NULL)));
        jw_end(w);
}

static void coroutine_fn write_stats(struct tool_call *t, struct jw *w, const char *id)
{
        struct driver_stats st = { 0 };

        if (t->c->driver->ops->stats(t->c->driver, id, &st, NULL) < 0)
                return;
        jw_kobj(w, "resources");
        jw_kobj(w, "cpu");
        jw_kint(w, "usedMs", st.cpu_usec / 1000);
        jw_end(w);
        write_pair(w, "memory", "used", st.memory_used, st.memory_limit);
        write_pair(w, "pids", "used", st.pids_used, st.pids_limit);
        write_pair(w, "disk", "used", st.disk_used, st.disk_limit);
        jw_kint(w, "oomKills", st.oom_kills);
        jw_end(w);
}

/* Looking is no use: a frozen box stays frozen, and is not asked anything. */
static void coroutine_fn write_resources(struct tool_call *t, struct jw *w, const struct box_row *row)
{
        struct box *b = map_get(t->c->boxes, str_of(row->id));

        if (!b || b->ending)
                return;
        b->refs++; /* not frozen while it is asked */
        if (!b->frozen && !b->moving)
                write_health(t, w, row->id);
        write_stats(t, w, row->id);
        box_drop(b);
}

void coroutine_fn tool_sandbox_status(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX * 2);
        const char *id = json_get_str(t->args, "id", "");
        struct box_row row = { 0 };
        struct err e = { 0 };
        struct jw w;

        if (boxes_get(t->c->db, t->who->account, id, &row, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        jw_init(&w, &b);
        jw_obj(&w);
        tool_write_box(&w, t->c, &row, t->who);
        life_write(&w, t->c, &row);
        if (row.why)
                jw_kstr(&w, "statusReason", row.why);
        jw_key(&w, "repos");
        jw_raw(&w, str_of(row.repos));
        write_resources(t, &w, &row);
        if (box_has_secrets(t->c, id)) {
                jw_key(&w, "secrets");
                box_secret_names(t->c, id, &w);
        }
        write_steps(&w, t->c, id, TOOL_TEXT_MAX - min_size(b.len + 512, TOOL_TEXT_MAX));
        tool_answer(t, &w, &b);
        box_row_done(&row);
}
