#include "adapter/call.h"
#include "adapter/rawjson.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TELL_MS 10000
#define MINUTE_MS (60 * 1000)
#define PAUSE_MAX_MS 15000

bool call_repeatable(const char *tool, const struct json *args)
{
        static const char *const safe[] = { "sandbox_report",   "sandbox_list",    "sandbox_get",
                                            "sandbox_versions", "sandbox_secrets", "sandbox_environments" };

        for (size_t i = 0; i < ARRAY_LEN(safe); i++)
                if (cstr_eq(tool, safe[i]))
                        return true;
        if (cstr_eq(tool, "sandbox_shot"))
                return !json_get(args, "record");
        return strncmp(tool, "logs_", 5) == 0;
}

static int64_t limit_of(const char *tool)
{
        bool person = cstr_eq(tool, "sandbox_takeover") || cstr_eq(tool, "sandbox_review");

        return (person ? 31 : 65) * (int64_t) MINUTE_MS;
}

static int add_member(struct buf *out, bool *first, struct str key, struct str value)
{
        int r = buf_adds(out, *first ? "\"" : ",\"");

        *first = false;
        if (r == 0)
                r = buf_addstr(out, key);
        if (r == 0)
                r = buf_adds(out, "\":");
        return r < 0 ? r : raw_add_line(out, value);
}

static int add_meta(struct buf *out, struct str meta, int64_t token, bool with_token)
{
        bool first = true;
        struct str k, v;
        char number[32];
        int r = buf_addc(out, '{');

        for (struct raw_it it = raw_begin(meta); r == 0 && raw_next(&it, &k, &v);)
                if (!raw_key_is(k, "progressToken"))
                        r = add_member(out, &first, k, v);
        (void) snprintf(number, sizeof number, "%lld", (long long) token);
        if (r == 0 && with_token)
                r = add_member(out, &first, STR("progressToken"), str_of(number));
        return r < 0 ? r : buf_addc(out, '}');
}

static int add_args(struct buf *out, struct str args, const char *exec_id)
{
        struct str k, v, quoted;
        bool first = true;
        char text[64];
        int r;

        if (!exec_id[0])
                return raw_add_line(out, args);
        (void) snprintf(text, sizeof text, "\"%s\"", exec_id);
        quoted = str_of(text);
        r = buf_addc(out, '{');
        for (struct raw_it it = raw_begin(args); r == 0 && raw_next(&it, &k, &v);)
                r = add_member(out, &first, k, v);
        if (r == 0)
                r = add_member(out, &first, STR("execId"), quoted);
        return r < 0 ? r : buf_addc(out, '}');
}

int call_params(struct buf *out, struct str params, const char *exec_id, int64_t token, bool with_token)
{
        bool first = true;
        struct str k, v, meta = { 0 };
        int r = buf_addc(out, '{');

        for (struct raw_it it = raw_begin(params); r == 0 && raw_next(&it, &k, &v);) {
                if (raw_key_is(k, "_meta")) {
                        meta = v;
                } else if (raw_key_is(k, "arguments")) {
                        r = buf_adds(out, first ? "\"arguments\":" : ",\"arguments\":");
                        first = false;
                        if (r == 0)
                                r = add_args(out, v, exec_id);
                } else {
                        r = add_member(out, &first, k, v);
                }
        }
        if (r == 0 && (meta.p || with_token)) {
                r = buf_adds(out, first ? "\"_meta\":" : ",\"_meta\":");
                if (r == 0)
                        r = add_meta(out, meta, token, with_token);
        }
        return r < 0 ? r : buf_addc(out, '}');
}

static void on_progress(void *arg, struct str params)
{
        call_progress_server(arg, params);
}

static void on_message(void *arg, const struct json *params)
{
        struct call *c = arg;
        const struct json *data = json_get(params, "data");
        const char *text = json_str(data) ? json_str(data) : json_get_str(data, "message", NULL);

        if (!c->server_counts) /* else the same thing comes as progress */
                call_progress(c, text ? text : "still running");
}

static void on_tick(void *arg, bool moved)
{
        struct call *c = arg;
        char text[96];

        c->moved |= moved;
        if (!c->moved || loop_now() - c->last_told < TELL_MS)
                return;
        c->moved = false;
        (void) snprintf(text, sizeof text, "%.40s is running, for %lld s now", c->tool,
                        (long long) (loop_now() - c->started) / 1000);
        call_progress(c, text);
}

/* What happened to a call whose server could not be reached, over all its tries. */
struct outage {
        int64_t since, since_wall;
        unsigned tries;
};

/* True after a pause: try again. False: the budget is used up, or the call was cancelled. */
static bool coroutine_fn wait_for_server(struct call *c, struct outage *o, const struct answer *a)
{
        const struct config *cf = &c->a->config;
        int64_t now = loop_now(), pause;
        char text[256];

        if (o->tries++ == 0) {
                o->since = now;
                o->since_wall = wall_ms();
        }
        pause = cf->not_sent_delay_ms;
        if (a->fate == FATE_UNAVAILABLE) {
                pause = cf->unavailable_first_ms << (o->tries < 8 ? o->tries - 1 : 7);
                if (pause > PAUSE_MAX_MS)
                        pause = PAUSE_MAX_MS;
                if (a->retry_after_ms > pause)
                        pause = a->retry_after_ms;
        }
        int64_t left = o->since + c->budget_ms - now;
        if (left <= 0)
                return false;
        if (pause > left) /* one last try at the end of the budget */
                pause = left;
        (void) snprintf(text, sizeof text, "ParallelSandbox cannot be reached (%.120s); trying again",
                        err_text(&a->reason));
        call_progress(c, text);
        return coro_sleep(pause > 0 ? pause : 1) == 0;
}

static void outage_text(const struct outage *o, const char *tool, struct answer *a)
{
        char when[RFC3339_LEN], why[200];

        (void) snprintf(why, sizeof why, "%s", err_text(&a->reason));
        (void) err_set(&a->reason, -EHOSTUNREACH,
                       "%.60s: ParallelSandbox could not be reached for %.1f s (since %s, %u tries): %s. Nothing ran. "
                       "Try again when the server is up.",
                       tool, (double) (loop_now() - o->since) / 1000.0, rfc3339(o->since_wall, when), o->tries, why);
        a->fate = FATE_BAD;
}

static void lost_text(const struct call *c, const char *tool, const struct json *args, struct answer *a)
{
        char why[200], more[220];
        const char *id = json_get_str(args, "id", NULL);

        (void) snprintf(why, sizeof why, "%s", err_text(&a->reason));
        if (c->exec_id[0] && id && cstr_eq(tool, "sandbox_exec"))
                (void) snprintf(more, sizeof more,
                                "The command goes on in the box: sandbox_procs {\"id\": \"%.64s\", \"action\": "
                                "\"wait\", \"bgId\": \"%s\"} fetches its result.",
                                id, c->exec_id);
        else if (call_repeatable(tool, args))
                (void) snprintf(more, sizeof more,
                                "It was tried twice and changes nothing: call it again when the server answers.");
        else
                (void) snprintf(more, sizeof more,
                                "It may have run, or even finished: check sandbox_status (steps[] lists what ran) "
                                "before calling it again.");
        (void) err_set(&a->reason, -EIO, "%.60s: no result, because %s. %s", tool, why, more);
        a->fate = FATE_BAD;
}

static void refused_text(const struct call *c, const char *tool, struct answer *a)
{
        char why[200];

        (void) snprintf(why, sizeof why, "%s", err_text(&a->reason));
        if (a->fate == FATE_SCOPE || (a->fate == FATE_REFUSED && c->a->creds.state != CREDS_KEY))
                (void) err_set(&a->reason, -EACCES, "%.60s: the server does not allow it (%s). Nothing ran.", tool,
                               why);
        else if (a->fate == FATE_REFUSED)
                (void) err_set(&a->reason, -EACCES,
                               "%.60s: the server refused the API key in PARALLELSANDBOX_API_KEY (%s). Nothing ran. "
                               "`parallelsandbox keys add NAME` makes a new key.",
                               tool, why);
        else
                (void) err_set(&a->reason, -EIO, "%.60s: %s (%.100s).", tool, why, c->a->config.mcp_text);
        a->fate = FATE_BAD;
}

void call_no_sign_in(struct call *c, const char *why)
{
        _cleanup_free_ char *text =
                xasprintf("%.60s: not signed in to ParallelSandbox (%.300s). Nothing ran. Call " CONNECT_TOOL
                          ", then this tool again.",
                          c->tool, why);

        signin_watch(c->a);
        call_answer_text(c, str_of(text), true, false);
}

/* The server wants more than was granted: asks the person, and waits as long as the host lets us. True: again. */
static bool coroutine_fn step_up(struct call *c, const char *tool, struct answer *a)
{
        struct adapter *ad = c->a;
        struct err why = { 0 };
        int r;

        signin_start(ad, &a->challenge);
        r = signin_wait(ad, c, signin_patience(ad), &why);
        if (r == 0)
                return true;
        if (r == -ECANCELED) {
                a->fate = FATE_CANCELLED;
                return false;
        }
        _cleanup_free_ char *text =
                r == -ETIMEDOUT
                        ? xasprintf("%.60s: this needs more than was granted at the sign-in. Nothing ran. Ask the "
                                    "person to allow it at %s and call this tool again.",
                                    tool, ad->signin.link ? ad->signin.link : "the page that is being opened")
                        : xasprintf("%.60s: this needs more than was granted at the sign-in, and asking for it failed: "
                                    "%s. Nothing ran.",
                                    tool, err_text(&why));
        call_answer_text(c, str_of(text), true, false);
        a->fate = FATE_CANCELLED; /* answered */
        return false;
}

/* What a call has been through. */
struct story {
        struct outage outage;
        bool repeated, stepped_up;
};

/* 1: try again, 0: a->fate is final. */
static int coroutine_fn judge(struct call *c, const char *tool, const struct json *args, struct story *s,
                              struct answer *a)
{
        switch (a->fate) {
        case FATE_RESULT:
        case FATE_ERROR:
        case FATE_CANCELLED:
                return 0;
        case FATE_NOT_SENT:
        case FATE_UNAVAILABLE:
                if (wait_for_server(c, &s->outage, a))
                        return 1;
                if (coro_cancelled())
                        a->fate = FATE_CANCELLED;
                else
                        outage_text(&s->outage, tool, a);
                return 0;
        case FATE_LOST:
        case FATE_SILENT:
                if (!s->repeated && call_repeatable(tool, args)) {
                        s->repeated = true;
                        return 1;
                }
                lost_text(c, tool, args, a);
                return 0;
        case FATE_TIMEOUT:
                lost_text(c, tool, args, a);
                return 0;
        case FATE_SIGN_IN:
                return 0;
        case FATE_SCOPE:
                if (!s->stepped_up && c->a->creds.state == CREDS_IN) {
                        s->stepped_up = true;
                        return step_up(c, tool, a);
                }
                refused_text(c, tool, a);
                return 0;
        default:
                refused_text(c, tool, a);
                return 0;
        }
}

void coroutine_fn call_upstream(struct call *c, const char *tool, struct str params, const struct json *args,
                                struct answer *ret)
{
        const struct up_hooks hooks = { .progress = on_progress, .message = on_message, .tick = on_tick, .arg = c };
        struct story s = { 0 };

        for (;;) {
                _cleanup_buf_ struct buf text = BUF_MAX((size_t) 256 << 20);
                struct up_spec spec = { .method = "tools/call",
                                        .name = tool,
                                        .id = upstream_next_id(&c->a->up),
                                        .limit_ms = limit_of(tool),
                                        .hooks = &hooks };

                if (call_params(&text, params, c->exec_id, spec.id, c->token.p != NULL) < 0) {
                        *ret = (struct answer){ .fate = FATE_BAD };
                        (void) err_set(&ret->reason, -ENOMEM, "%.60s: the arguments are too long", tool);
                        return;
                }
                spec.params = buf_str(&text);
                upstream_request(&c->a->up, &spec, ret);
                if (!judge(c, tool, args, &s, ret))
                        return;
                answer_done(ret);
        }
}

int coroutine_fn call_upstream_json(struct call *c, const char *tool, struct json *args, struct json **ret,
                                    struct err *e)
{
        _cleanup_json_ struct json *params = json_obj();
        _cleanup_free_ char *text = NULL;
        struct answer a;
        int r = 0;

        json_set_str(params, "name", tool);
        json_set(params, "arguments", args);
        text = json_text(params);
        if (!text)
                return err_set(e, -ENOMEM, "out of memory");
        call_upstream(c, tool, str_of(text), args, &a);
        if (a.fate == FATE_RESULT)
                r = json_parse(a.value.p, a.value.n, ret, e);
        else if (a.fate == FATE_CANCELLED)
                r = -ECANCELED;
        else if (a.fate == FATE_SIGN_IN)
                r = err_set(e, -EACCES, "not signed in to ParallelSandbox: call " CONNECT_TOOL);
        else if (a.fate == FATE_ERROR)
                r = err_set(e, -EIO, "%s: the server answered with an error: %.*s", tool,
                            (int) (a.value.n < 300 ? a.value.n : 300), a.value.p);
        else
                r = err_set(e, -EIO, "%s", err_text(&a.reason));
        answer_done(&a);
        return r;
}

static bool wants_exec_id(const struct call *c, const struct json *args)
{
        return cstr_eq(c->tool, "sandbox_exec") && json_type(args) == JSON_OBJECT &&
               !json_get_bool(args, "background", false) && !json_has(args, "execId");
}

static void reply_box(struct call *c, const struct json *row, const char *note)
{
        _cleanup_buf_ struct buf b = BUF_MAX((size_t) 1 << 20);
        struct json *copy = NULL;
        _cleanup_free_ char *text = json_text(row);

        if (text && json_parse(text, strlen(text), &copy, NULL) == 0) {
                json_set_str(copy, "note", note);
                (void) json_print(copy, &b);
                call_answer_text(c, buf_str(&b), false, true);
        }
        json_unref(copy);
}

/* The answer of a start never came: say which box it made, if it made one. */
static void coroutine_fn reply_lost_start(struct call *c, const struct answer *a)
{
        _cleanup_json_ struct json *row = start_find(c, c->started_wall);
        _cleanup_free_ char *text = NULL;

        if (coro_cancelled())
                return;
        if (row) {
                text = xasprintf("%s It did make a box: id \"%s\" (found by its name and goal). Use that one, or call "
                                 "sandbox_start again with the "
                                 "same arguments: it returns the same box.",
                                 err_text(&a->reason), json_get_str(row, "id", "?"));
        } else {
                text = xasprintf("%s No box with this name and goal is to be seen yet (sandbox_list); the same "
                                 "sandbox_start again "
                                 "returns it if it appears.",
                                 err_text(&a->reason));
        }
        start_remember(c);
        call_answer_text(c, str_of(text), true, false);
}

static void reply_result(struct call *c, struct str result)
{
        _cleanup_buf_ struct buf more = BUF_MAX((size_t) 256 << 20);
        const char *box = json_get_str(json_get(json_get(c->msg, "params"), "arguments"), "id", NULL);

        if (cstr_eq(c->tool, "sandbox_exec") && reminders_add(&c->a->reminders, box, result, &more))
                result = buf_str(&more);
        call_answer(c, result, false);
}

static void reply(struct call *c, const struct answer *a)
{
        struct str flag;

        switch (a->fate) {
        case FATE_RESULT:
                reply_result(c, a->value);
                if (raw_get(a->value, "isError", &flag) && str_eq(flag, STR("true")) &&
                    str_has(a->value, STR("is required")))
                        tools_check(c->a); /* perhaps the host has an old schema */
                return;
        case FATE_SIGN_IN:
                call_no_sign_in(c, err_text(&a->reason));
                return;
        case FATE_ERROR: {
                _cleanup_buf_ struct buf b = BUF_MAX((size_t) 256 << 20);

                (void) buf_adds(&b, "{\"jsonrpc\":\"2.0\",\"id\":");
                (void) buf_addstr(&b, c->id);
                (void) buf_adds(&b, ",\"error\":");
                if (raw_add_line(&b, a->value) == 0 && buf_addc(&b, '}') == 0)
                        out_post(&c->a->out, buf_str(&b));
                return;
        }
        default:
                call_answer_text(c, str_of(err_text(&a->reason)), true, false);
        }
}

static void coroutine_fn call_remote(struct call *c)
{
        const struct json *args = json_get(json_get(c->msg, "params"), "arguments");
        bool is_start = cstr_eq(c->tool, "sandbox_start");
        struct answer a;

        if (is_start) {
                _cleanup_json_ struct json *row = start_again(c);

                if (row && !c->cancelled) {
                        reply_box(
                                c, row,
                                "This is the box that the same sandbox_start made before; its answer had not arrived.");
                        return;
                }
        }
        if (wants_exec_id(c, args)) {
                char id[17];

                random_id(id, 16);
                (void) snprintf(c->exec_id, sizeof c->exec_id, "x-%s", id);
        }
        call_upstream(c, c->tool, c->params, args, &a);
        if (c->cancelled || a.fate == FATE_CANCELLED) {
                if (is_start)
                        start_remember(c);
        } else if (is_start && a.fate == FATE_BAD && (a.reason.code == -EIO)) {
                reply_lost_start(c, &a);
        } else {
                reply(c, &a);
        }
        answer_done(&a);
        out_room(&c->a->out);
}

/* While nobody is signed in the server cannot be asked; a host may know its tools from before. */
static bool may_be_ours(const char *tool)
{
        return strncmp(tool, "sandbox_", 8) == 0 || strncmp(tool, "logs_", 5) == 0;
}

void coroutine_fn call_tool(struct call *c)
{
        if (!c->tool) {
                adapter_reply_error(c->a, c->id, -32602, "params.name must be a string");
                return;
        }
        if (cstr_eq(c->tool, CONNECT_TOOL) && !c->a->config.key) {
                call_connect(c);
                return;
        }
        creds_load(&c->a->creds);
        if (c->a->creds.state == CREDS_OUT && !may_be_ours(c->tool)) {
                adapter_reply_error(c->a, c->id, -32602, "Unknown tool: %.100s", c->tool);
                return;
        }
        presence_touch(c->a);
        if (cstr_eq(c->tool, "sandbox_sync") || cstr_eq(c->tool, "sandbox_pull"))
                call_local(c, cstr_eq(c->tool, "sandbox_pull"));
        else
                call_remote(c);
}
