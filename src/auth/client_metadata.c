#include "auth/client_metadata.h"

#include "auth/handlers.h"
#include "auth/password.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/mem.h"
#include "http/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FETCH_MS 5000
#define FETCHING_MAX 4
#define BURST 10
#define EVERY_MS 6000

static const char user_agent[] = "ParallelSandbox/" PSBX_VERSION;

bool metadata_id_ok(const char *id)
{
        struct url u;

        if (strncmp(id, "https://", 8) != 0 || strlen(id) > 500 || strpbrk(id, "?#@\\ ") || url_parse(id, &u, NULL) < 0)
                return false;
        size_t host = strcspn(id + 8, "/");
        if (memchr(id + 8, ':', host) || id[8] == '[') /* names on the standard port only */
                return false;
        return u.path[1] && !strstr(u.path, "/../") && !strstr(u.path, "/./") &&
               !str_ends(str_of(u.path), STR("/..")) && !str_ends(str_of(u.path), STR("/.")) && !strstr(u.path, "//");
}

int64_t metadata_fresh_sec(struct str v)
{
        int64_t sec = 3600;

        while (v.n) {
                struct str d = str_trim(str_cut(&v, ','), " \t");
                uint64_t n;

                if (str_ieq(d, STR("no-store")) || str_ieq(d, STR("no-cache")))
                        sec = 0;
                else if (d.n > 8 && str_ieq(str_n(d.p, 8), STR("max-age=")) &&
                         parse_u64(str_n(d.p + 8, d.n - 8), UINT32_MAX, &n) == 0 && sec)
                        sec = (int64_t) n;
        }
        return sec < 300 ? 300 : sec > 86400 ? 86400 : sec;
}

int metadata_read(struct str text, const char *id, struct client *ret, struct err *e)
{
        _cleanup_json_ struct json *j = NULL;
        int r = json_parse(text.p, text.n, &j, e);

        if (r < 0)
                return err_wrap(e, "the client's document");
        if (!cstr_eq(json_get_str(j, "client_id", NULL), id))
                return err_set(e, -EPROTO, "the client's document is about another client_id");
        if (!json_get_str(j, "client_name", NULL))
                return err_set(e, -EPROTO, "the client's document has no client_name");
        if (json_has(j, "client_secret") || (json_has(j, "token_endpoint_auth_method") &&
                                             !cstr_eq(json_get_str(j, "token_endpoint_auth_method", ""), "none")))
                return err_set(e, -EPROTO, "the client's document is not that of a public client");
        r = client_read(j, ret, e);
        (void) snprintf(ret->id, sizeof ret->id, "%s", id);
        ret->document = true;
        return r;
}

/* ---- fetching ---- */

struct target {
        const struct fetch_policy *policy;
        const char *host;
        unsigned port;
};

/* Resolves, looks at the address, and connects to that very address: a name cannot change in between. */
static int coroutine_fn dial(void *arg, int64_t timeout_ms, struct stream **ret, struct err *e)
{
        struct target *t = arg;
        char address[64];
        int r = resolve_host(t->host, address, sizeof address, e);

        if (r < 0)
                return r;
        if (!t->policy->allowed(address))
                return err_set(e, -EACCES, "%s is no public address", t->host);
        return stream_connect_tcp(address, t->port, timeout_ms, ret, e);
}

static int coroutine_fn read_answer(struct hc *x, const char *id, struct client *ret, int64_t *ret_fresh_sec,
                                    struct err *e)
{
        _cleanup_buf_ struct buf body = BUF_MAX(METADATA_MAX);
        int r = hc_answer(x, e);

        if (r < 0)
                return r;
        if (hc_status(x) != 200)
                return err_set(e, -EPROTO, "the client's document answers with status %u", hc_status(x));
        struct str type = hc_header(x, "Content-Type"), base = str_trim(str_cut(&type, ';'), " ");
        if (!str_ieq(base, STR("application/json")) &&
            !(str_starts(base, STR("application/")) && str_ends(base, STR("+json"))))
                return err_set(e, -EPROTO, "the client's document is not JSON");
        r = hc_read_all(x, &body, FETCH_MS, e);
        if (r < 0)
                return r;
        *ret_fresh_sec = metadata_fresh_sec(hc_header(x, "Cache-Control"));
        return metadata_read(buf_str(&body), id, ret, e);
}

int coroutine_fn metadata_fetch(const char *id, const struct fetch_policy *p, struct client *ret,
                                int64_t *ret_fresh_sec, struct err *e)
{
        static const char *const headers[] = { "Accept", "application/json", "User-Agent", user_agent, NULL };
        _cleanup_free_ struct url *u = xcalloc(1, sizeof *u);
        int r = metadata_id_ok(id) ? url_parse(id, u, e)
                                   : err_set(e, -EINVAL, "a client_id that is an address is https with a path");
        struct hc *x = NULL;

        if (r < 0)
                return r;
        struct target t = { .policy = p, .host = u->host, .port = p->port };
        struct http_client *h = http_client_new(u);
        struct http_request q = { .method = "GET",
                                  .path = u->path,
                                  .headers = headers,
                                  .connect_ms = FETCH_MS,
                                  .answer_ms = FETCH_MS,
                                  .fresh = true };
        http_client_set_dial(h, dial, &t);
        if (p->ca)
                http_client_set_ca(h, p->ca);
        r = hc_open(h, &q, &x, NULL, e);
        if (r == 0)
                r = read_answer(x, id, ret, ret_fresh_sec, e);
        hc_close(x);
        http_client_free(h);
        return r;
}

/* One after the other would be a way to scan: few at a time, and few from one address. */
static int allowed_now(struct auth *a, struct call *call, struct err *e)
{
        char address[80], key[96];

        limit_address(call, address);
        (void) snprintf(key, sizeof key, "m:%s", address);
        if (a->fetching >= FETCHING_MAX || limit_take(a->limits, str_of(key), BURST, EVERY_MS, clock_ms()))
                return err_set(e, -EAGAIN, "too many clients' documents are being fetched: try again in a moment");
        return 0;
}

int coroutine_fn client_fetch(struct auth *a, struct call *call, const char *id, struct client *ret, struct err *e)
{
        static const struct fetch_policy policy = { .allowed = address_public, .port = 443 };
        int64_t fresh = 0;
        int r = allowed_now(a, call, e);

        if (r < 0)
                return r;
        *ret = (struct client){ 0 };
        a->fetching++;
        r = metadata_fetch(id, &policy, ret, &fresh, e);
        a->fetching--;
        if (r == 0) {
                ret->created_at = ret->used_at = a->now();
                ret->fresh_until = ret->created_at + fresh * 1000;
                r = clients_put(a->db, ret, e);
        }
        if (r < 0) {
                client_done(ret);
                return r == -EAGAIN || r == -ECANCELED
                               ? r
                               : err_set(e, -ENOENT, "the client's own document cannot be used");
        }
        return 0;
}
