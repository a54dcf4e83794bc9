/* REST: the table of routes. Bodies and answers are in rest_files.c and rest_boxes.c. */
#include "control/rest.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

static const struct route {
        const char *method, *pattern; /* a pattern segment "*" matches one segment */
        void (*fn)(struct rest *r);
} routes[] = {
        { "GET", "/v1/boxes", rest_boxes_list },      { "GET", "/v1/boxes/*", rest_boxes_get },
        { "POST", "/v1/boxes/*/sync", rest_sync },    { "POST", "/v1/boxes/*/plan", rest_plan },
        { "POST", "/v1/boxes/*/prune", rest_prune },  { "POST", "/v1/agents/*/heartbeat", rest_heartbeat },
        { "POST", "/v1/agents/*/leave", rest_leave }, { "GET", "/v1/secrets", rest_secrets_list },
        { "PUT", "/v1/secrets/*", rest_secret_put },  { "DELETE", "/v1/secrets/*", rest_secret_delete },
        { "GET", "/v1/boxes/*/steps", rest_steps },   { "GET", "/v1/boxes/*/unsaved", rest_unsaved },
        { "POST", "/v1/boxes/*/stop", rest_stop },    { "POST", "/v1/boxes/*/restore", rest_restore },
        { "GET", "/v1/events", rest_events },
};

static bool matches(struct str path, const char *pattern, struct rest *r)
{
        struct str pat = str_of(pattern);

        r->segment = str_n(NULL, 0);
        while (pat.n || path.n) {
                struct str want = str_cut(&pat, '/'), have = str_cut(&path, '/');

                if (str_eq(want, STR("*")) && have.n)
                        r->segment = have;
                else if (!str_eq(want, have))
                        return false;
        }
        return true;
}

bool coroutine_fn rest_handle(struct control *c, struct call *call, const struct identity *who)
{
        struct rest r = { .c = c, .call = call, .who = who };
        _cleanup_buf_ struct buf allow = BUF_MAX(128);

        for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
                if (!matches(call_path(call), routes[i].pattern, &r))
                        continue;
                if (str_eq(call_method(call), str_of(routes[i].method))) {
                        agent_called(c, who);
                        /* One that is too long names nothing; cut, it might. */
                        if (r.segment.n < sizeof r.id)
                                (void) snprintf(r.id, sizeof r.id, "%.*s", (int) r.segment.n,
                                                r.segment.p ? r.segment.p : "");
                        routes[i].fn(&r);
                        return true;
                }
                (void) buf_addf(&allow, "%s%s", allow.len ? ", " : "", routes[i].method);
        }
        if (!allow.len)
                return false;
        (void) call_add_header(call, "Allow", buf_cstr(&allow));
        (void) call_reply_error(call, 405, "method_not_allowed", "this address takes %s", buf_cstr(&allow));
        return true;
}

void coroutine_fn rest_fail(struct rest *r, int code, const struct err *e)
{
        static const struct {
                int code;
                unsigned status;
                const char *name;
        } map[] = {
                { -EINVAL, 400, "invalid" },     { -EBADMSG, 400, "invalid" },    { -EPROTO, 400, "invalid" },
                { -EPERM, 400, "refused" },      { -EXDEV, 400, "refused" },      { -ELOOP, 400, "refused" },
                { -EACCES, 400, "refused" },     { -ENOTDIR, 400, "invalid" },    { -EISDIR, 400, "invalid" },
                { -ENOENT, 404, "not_found" },   { -ESTALE, 409, "not_running" }, { -EBUSY, 409, "busy" },
                { -EEXIST, 409, "exists" },      { -EMSGSIZE, 413, "too_large" }, { -E2BIG, 413, "too_large" },
                { -EDQUOT, 409, "limit" },       { -ENOKEY, 500, "secrets_key" }, { -ENOSPC, 507, "disk_full" },
                { -EAGAIN, 503, "unavailable" },
        };

        if (code == -ECANCELED || call_gone(r->call))
                return;
        for (size_t i = 0; i < ARRAY_LEN(map); i++)
                if (map[i].code == code) {
                        if (map[i].status == 503)
                                (void) call_add_header(r->call, "Retry-After", "2");
                        (void) call_reply_error(r->call, map[i].status, map[i].name, "%s", err_text(e));
                        return;
                }
        (void) call_reply_error(r->call, 502, "box_error", "%s", err_text(e));
}
