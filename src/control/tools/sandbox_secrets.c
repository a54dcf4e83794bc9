#include "control/secrets.h"
#include "control/tool.h"

#include "base/mem.h"

static int add_name(const struct secret_row *s, void *arg)
{
        jw_str(arg, s->name);
        return 0;
}

static int add_row(const struct secret_row *s, void *arg)
{
        secret_write(arg, s);
        return 0;
}

static void list_all(struct tool_call *t)
{
        _cleanup_buf_ struct buf b = BUF_MAX(TOOL_TEXT_MAX);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_karr(&w, "names");
        (void) secrets_each(t->c->db, t->who->account, add_name, &w);
        jw_end(&w);
        jw_karr(&w, "secrets");
        (void) secrets_each(t->c->db, t->who->account, add_row, &w);
        jw_end(&w);
        tool_answer(t, &w, &b);
}

static void answer(struct tool_call *t, const struct box *b, const struct json *given)
{
        _cleanup_buf_ struct buf text = BUF_MAX(TOOL_TEXT_MAX);
        struct jw w;

        jw_init(&w, &text);
        jw_obj(&w);
        jw_kstr(&w, "id", b->id);
        jw_key(&w, "names");
        box_secret_names(t->c, b->id, &w);
        if (given) {
                jw_key(&w, "given");
                jw_json(&w, given);
                jw_kstr(&w, "next",
                        "commands that start from now on have them as environment variables of these names; those that "
                        "run already do not");
        }
        tool_answer(t, &w, &text);
}

void coroutine_fn tool_sandbox_secrets(struct tool_call *t)
{
        const char *id = json_get_str(t->args, "id", NULL);
        const struct json *names = json_get(t->args, "names");
        _cleanup_box_ struct box *b = NULL;
        struct err e = { 0 };

        if (!id && names) {
                mcp_fail(t->r, "sandbox_secrets: `names` needs `id`, the box that gets them; nothing was given");
                return;
        }
        if (!id) {
                list_all(t);
                return;
        }
        int r = box_acquire(t->c, t->who, id, &b, &e);
        if (r == 0 && names)
                r = secrets_give(t->c, t->who->account, b->id, names, &e);
        if (!tool_failed(t, r, &e))
                answer(t, b, names);
}
