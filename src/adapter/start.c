#include "adapter/start.h"
#include "adapter/call.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define KEPT_MAX 16
#define KEPT_MS (30 * 60 * 1000)
#define LOOK_MS 5000
#define SKEW_MS 5000

struct lost_start {
        struct list node;
        char *args; /* the text: only the very same request is the same request */
        int64_t wall_ms;
};

void starts_init(struct starts *s)
{
        list_init(&s->lost);
        s->n = 0;
}

static void forget(struct starts *s, struct lost_start *l)
{
        list_remove(&l->node);
        s->n--;
        free(l->args);
        free(l);
}

void start_remember(struct call *c)
{
        struct starts *s = &c->a->starts;
        struct lost_start *l;

        if (!c->args.p)
                return;
        if (s->n == KEPT_MAX)
                forget(s, list_entry(s->lost.next, struct lost_start, node));
        l = xcalloc(1, sizeof *l);
        l->args = xstrndup(c->args.p, c->args.n);
        l->wall_ms = c->started_wall;
        list_append(&s->lost, &l->node);
        s->n++;
}

bool start_is_row(const struct json *row, const struct json *args, int64_t since)
{
        const char *goal = json_get_str(args, "goal", NULL), *name = json_get_str(args, "name", NULL);
        const char *created = json_get_str(row, "createdAt", NULL);
        int64_t at;

        if (!goal || !cstr_eq(json_get_str(row, "goal", NULL), goal))
                return false;
        if (name && !cstr_eq(json_get_str(row, "name", NULL), name))
                return false;
        if (!json_get_bool(json_get(row, "agent"), "thisConversation", false))
                return false;
        return created && rfc3339_parse(str_of(created), &at) == 0 && at >= since - SKEW_MS;
}

struct json *coroutine_fn start_find(struct call *c, int64_t since)
{
        _cleanup_json_ struct json *result = NULL, *parsed = NULL;
        const struct json *args = json_get(json_get(c->msg, "params"), "arguments"), *list;
        struct err e = { 0 };

        /* The caller has already waited for the start itself: a short look, no second wait for a server that is gone.
         */
        if (c->budget_ms > LOOK_MS)
                c->budget_ms = LOOK_MS;
        int r = call_upstream_json(c, "sandbox_list", json_obj(), &result, &e);
        c->budget_ms = c->a->config.unavailable_budget_ms;
        if (r < 0)
                return NULL;
        list = json_get(json_get(result, "structuredContent"), "boxes");
        if (!list) {
                struct str text = json_strn(json_get(json_at(json_get(result, "content"), 0), "text"));

                if (text.p && json_parse(text.p, text.n, &parsed, NULL) == 0)
                        list = json_get(parsed, "boxes");
        }
        for (size_t i = 0; i < json_len(list); i++)
                if (start_is_row(json_at(list, i), args, since))
                        return json_ref(json_at(list, i));
        return NULL;
}

struct json *coroutine_fn start_again(struct call *c)
{
        struct starts *s = &c->a->starts;
        int64_t since = -1;

        list_for_each_safe (it, &s->lost) {
                struct lost_start *l = list_entry(it, struct lost_start, node);

                if (c->started_wall - l->wall_ms > KEPT_MS) {
                        forget(s, l);
                } else if (c->args.p && str_eq(str_of(l->args), c->args)) {
                        since = l->wall_ms;
                        forget(s, l);
                }
        }
        return since < 0 ? NULL : start_find(c, since);
}
