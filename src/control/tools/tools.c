/* The dispatcher: from a tool's name and raw arguments to the function that runs it. */
#include "control/secrets.h"
#include "control/tool.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

struct tools {
        struct control *c;
        struct schema *schemas[TOOL_COUNT];
};

static void coroutine_fn adapter_only(struct tool_call *t)
{
        mcp_fail(t->r,
                 "%s reads and writes files on your machine, so it runs in the stdio adapter, not over plain HTTP; "
                 "nothing was done."
                 " Add the adapter: claude mcp add parallelsandbox --env PARALLELSANDBOX_API_KEY=<key> -- "
                 "parallelsandbox-mcp"
                 " (any other client: run parallelsandbox-mcp as a stdio server). %s",
                 t->name,
                 cstr_eq(t->name, "sandbox_pull") ? "Without it, sandbox_get gives a link to download."
                                                  : "Without it, sandbox_exec can fetch code with git.");
}

static void (*const functions[TOOL_COUNT])(struct tool_call *t) = {
        [TOOL_SANDBOX_START] = tool_sandbox_start,   [TOOL_SANDBOX_LIST] = tool_sandbox_list,
        [TOOL_SANDBOX_STATUS] = tool_sandbox_status, [TOOL_SANDBOX_EXEC] = tool_sandbox_exec,
        [TOOL_SANDBOX_PROCS] = tool_sandbox_procs,   [TOOL_SANDBOX_GET] = tool_sandbox_get,
        [TOOL_SANDBOX_STOP] = tool_sandbox_stop,     [TOOL_SANDBOX_SECRETS] = tool_sandbox_secrets,
        [TOOL_SANDBOX_WIRE] = tool_sandbox_wire,     [TOOL_SANDBOX_SHOT] = tool_sandbox_shot,
        [TOOL_SANDBOX_SYNC] = adapter_only,          [TOOL_SANDBOX_PULL] = adapter_only,
};

int tools_new(struct control *c, struct tools **ret, struct err *e)
{
        struct tools *t = xcalloc(1, sizeof *t);

        t->c = c;
        for (int i = 0; i < TOOL_COUNT; i++) {
                _cleanup_json_ struct json *schema = NULL;
                int r = json_parse(tools_schema[i], strlen(tools_schema[i]), &schema, e);

                if (r == 0 && !(t->schemas[i] = schema_compile(schema, e)))
                        r = -22;
                if (r < 0) {
                        tools_free(t);
                        return err_wrap(e, "schema of %s", tools_table[i].name);
                }
        }
        *ret = t;
        return 0;
}

void tools_free(struct tools *t)
{
        for (int i = 0; t && i < TOOL_COUNT; i++)
                schema_free(t->schemas[i]);
        free(t);
}

/*
 * What the call says about a box that holds secrets is masked, whichever tool says it. When they cannot be opened, a
 * box can still be looked at (what is stored of it was masked when it was written) and stopped; nothing new comes out
 * of it.
 */
static int mask_call(struct tool_call *t, int tool, struct mask **ret)
{
        const char *id = json_get_str(t->args, "id", NULL);
        const struct box *b = id ? map_get(t->c->boxes, str_of(id)) : NULL;
        struct err e = { 0 };

        if (!b || !cstr_eq(b->account, t->who->account))
                return 0;
        int r = box_mask(t->c, b->id, ret, &e);
        if (r < 0 && tool != TOOL_SANDBOX_STATUS && tool != TOOL_SANDBOX_STOP) {
                mcp_fail(t->r, "%s: %s", t->name, err_text(&e));
                return r;
        }
        t->mask = *ret;
        mcp_mask(t->r, *ret);
        return 0;
}

int coroutine_fn tools_call(struct mcp_request *r, const struct mcp_tool *tool, const struct json *args, void *arg)
{
        struct tools *tools = arg;
        _cleanup_json_ struct json *none = args ? NULL : json_obj();
        _cleanup_mask_ struct mask *mask = NULL;
        struct tool_call t = { tools->c, mcp_user(r), r, args ? args : none, tool->name, NULL };
        struct err e = { 0 };

        agent_called(t.c, t.who);
        if (mask_call(&t, tool->id, &mask) < 0) /* first: what is wrong with an argument quotes it */
                return 0;
        if (!tools_adapter_only[tool->id] && schema_check(tools->schemas[tool->id], t.args, &e) < 0)
                mcp_fail(r, "%s: %s; nothing was run", tool->name, err_text(&e));
        else
                functions[tool->id](&t);
        return 0;
}

#define PATIENCE_LEAST_MS 3000  /* also for callers that say they have none: most commands are done by then */
#define PATIENCE_USUAL_MS 50000 /* of the many clients that give up at 60 s */

/* Clients that send a progress token and give up at 60 s all the same. */
static bool ignores_progress(const char *client)
{
        static const struct str names[] = { { "codex", 5 } };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (str_starts(str_of(client), names[i]))
                        return true;
        return false;
}

/* An adapter watches over its calls for as long as they take, with or without a token for the server. */
static bool is_adapter(const struct tool_call *t)
{
        return t->who->agent[0] || t->who->client[0] ||
               str_starts(str_of(mcp_client(t->r)), STR("parallelsandbox-mcp"));
}

int64_t tool_patience_ms(const struct tool_call *t)
{
        bool declared = call_header(mcp_call(t->r), "x-psbx-tool-wait-sec").p;
        bool impatient = ignores_progress(t->who->client[0] ? t->who->client : mcp_client(t->r));

        if (mcp_has_progress(t->r) && !impatient)
                return -1;
        if (declared)
                return t->who->wait_ms > PATIENCE_LEAST_MS ? t->who->wait_ms : PATIENCE_LEAST_MS;
        return impatient || !is_adapter(t) ? PATIENCE_USUAL_MS : -1;
}

void tool_answer(struct tool_call *t, struct jw *w, struct buf *b)
{
        if (jw_end_all(w) < 0) {
                mcp_fail(t->r,
                         "%s did its work, but its result did not fit into an answer: sandbox_status shows what was "
                         "done",
                         t->name);
                return;
        }
        mcp_result_json(t->r, buf_str(b));
}

void tool_error(struct tool_call *t, const struct err *e)
{
        mcp_fail(t->r, "%s: %s", t->name, err_text(e));
}

bool tool_failed(struct tool_call *t, int r, const struct err *e)
{
        if (r < 0 && r != -ECANCELED)
                tool_error(t, e);
        return r < 0;
}
