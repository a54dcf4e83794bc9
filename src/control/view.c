#include "control/view.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <stdio.h>

#define RUNNING_MAX 100

void view_conversation(const char *agent, char ret[static 9])
{
        unsigned char hash[HASH_LEN];

        ret[0] = '\0';
        if (!agent || !agent[0])
                return;
        sha256_of(agent, strlen(agent), hash);
        (void) snprintf(ret, 9, "%02x%02x%02x", hash[0], hash[1], hash[2]);
}

void view_step(struct jw *w, const struct step *s, size_t command_max)
{
        char at[RFC3339_LEN], conversation[9];

        view_conversation(s->agent, conversation);
        jw_obj(w);
        jw_kint(w, "id", s->id);
        jw_kstr(w, "tool", s->tool);
        if (s->note)
                jw_kstr(w, "note", s->note);
        if (s->command) {
                struct str cut = utf8_prefix(str_of(s->command), command_max);

                jw_kstrn(w, "command", cut);
                if (cut.n < strlen(s->command))
                        jw_kbool(w, "commandCut", true);
        }
        if (s->directory)
                jw_kstr(w, "directory", s->directory);
        if (s->exec_id)
                jw_kstr(w, "execId", s->exec_id);
        if (conversation[0])
                jw_kstr(w, "conversation", conversation);
        jw_kstr(w, "startedAt", rfc3339(s->started_at, at));
        if (s->ended_at) {
                jw_kstr(w, "endedAt", rfc3339(s->ended_at, at));
                jw_kint(w, "durationMs", s->ended_at - s->started_at);
        }
        if (s->has_exit)
                jw_kint(w, "exitCode", s->exit_code);
        if (s->signal)
                jw_kstr(w, "signal", s->signal);
        if (s->timed_out)
                jw_kbool(w, "timedOut", true);
        if (s->oom_killed)
                jw_kbool(w, "oomKilled", true);
        if (s->error)
                jw_kstr(w, "error", s->error);
        jw_end(w);
}

struct running {
        struct jw *w;
        unsigned n;
};

static int write_first(const struct step *s, void *arg)
{
        struct running *r = arg;

        if (r->n++ == 0)
                view_step(r->w, s, VIEW_COMMAND_SHORT);
        return 0;
}

static unsigned write_newest(struct jw *w, struct control *c, const char *box, bool running, int most)
{
        struct running r = { .w = w };

        (void) steps_before(c->db, box, 0, running, most, write_first, &r);
        if (!r.n)
                jw_null(w);
        return r.n;
}

void view_box(struct jw *w, struct control *c, const struct box_row *row)
{
        char at[RFC3339_LEN], conversation[9];
        struct agent_row agent;

        view_conversation(row->agent, conversation);
        if (conversation[0])
                jw_kstr(w, "conversation", conversation);
        (void) agent_state(c, row, &agent);
        int64_t heard = agent.heartbeat_at > agent.called_at ? agent.heartbeat_at : agent.called_at;
        if (agent.left_at > heard)
                heard = agent.left_at;
        if (heard)
                jw_kstr(w, "heardAt", rfc3339(heard, at));
        if (row->ended_at)
                jw_kstr(w, "endedAt", rfc3339(row->ended_at, at));
        jw_key(w, "now");
        unsigned n = write_newest(w, c, row->id, true, RUNNING_MAX);
        jw_kint(w, "running", n);
        jw_key(w, "last");
        (void) write_newest(w, c, row->id, false, 1);
}
