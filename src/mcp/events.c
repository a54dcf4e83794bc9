#include "mcp/internal.h"

#include <stdlib.h>

/* An open GET stream: a passive object, no coroutine waits for it. */
struct watcher {
        struct list all, own;
        struct mcp_server *s; /* NULL once it left the lists */
        struct owner *owner;
        char *caller;
        struct sse *sse;
};

static void leave(struct watcher *w)
{
        struct mcp_server *s = w->s;

        if (!s)
                return;
        list_remove(&w->all);
        list_remove(&w->own);
        w->owner->n_streams--;
        s->stats.streams--;
        w->s = NULL;
        owner_put(s, w->owner);
}

static void on_close(void *arg)
{
        struct watcher *w = arg;

        leave(w);
        free(w->caller);
        free(w);
}

/* on_close may run inside sse_close: nothing of w is touched after it. */
static void end(struct watcher *w)
{
        leave(w);
        sse_close(w->sse);
}

static struct list *find(struct list *streams, const char *caller)
{
        list_for_each (it, streams)
                if (cstr_eq(list_entry(it, struct watcher, own)->caller, caller))
                        return it;
        return NULL;
}

void events_close(struct mcp_server *s, const char *owner, const char *caller)
{
        struct owner *o = owner ? map_get(s->owners, str_of(owner)) : NULL;
        struct list *own;

        if (!owner)
                while (!list_empty(&s->streams))
                        end(list_entry(s->streams.next, struct watcher, all));
        /* The owner goes away with the last of its streams. */
        while (o && o->n_streams > 0 && (own = find(&o->streams, caller))) {
                bool last = o->n_streams == 1;

                end(list_entry(own, struct watcher, own));
                if (last)
                        break;
        }
}

static int coroutine_fn check_limits(struct exchange *x)
{
        const struct owner *o = map_get(x->s->owners, str_of(x->owner));
        const struct mcp_config *cfg = &x->s->cfg;
        bool mine = o && o->n_streams >= cfg->streams_per_owner, all = x->s->stats.streams >= cfg->streams;

        if (!mine && !all)
                return 0;
        (void) call_add_header(x->c, "Retry-After", "30");
        reply_error(x, mine ? 429 : 503, NULL, RPC_SERVER_ERROR, "too many event streams are open");
        return -1;
}

void coroutine_fn serve_events(struct exchange *x)
{
        struct watcher *w;

        /* A client that comes again has lost its stream, whether or not TCP has noticed: the new one takes its place.
         */
        if (x->caller[0])
                events_close(x->s, x->owner, x->caller);
        if (check_limits(x) < 0)
                return;
        w = xcalloc(1, sizeof(*w));
        w->caller = xstrdup(x->caller);
        w->s = x->s;
        w->owner = owner_get(x->s, x->owner);
        w->owner->n_streams++;
        x->s->stats.streams++;
        list_append(&x->s->streams, &w->all);
        list_append(&w->owner->streams, &w->own);
        w->sse = sse_detach(x->c, MCP_GET_COMMENT_MS, on_close, w);
        if (!w->sse)
                on_close(w);
}

void mcp_tools_changed(struct mcp_server *s)
{
        static const char note[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}";

        list_for_each_safe (it, &s->streams) {
                struct watcher *w = list_entry(it, struct watcher, all);

                /* Who does not read has no use for a stream; on its next one, or on its next list, it sees the change.
                 */
                if (sse_post(w->sse, NULL, NULL, STR(note)) < 0)
                        end(w);
        }
}
