#include "control/events.h"

#include "base/clock.h"

#include <stdio.h>

#define WORKING_MS (5 * 60000)
#define GONE_MS (3 * 60000)
#define IDLE_MS (60 * 60000)

bool agent_id_ok(const char *s)
{
        size_t n = strlen(s);

        if (n == 0 || n > 64)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!c_is_alnum(s[i]) && s[i] != '_' && s[i] != '-')
                        return false;
        return true;
}

void agent_called(struct control *c, const struct identity *who)
{
        struct agent_row row;

        if (!who->agent[0])
                return;
        /* A row a few seconds old says the same; a busy agent must not cost a write per call. */
        if (agents_get(c->db, who->account, who->agent, &row) == 0 && row.left_at == 0 &&
            wall_ms() - row.called_at < 5000)
                return;
        (void) agents_called(c->db, who->account, who->agent, who->client[0] ? who->client : NULL);
        events_agent(c->events, who->account, who->agent);
}

const char *agent_state(struct control *c, const struct box_row *row, struct agent_row *ret)
{
        int64_t now = wall_ms();

        *ret = (struct agent_row){ 0 };
        if (!row->agent || agents_get(c->db, row->account, row->agent, ret) < 0)
                return "untracked";
        if (ret->left_at)
                return "left";
        int64_t heard = ret->heartbeat_at > ret->called_at ? ret->heartbeat_at : ret->called_at;
        if (ret->heartbeat_at && now - heard > GONE_MS)
                return "left";
        if (now - row->used_at > IDLE_MS)
                return "idle";
        return now - row->used_at < WORKING_MS ? "working" : "away";
}

void agent_write(struct jw *w, struct control *c, const struct box_row *row, const struct identity *who)
{
        struct agent_row agent;
        const char *state = agent_state(c, row, &agent);

        jw_kobj(w, "agent");
        jw_kstr(w, "state", state);
        jw_kstr(w, "client", agent.client[0] ? agent.client : row->agent_client);
        jw_kbool(w, "thisConversation", who->agent[0] && cstr_eq(who->agent, row->agent));
        jw_end(w);
}
