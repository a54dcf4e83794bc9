/*
 * params: revision 2026-07-28 lets a tool's schema name arguments that clients repeat as headers ("x-mcp-header":
 * "Region" → Mcp-Param-Region), so that intermediaries see them (basic/transports/streamable-http, "Custom headers").
 * Only primitive properties that are reached through `properties` alone count.
 */
#include "mcp/internal.h"

#include <errno.h>
#include <stdlib.h>

#define DEPTH_MAX 8

struct param_header {
        struct param_header *next;
        char *header;
        size_t depth;
        char *path[DEPTH_MAX]; /* of property names */
};

struct walk {
        const char *path[DEPTH_MAX];
        size_t depth;
        struct param_header *found;
};

static int visit(const char *name, struct json *schema, void *arg);

static void descend(struct walk *w, const struct json *schema)
{
        if (w->depth < DEPTH_MAX)
                (void) json_each(json_get(schema, "properties"), visit, w);
}

static int visit(const char *name, struct json *schema, void *arg)
{
        const char *suffix = json_get_str(schema, "x-mcp-header", NULL);
        struct walk *w = arg;

        w->path[w->depth++] = name;
        if (suffix) {
                struct param_header *h = xcalloc(1, sizeof(*h));

                h->header = xasprintf("Mcp-Param-%s", suffix);
                for (size_t i = 0; i < w->depth; i++)
                        h->path[i] = xstrdup(w->path[i]);
                h->depth = w->depth;
                h->next = w->found;
                w->found = h;
        }
        descend(w, schema);
        w->depth--;
        return 0;
}

void params_learn(struct mcp_server *s, const struct mcp_tool *tool)
{
        _cleanup_json_ struct json *listing = NULL;
        struct walk w = { .depth = 0 };

        /* Almost no tool has any; those need not be parsed. */
        if (!strstr(tool->listing, "\"x-mcp-header\"") ||
            json_parse(tool->listing, strlen(tool->listing), &listing, NULL) < 0)
                return;
        descend(&w, json_get(listing, "inputSchema"));
        if (w.found)
                (void) map_put(s->params, str_of(tool->name), w.found);
}

static int drop(struct str key, void *value, void *arg)
{
        for (struct param_header *h = value, *next; h; h = next) {
                next = h->next;
                for (size_t i = 0; i < h->depth; i++)
                        free(h->path[i]);
                free(h->header);
                free(h);
        }
        return 0;
}

void params_free(struct mcp_server *s)
{
        (void) map_each(s->params, drop, NULL);
        map_free(s->params);
}

/* A value as its header has it; false for what no header can carry. */
static bool value_text(const struct json *value, struct buf *out)
{
        switch (json_type(value)) {
        case JSON_STRING:
                return buf_addstr(out, json_strn(value)) == 0;
        case JSON_BOOL:
        case JSON_INT:
        case JSON_DOUBLE:
                return json_print(value, out) == 0;
        default:
                return false;
        }
}

int coroutine_fn params_check(struct exchange *x, const struct rpc *m)
{
        struct str tool = json_strn(json_get(m->params, "name"));
        const struct param_header *h = tool.p ? map_get(x->s->params, tool) : NULL;

        for (; h; h = h->next) {
                _cleanup_buf_ struct buf text = BUF_MAX(16 << 10);
                const struct json *value = json_get(m->params, "arguments");
                int r = 0;

                for (size_t i = 0; i < h->depth; i++)
                        value = json_get(value, h->path[i]);
                if (value_text(value, &text))
                        r = modern_check_header(x, m, h->header, str_n(buf_cstr(&text), text.len));
                else if (call_header(x->c, h->header).p) /* refused: it says what the body does not say */
                        r = modern_check_header(x, m, h->header, str_n(NULL, 0));
                if (r < 0)
                        return r;
        }
        return 0;
}
