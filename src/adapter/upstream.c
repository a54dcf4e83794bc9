#include "adapter/upstream.h"
#include "adapter/era.h"
#include "adapter/exchange.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OPEN_LIMIT_MS 30000
#define TOKEN_LEFT_MS 30000 /* a token that ends sooner is refreshed first */
#define BODY_MAX ((size_t) 256 << 20)

void answer_done(struct answer *a)
{
        buf_done(&a->message);
        challenge_done(&a->challenge);
        *a = (struct answer){ 0 };
}

void upstream_init(struct upstream *u, const struct config *c, struct creds *creds, struct http_client *http,
                   const char *agent)
{
        *u = (struct upstream){ .config = c, .http = http, .agent = agent, .creds = creds };
        waitq_init(&u->opened);
        (void) snprintf(u->wait_sec, sizeof u->wait_sec, "%lld", (long long) c->wait_sec);
        (void) snprintf(u->version, sizeof u->version, "%s", ERA_LEGACY);
}

int64_t upstream_next_id(struct upstream *u)
{
        return ++u->last_id;
}

void upstream_headers(const struct upstream *u, const char **out, size_t n)
{
        const char *const all[] = {
                "Authorization",
                u->creds->authorization[0] ? u->creds->authorization : NULL,
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

static int build(struct buf *body, const struct upstream *u, const struct up_spec *s)
{
        int r = buf_addf(body, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"method\":\"%s\",\"params\":", (long long) s->id,
                         s->method);

        if (r == 0)
                r = era_params(body, s->params.n ? s->params : STR("{}"), u->modern);
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
        struct notice *n;

        if (u->modern) /* there, closing the stream says it */
                return;
        n = xcalloc(1, sizeof *n);
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
        version = json_get_str(j, "protocolVersion", ERA_LEGACY);
        if (strlen(version) < sizeof u->version)
                (void) snprintf(u->version, sizeof u->version, "%s", version);
}

static void coroutine_fn ask_open(struct upstream *u, const char *method, struct str params, bool anonymous,
                                  struct exchange *x, struct answer *ret)
{
        const struct up_spec spec = { .method = method,
                                      .params = params,
                                      .id = upstream_next_id(u),
                                      .repeatable = true,
                                      .anonymous = anonymous,
                                      .limit_ms = OPEN_LIMIT_MS };
        _cleanup_buf_ struct buf body = BUF_MAX(4096);

        (void) build(&body, u, &spec);
        exchange_run(x, u, &spec, buf_str(&body), !u->modern, ret);
}

/* A result of server/discover, or an error that names the versions (-32022): is ours among them? */
static bool lists_modern(const struct answer *a)
{
        _cleanup_json_ struct json *j = NULL;
        const struct json *list;

        if ((a->fate != FATE_RESULT && a->fate != FATE_ERROR) || json_parse(a->value.p, a->value.n, &j, NULL) < 0)
                return false;
        list = a->fate == FATE_RESULT ? json_get(j, "supportedVersions") : json_get(json_get(j, "data"), "supported");
        for (size_t i = 0; i < json_len(list); i++)
                if (cstr_eq(json_str(json_at(list, i)), ERA_MODERN))
                        return true;
        return false;
}

/* Is it a server of the newer era? When it wants a sign-in first, that is the answer. */
static bool coroutine_fn open_modern(struct upstream *u, bool anonymous, unsigned *status, struct answer *ret)
{
        struct answer a = { 0 };
        struct exchange x;

        u->modern = true;
        for (int try = 0; try < 2; try++) {
                answer_done(&a);
                ask_open(u, "server/discover", STR("{}"), anonymous, &x, &a);
                exchange_done(&x);
                if (a.fate != FATE_ERROR || !lists_modern(&a))
                        break;
        }
        u->modern = a.fate == FATE_RESULT && lists_modern(&a);
        if (u->modern) {
                free(steal_ptr(u->session));
                (void) snprintf(u->version, sizeof u->version, "%s", ERA_MODERN);
        } else if (a.fate == FATE_REFUSED) {
                answer_done(ret);
                *ret = a;
                *status = x.status;
                return false;
        }
        answer_done(&a);
        return u->modern;
}

/* Whether another era can be behind this answer to `initialize`. */
static bool other_era(const struct answer *a, unsigned status)
{
        return a->fate == FATE_ERROR || (a->fate == FATE_BAD && status >= 400 && status < 500);
}

static void coroutine_fn open_legacy(struct upstream *u, bool anonymous, unsigned *status, struct answer *ret)
{
        static const char params[] = "{\"protocolVersion\":\"" ERA_LEGACY "\",\"capabilities\":{},\"clientInfo\":"
                                     "{\"name\":\"parallelsandbox-mcp\",\"version\":\"" PSBX_VERSION "\"}}";
        struct exchange x;

        u->modern = false;
        ask_open(u, "initialize", STR(params), anonymous, &x, ret);
        *status = x.status;
        if (ret->fate == FATE_RESULT) {
                read_welcome(u, &x, ret);
                exchange_notify(u, STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
                u->ready = true;
        } else if (other_era(ret, x.status)) {
                u->ready = open_modern(u, anonymous, status, ret);
        } else if (ret->fate == FATE_LOST || ret->fate == FATE_SILENT || ret->fate == FATE_TIMEOUT) {
                ret->fate = FATE_NOT_SENT; /* the tool call itself never left */
        }
        if (!u->ready && ret->fate == FATE_ERROR) {
                ret->fate = FATE_BAD;
                (void) err_set(&ret->reason, -EPROTO, "the server refused initialize: %.300s", buf_cstr(&ret->message));
        }
        exchange_done(&x);
}

static void coroutine_fn open_session(struct upstream *u, bool anonymous, unsigned *status, struct answer *ret)
{
        if (u->config->modern_first) {
                u->ready = open_modern(u, anonymous, status, ret);
                if (u->ready || ret->fate == FATE_REFUSED)
                        return;
        }
        open_legacy(u, anonymous, status, ret);
}

/* One coroutine opens the session, the others wait for it. False with *ret set when it could not be done. */
static bool coroutine_fn ensure_open(struct upstream *u, bool anonymous, unsigned *status, struct answer *ret)
{
        while (!u->ready && u->opening)
                if (waitq_wait(&u->opened, -1) == -ECANCELED) {
                        ret->fate = FATE_CANCELLED;
                        return false;
                }
        if (u->ready)
                return true;
        u->opening = true;
        open_session(u, anonymous, status, ret);
        u->opening = false;
        waitq_wake_all(&u->opened);
        if (!u->ready)
                return false;
        answer_done(ret);
        return true;
}

/* The server has lost our session, or has become one of the other era: nothing ran. */
static bool forgotten(const struct upstream *u, const struct answer *a, unsigned status)
{
        int64_t code = 0;

        if (a->fate != FATE_ERROR && a->fate != FATE_BAD)
                return false;
        if (status == 404 && u->session)
                return true;
        if (a->fate == FATE_ERROR) {
                _cleanup_json_ struct json *j = NULL;

                if (json_parse(a->value.p, a->value.n, &j, NULL) == 0)
                        code = json_get_int(j, "code", 0);
        }
        if (code <= -32020 && code >= -32022)
                return true;
        if (u->modern)
                return status == 404 || status == 405 || (status == 400 && code != -32602);
        /* -32602 with a status of its own: what a server of the newer era says to a request without its `_meta` */
        return status == 400 && (code == 0 || code == -32000 || code == -32001 || code == -32602);
}

struct tries {
        bool session, token;
};

/* 401 and 403 of a signed-in adapter. True: again. */
static bool coroutine_fn refused(struct upstream *u, struct answer *a, unsigned status, uint64_t generation,
                                 struct tries *t)
{
        struct err why = { 0 };
        int r;

        if (status == 403 && cstr_eq(a->challenge.error, "insufficient_scope")) {
                a->fate = FATE_SCOPE;
                return false;
        }
        if (status != 401)
                return false;
        if (u->creds->state == CREDS_OPEN) { /* it was open until now */
                creds_drop(u->creds);
                u->creds->stamp = 0;
                t->token = true;
                return creds_use(u->creds, 0, NULL) == 0;
        }
        if (t->token) {
                creds_drop(u->creds);
                r = err_set(&why, -EACCES, "the server refused a token that was made a moment ago");
        } else {
                r = creds_refused(u->creds, generation, &why);
        }
        t->token = true;
        if (r == 0)
                return true;
        a->fate = r == -ECANCELED ? FATE_CANCELLED : r == -EAGAIN ? FATE_UNAVAILABLE : FATE_SIGN_IN;
        a->reason = why;
        return false;
}

/* False: a->fate says why nothing can be sent. */
static bool coroutine_fn have_token(struct upstream *u, const struct up_spec *spec, struct answer *a)
{
        int r = spec->anonymous ? 0 : creds_use(u->creds, TOKEN_LEFT_MS, &a->reason);

        if (r < 0)
                a->fate = r == -ECANCELED ? FATE_CANCELLED : r == -EAGAIN ? FATE_UNAVAILABLE : FATE_SIGN_IN;
        return r == 0;
}

/* One attempt. True: again. */
static bool coroutine_fn attempt(struct upstream *u, const struct up_spec *spec, struct answer *ret, struct tries *t)
{
        _cleanup_buf_ struct buf body = BUF_MAX(BODY_MAX);
        unsigned status = 0;
        struct exchange x;
        uint64_t generation;

        if (!have_token(u, spec, ret))
                return false;
        generation = u->creds->generation;
        if (!ensure_open(u, spec->anonymous, &status, ret))
                return ret->fate == FATE_REFUSED && !spec->anonymous && u->creds->state != CREDS_KEY &&
                       refused(u, ret, status, generation, t);
        if (build(&body, u, spec) < 0) {
                ret->fate = FATE_BAD;
                (void) err_set(&ret->reason, -EMSGSIZE, "the request is too long");
                return false;
        }
        generation = u->creds->generation;
        exchange_run(&x, u, spec, buf_str(&body), false, ret);
        status = x.status;
        if (x.cancelled && x.sent)
                tell_cancelled(u, spec->id);
        exchange_done(&x);
        if (ret->fate == FATE_REFUSED && !spec->anonymous && u->creds->state != CREDS_KEY)
                return refused(u, ret, status, generation, t);
        if (t->session || !forgotten(u, ret, status))
                return false;
        t->session = true;
        u->ready = false;
        return true;
}

void coroutine_fn upstream_request(struct upstream *u, const struct up_spec *spec, struct answer *ret)
{
        struct tries t = { 0 };

        *ret = (struct answer){ 0 };
        while (attempt(u, spec, ret, &t))
                answer_done(ret);
}

void coroutine_fn upstream_close(struct upstream *u, int64_t limit_ms)
{
        if (u->ready && u->session)
                exchange_delete(u, limit_ms);
}
