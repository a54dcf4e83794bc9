#include "mcp/internal.h"

#include <stdlib.h>

/* An open GET stream: a passive object, no coroutine waits for it. */
struct watcher {
        struct list all, own;
        struct mcp_server *s; /* NULL once it left the lists */
        struct owner *owner;
        char *caller;
        char *subscription; /* the id of subscriptions/listen as JSON text; NULL for a GET stream */
        bool wants_tools;
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
        free(w->subscription);
        free(w);
}

#define SUBSCRIPTION_KEY "io.modelcontextprotocol/subscriptionId"

static void write_subscription(struct jw *w, const struct watcher *at)
{
        jw_kobj(w, "_meta");
        jw_key(w, SUBSCRIPTION_KEY);
        jw_raw(w, str_of(at->subscription));
        jw_end(w);
}

/* A notification of a subscription: 0 or -errno of posting. */
static int post_note(struct watcher *at, const char *method, bool acknowledge)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8 << 10);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_kstr(&w, "method", method);
        if (at->subscription) {
                jw_kobj(&w, "params");
                write_subscription(&w, at);
                if (acknowledge) {
                        jw_kobj(&w, "notifications");
                        if (at->wants_tools)
                                jw_kbool(&w, "toolsListChanged", true);
                        jw_end(&w);
                }
                jw_end(&w);
        }
        int r = jw_end_all(&w);
        return r < 0 ? r : sse_post(at->sse, NULL, NULL, buf_str(&b));
}

/* A subscription that the server ends gets its response first. */
static void post_response(struct watcher *at)
{
        _cleanup_buf_ struct buf b = BUF_MAX(8 << 10);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_key(&w, "id");
        jw_raw(&w, str_of(at->subscription));
        jw_kobj(&w, "result");
        jw_kstr(&w, "resultType", "complete");
        write_subscription(&w, at);
        if (jw_end_all(&w) == 0)
                (void) sse_post(at->sse, NULL, NULL, buf_str(&b));
}

/* on_close may run inside sse_close: nothing of w is touched after it. */
static void end(struct watcher *w)
{
        leave(w);
        if (w->subscription)
                post_response(w);
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

/* NULL when the client is gone already. */
static struct watcher *watch(struct exchange *x, const char *subscription, bool wants_tools)
{
        struct watcher *w = xcalloc(1, sizeof(*w));

        w->caller = xstrdup(x->caller);
        w->subscription = xstrdup(subscription);
        w->wants_tools = wants_tools;
        w->s = x->s;
        w->owner = owner_get(x->s, x->owner);
        w->owner->n_streams++;
        x->s->stats.streams++;
        list_append(&x->s->streams, &w->all);
        list_append(&w->owner->streams, &w->own);
        w->sse = sse_detach(x->c, MCP_GET_COMMENT_MS, on_close, w);
        if (w->sse)
                return w;
        on_close(w);
        return NULL;
}

void coroutine_fn serve_events(struct exchange *x)
{
        /* A client that comes again has lost its stream, whether or not TCP has noticed: the new one takes its place.
         */
        if (x->caller[0])
                events_close(x->s, x->owner, x->caller);
        if (check_limits(x) == 0)
                (void) watch(x, NULL, true);
}

void coroutine_fn serve_listen(struct exchange *x, const struct rpc *m)
{
        const struct json *wanted = json_get(m->params, "notifications");

        if (json_type(wanted) != JSON_OBJECT) {
                reply_error(x, 400, m->id, RPC_INVALID_PARAMS,
                            "`notifications` is required: an object of the kinds to listen for");
                return;
        }
        if (!(x->accept & ACCEPT_SSE)) {
                reply_error(x, 406, m->id, RPC_INVALID_REQUEST, "Accept must allow text/event-stream");
                return;
        }
        if (check_limits(x) < 0)
                return;
        struct watcher *w = watch(x, m->id, json_get_bool(wanted, "toolsListChanged", false));
        if (w && post_note(w, "notifications/subscriptions/acknowledged", true) < 0)
                end(w);
}

void mcp_tools_changed(struct mcp_server *s)
{
        list_for_each_safe (it, &s->streams) {
                struct watcher *w = list_entry(it, struct watcher, all);

                /* Who does not read has no use for a stream; on its next one, or on its next list, it sees the change.
                 */
                if (w->wants_tools && post_note(w, "notifications/tools/list_changed", false) < 0)
                        end(w);
        }
}
