#include "adapter/upstream.h"
#include "adapter/exchange.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OPEN_LIMIT_MS 30000
#define LATEST "2025-11-25"

void answer_done(struct answer *a)
{
        buf_done(&a->message);
        *a = (struct answer){ 0 };
}

int upstream_init(struct upstream *u, const struct config *c, struct http_client *http, const char *agent,
                  struct err *e)
{
        *u = (struct upstream){ .config = c, .http = http, .agent = agent };
        waitq_init(&u->opened);
        (void) snprintf(u->wait_sec, sizeof u->wait_sec, "%lld", (long long) c->wait_sec);
        (void) snprintf(u->version, sizeof u->version, "%s", LATEST);
        if (c->key && (size_t) snprintf(u->authorization, sizeof u->authorization, "Bearer %s", c->key) >=
                              sizeof u->authorization)
                return err_set(e, -EINVAL, "PARALLELSANDBOX_API_KEY is too long to be a key");
        return 0;
}

int64_t upstream_next_id(struct upstream *u)
{
        return ++u->last_id;
}

void upstream_headers(const struct upstream *u, const char **out, size_t n)
{
        const char *const all[] = {
                "Authorization",
                u->authorization[0] ? u->authorization : NULL,
                "X-Psbx-Agent",
                u->agent,
                "X-Psbx-Client",
                u->client[0] ? u->client : NULL,
                "X-Psbx-Tool-Wait-Sec",
                u->wait_sec,
                "X-Psbx-Review-Wait-Sec",
                u->wait_sec,
                "User-Agent",
                ("parallelsandbox-mcp/" PSBX_VERSION),
        };
        size_t k = 0;

        for (size_t i = 0; i + 1 < ARRAY_LEN(all) && k + 3 < n; i += 2)
                if (all[i + 1]) {
                        out[k++] = all[i];
                        out[k++] = all[i + 1];
                }
        out[k] = NULL;
}

static int build(struct buf *body, const struct up_spec *s)
{
        int r = buf_addf(body, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"method\":\"%s\",\"params\":", (long long) s->id,
                         s->method);

        if (r == 0)
                r = buf_addstr(body, s->params.n ? s->params : STR("{}"));
        return r < 0 ? r : buf_addc(body, '}');
}

/* Fire and forget: a notification in a coroutine of its own, which owns its copy of the text. */
struct notice {
        struct upstream *u;
        struct buf body;
};

static void coroutine_fn send_notice(void *arg)
{
        struct notice *n = arg;

        exchange_notify(n->u, buf_str(&n->body));
        buf_done(&n->body);
        free(n);
}

static void tell_cancelled(struct upstream *u, int64_t id)
{
        struct notice *n = xcalloc(1, sizeof *n);

        n->u = u;
        n->body = BUF_MAX(512);
        (void) buf_addf(&n->body,
                        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%lld,"
                        "\"reason\":\"the caller cancelled\"}}",
                        (long long) id);
        if (!coro_start(send_notice, n, 0, "cancelled")) {
                buf_done(&n->body);
                free(n);
        }
}

static void read_welcome(struct upstream *u, const struct exchange *x, const struct answer *a)
{
        _cleanup_json_ struct json *j = NULL;
        const char *version;

        free(steal_ptr(u->session));
        if (x->session.len)
                u->session = xstrdup(buf_cstr((struct buf *) (uintptr_t) &x->session));
        if (json_parse(a->value.p, a->value.n, &j, NULL) < 0)
                return;
        version = json_get_str(j, "protocolVersion", LATEST);
        if (strlen(version) < sizeof u->version)
                (void) snprintf(u->version, sizeof u->version, "%s", version);
}

static void coroutine_fn open_session(struct upstream *u, struct answer *ret)
{
        static const char params[] = "{\"protocolVersion\":\"" LATEST "\",\"capabilities\":{},\"clientInfo\":"
                                     "{\"name\":\"parallelsandbox-mcp\",\"version\":\"" PSBX_VERSION "\"}}";
        const struct up_spec spec = { .method = "initialize",
                                      .params = STR(params),
                                      .id = upstream_next_id(u),
                                      .repeatable = true,
                                      .limit_ms = OPEN_LIMIT_MS };
        _cleanup_buf_ struct buf body = BUF_MAX(4096);
        struct exchange x;

        (void) build(&body, &spec);
        exchange_run(&x, u, &spec, buf_str(&body), true, ret);
        if (ret->fate == FATE_RESULT) {
                read_welcome(u, &x, ret);
                exchange_notify(u, STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
                u->ready = true;
        } else if (ret->fate == FATE_LOST || ret->fate == FATE_SILENT || ret->fate == FATE_TIMEOUT) {
                ret->fate = FATE_NOT_SENT; /* the tool call itself never left */
        } else if (ret->fate == FATE_ERROR) {
                ret->fate = FATE_BAD;
                (void) err_set(&ret->reason, -EPROTO, "the server refused initialize: %.300s", buf_cstr(&ret->message));
        }
        exchange_done(&x);
}

/* One coroutine opens the session, the others wait for it. False with *ret set when it could not be done. */
static bool coroutine_fn ensure_open(struct upstream *u, struct answer *ret)
{
        while (!u->ready && u->opening)
                if (waitq_wait(&u->opened, -1) == -ECANCELED) {
                        ret->fate = FATE_CANCELLED;
                        return false;
                }
        if (u->ready)
                return true;
        u->opening = true;
        open_session(u, ret);
        u->opening = false;
        waitq_wake_all(&u->opened);
        if (!u->ready)
                return false;
        answer_done(ret);
        return true;
}

static bool forgotten(const struct upstream *u, const struct exchange *x)
{
        return x->status == 404 && u->session;
}

void coroutine_fn upstream_request(struct upstream *u, const struct up_spec *spec, struct answer *ret)
{
        _cleanup_buf_ struct buf body = BUF_MAX((size_t) 256 << 20);

        *ret = (struct answer){ 0 };
        if (build(&body, spec) < 0) {
                ret->fate = FATE_BAD;
                (void) err_set(&ret->reason, -EMSGSIZE, "the request is too long");
                return;
        }
        for (int try = 0; try < 2; try++) {
                struct exchange x;

                if (!ensure_open(u, ret))
                        return;
                exchange_run(&x, u, spec, buf_str(&body), false, ret);
                bool again = try == 0 && forgotten(u, &x);
                if (x.cancelled && x.sent)
                        tell_cancelled(u, spec->id);
                exchange_done(&x);
                if (!again)
                        return;
                u->ready = false;
                answer_done(ret);
        }
}
