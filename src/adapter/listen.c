#include "adapter/listen.h"
#include "adapter/adapter.h"
#include "adapter/call.h"
#include "adapter/era.h"
#include "base/mem.h"

#include <stdlib.h>

#define LISTENERS_MAX 64

struct listener {
        struct list node;
        char *id; /* the text of the request's id */
        bool tools;
};

void listeners_init(struct listeners *l)
{
        list_init(&l->all);
        l->n = 0;
}

static struct listener *find(struct adapter *a, struct str id)
{
        list_for_each (it, &a->listeners.all) {
                struct listener *l = list_entry(it, struct listener, node);

                if (str_eq(str_of(l->id), id))
                        return l;
        }
        return NULL;
}

static void drop(struct adapter *a, struct listener *l)
{
        list_remove(&l->node);
        a->listeners.n--;
        free(l->id);
        free(l);
}

static void write_meta(struct jw *w, const struct listener *l)
{
        jw_kobj(w, "_meta");
        jw_key(w, ERA_META "subscriptionId");
        jw_raw(w, str_of(l->id));
        jw_end(w);
}

static void notify(struct adapter *a, const struct listener *l, const char *method, bool acknowledge)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16384);
        struct jw w;

        jw_init(&w, &b);
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", "2.0");
        jw_kstr(&w, "method", method);
        jw_kobj(&w, "params");
        write_meta(&w, l);
        if (acknowledge) {
                jw_kobj(&w, "notifications");
                if (l->tools)
                        jw_kbool(&w, "toolsListChanged", true);
                jw_end(&w);
        }
        if (jw_end_all(&w) == 0)
                out_post(&a->out, buf_str(&b));
}

void listeners_add(struct adapter *a, struct str id, const struct json *params)
{
        const struct json *wanted = json_get(params, "notifications");
        struct listener *l;

        if (json_type(wanted) != JSON_OBJECT) {
                adapter_reply_error(a, id, -32602, "`notifications` is required: an object of the kinds to listen for");
                return;
        }
        if (find(a, id) || call_find(a, id) || id.n > 4096 || a->listeners.n == LISTENERS_MAX) {
                adapter_reply_error(a, id, -32600, "a request with this id is still running, or too many are");
                return;
        }
        l = xcalloc(1, sizeof *l);
        l->id = xstrndup(id.p, id.n);
        l->tools = json_get_bool(wanted, "toolsListChanged", false);
        list_append(&a->listeners.all, &l->node);
        a->listeners.n++;
        notify(a, l, "notifications/subscriptions/acknowledged", true);
}

void listeners_cancel(struct adapter *a, struct str id)
{
        struct listener *l = find(a, id);

        if (l)
                drop(a, l);
}

void listeners_tools_changed(struct adapter *a)
{
        list_for_each (it, &a->listeners.all) {
                const struct listener *l = list_entry(it, struct listener, node);

                if (l->tools)
                        notify(a, l, "notifications/tools/list_changed", false);
        }
}

void listeners_end(struct adapter *a)
{
        list_for_each_safe (it, &a->listeners.all) {
                struct listener *l = list_entry(it, struct listener, node);
                _cleanup_buf_ struct buf b = BUF_MAX(16384);
                struct jw w;

                jw_init(&w, &b);
                jw_obj(&w);
                jw_kstr(&w, "resultType", "complete");
                write_meta(&w, l);
                if (jw_end_all(&w) == 0)
                        adapter_reply_raw(a, str_of(l->id), buf_str(&b));
                drop(a, l);
        }
}
