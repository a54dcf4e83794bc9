#include "adapter/tools.h"
#include "adapter/adapter.h"
#include "adapter/rawjson.h"

#include <errno.h>

#define LIST_MAX ((size_t) 16 << 20)
#define PAGES_MAX 50
#define LIMIT_MS 30000
#define RETRY_FIRST_MS 5000
#define QUICK_TRIES 3 /* within the start-up limits of hosts: Codex gives a server ten seconds */

void tools_init(struct tools *t)
{
        *t = (struct tools){ .list = BUF_MAX(LIST_MAX), .retry_ms = RETRY_FIRST_MS };
        waitq_init(&t->fetched);
}

static int add_page(struct buf *list, struct str result, struct buf *cursor)
{
        struct str tools, next;
        int r = 0;

        if (!raw_get(result, "tools", &tools))
                return -EPROTO;
        tools = raw_array_inside(tools);
        if (tools.n && list->len)
                r = buf_addc(list, ',');
        if (r == 0 && tools.n && raw_add_line(list, tools) < 0)
                r = -ENOBUFS;
        buf_clear(cursor);
        if (r == 0 && raw_get(result, "nextCursor", &next) && next.n && next.p[0] == '"')
                r = buf_addstr(cursor, next);
        return r;
}

static int coroutine_fn fetch_page(struct adapter *a, struct buf *items, struct buf *cursor, enum fate *fate,
                                   struct err *e)
{
        _cleanup_buf_ struct buf params = BUF_MAX(65536);
        struct answer ans;
        int r;

        (void) buf_adds(&params, cursor->len ? "{\"cursor\":" : "{");
        (void) buf_addstr(&params, buf_str(cursor));
        (void) buf_addc(&params, '}');
        const struct up_spec spec = { .method = "tools/list",
                                      .params = buf_str(&params),
                                      .id = upstream_next_id(&a->up),
                                      .repeatable = true,
                                      .limit_ms = LIMIT_MS };
        upstream_request(&a->up, &spec, &ans);
        *fate = ans.fate;
        if (ans.fate == FATE_RESULT)
                r = add_page(items, ans.value, cursor) < 0
                            ? err_set(e, -EPROTO, "the server's tool list cannot be read")
                            : 0;
        else if (ans.fate == FATE_CANCELLED)
                r = -ECANCELED;
        else if (ans.fate == FATE_ERROR)
                r = err_set(e, -EIO, "the server answered tools/list with an error: %.*s",
                            (int) (ans.value.n < 300 ? ans.value.n : 300), ans.value.p);
        else
                r = err_set(e, -EIO, "%s", err_text(&ans.reason));
        answer_done(&ans);
        return r;
}

static int coroutine_fn fetch_all(struct adapter *a, struct buf *items, enum fate *fate, struct err *e)
{
        _cleanup_buf_ struct buf cursor = BUF_MAX(8192);
        int r;

        for (int page = 0; page < PAGES_MAX; page++) {
                r = fetch_page(a, items, &cursor, fate, e);
                if (r < 0 || cursor.len == 0)
                        return r;
        }
        return err_set(e, -EPROTO, "the server's tool list has no end");
}

/* Replaces the kept list; *changed tells whether it was another. */
static int coroutine_fn fetch(struct adapter *a, int tries, bool *changed, struct err *e)
{
        static const int64_t pause_ms[] = { 250, 750 };
        enum fate fate = FATE_BAD;
        int r = 0;

        *changed = false;
        for (int i = 0; i < tries; i++) {
                _cleanup_buf_ struct buf items = BUF_MAX(LIST_MAX), text = BUF_MAX(LIST_MAX + 64);

                r = fetch_all(a, &items, &fate, e);
                if (r == 0) {
                        (void) buf_adds(&text, "{\"tools\":[");
                        (void) buf_addstr(&text, buf_str(&items));
                        (void) buf_adds(&text, "]}");
                        *changed = !str_eq(buf_str(&text), buf_str(&a->tools.list));
                        buf_done(&a->tools.list);
                        a->tools.list = text;
                        text = BUF_MAX(0);
                        return 0;
                }
                if (r == -ECANCELED || (fate != FATE_NOT_SENT && fate != FATE_UNAVAILABLE && fate != FATE_LOST) ||
                    i + 1 == tries)
                        break;
                if (coro_sleep(pause_ms[i < 2 ? i : 1]) < 0)
                        return -ECANCELED;
        }
        return r;
}

void tools_forget(struct adapter *a)
{
        buf_done(&a->tools.list);
        a->tools.list = BUF_MAX(LIST_MAX);
        a->tools.retry_ms = RETRY_FIRST_MS;
        if (!a->ending)
                adapter_tools_changed(a);
}

static void coroutine_fn check(void *arg);

static void on_timer(void *arg)
{
        tools_check(arg);
}

static void schedule(struct adapter *a, int64_t ms)
{
        if (a->ending)
                return;
        if (!a->tools.timer)
                a->tools.timer = timer_start(ms, 0, on_timer, a);
        else
                timer_reset(a->tools.timer, ms);
}

static void after(struct adapter *a, int r)
{
        struct tools *t = &a->tools;

        if (r == 0) {
                t->retry_ms = RETRY_FIRST_MS;
                schedule(a, a->config.tools_check_ms);
                return;
        }
        /* The host saw an error; when the server comes back it is told that there is a list now. */
        schedule(a, t->retry_ms < a->config.tools_check_ms ? t->retry_ms : a->config.tools_check_ms);
        if (t->retry_ms < a->config.tools_check_ms)
                t->retry_ms *= 2;
}

static void coroutine_fn check(void *arg)
{
        struct adapter *a = arg;
        struct err e = { 0 };
        bool changed = false;
        int r = 0;

        if (!a->tools.fetching) {
                a->tools.fetching = true;
                r = fetch(a, 1, &changed, &e);
                a->tools.fetching = false;
                waitq_wake_all(&a->tools.fetched);
        }
        a->tools.checking = false;
        if (changed && creds_ready(&a->creds))
                adapter_tools_changed(a);
        after(a, r);
}

void tools_check(struct adapter *a)
{
        if (a->tools.checking || a->ending || !creds_ready(&a->creds))
                return;
        a->tools.checking = coro_start(check, a, CORO_STACK_LARGE, "tools") != NULL;
}

int coroutine_fn tools_get(struct adapter *a, struct err *e)
{
        struct tools *t = &a->tools;
        bool changed;
        int r;

        creds_load(&a->creds);
        if (!creds_ready(&a->creds))
                return 0; /* the caller looks */
        while (t->list.len == 0 && t->fetching)
                if (waitq_wait(&t->fetched, -1) == -ECANCELED)
                        return -ECANCELED;
        if (t->list.len)
                return 0;
        t->fetching = true;
        r = fetch(a, QUICK_TRIES, &changed, e);
        t->fetching = false;
        waitq_wake_all(&t->fetched);
        if (r != -ECANCELED)
                after(a, r);
        return r;
}
