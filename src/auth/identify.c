#include "auth/auth.h"
#include "auth/keys.h"
#include "auth/token.h"
#include "auth/visit.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_DEFAULT_SEC 25
#define WAIT_MAX_SEC 1800

static int64_t wait_header(const struct call *call)
{
        struct str v = call_header(call, "X-Psbx-Tool-Wait-Sec");
        uint64_t sec = WAIT_DEFAULT_SEC;

        if (v.p && parse_u64(v, UINT32_MAX, &sec) < 0)
                sec = WAIT_DEFAULT_SEC;
        return (int64_t) (sec > WAIT_MAX_SEC ? WAIT_MAX_SEC : sec) * 1000;
}

static int copy_headers(const struct call *call, struct identity *ret, struct err *e)
{
        struct str agent = call_header(call, "X-Psbx-Agent"), client = call_header(call, "X-Psbx-Client");

        if (agent.p && agent.n) {
                if (agent.n >= sizeof ret->agent)
                        return err_set(e, -EINVAL, "X-Psbx-Agent must be 1 to 64 letters, digits, _ or -");
                (void) snprintf(ret->agent, sizeof ret->agent, "%.*s", (int) agent.n, agent.p);
                if (!agent_id_ok(ret->agent))
                        return err_set(e, -EINVAL, "X-Psbx-Agent must be 1 to 64 letters, digits, _ or -");
        }
        /* A client's name is shown to people: cut it, and keep it printable. */
        if (client.p && utf8_valid(client)) {
                struct str cut = utf8_prefix(client, sizeof ret->client - 1);

                (void) snprintf(ret->client, sizeof ret->client, "%.*s", (int) cut.n, cut.p);
                for (char *p = ret->client; *p; p++)
                        if ((unsigned char) *p < 0x20 || *p == 0x7f)
                                *p = '?';
        }
        ret->wait_ms = wait_header(call);
        return 0;
}

static int by_key(struct auth *a, struct str v, struct identity *ret, struct err *e)
{
        _cleanup_free_ char *account = NULL, *key = NULL;
        unsigned char hash[HASH_LEN];

        sha256_of(v.p, v.n, hash);
        int r = keys_find(a->db, hash, &account, &key);
        if (r == -ENOENT)
                return err_set(e, -EACCES,
                               "the key is not valid or was revoked: parallelsandbox keys list shows which there are");
        if (r < 0)
                return err_set(e, r, "the key cannot be checked");
        (void) snprintf(ret->account, sizeof ret->account, "%s", account);
        (void) snprintf(ret->key_id, sizeof ret->key_id, "%s", key);
        return 0;
}

static int by_token(struct auth *a, const struct call *call, struct str v, struct identity *ret, struct err *e)
{
        _cleanup_free_ struct grant *g = xcalloc(1, sizeof *g);
        int r = access_token_check(a, call, v, g, e);

        if (r < 0)
                return r;
        (void) snprintf(ret->account, sizeof ret->account, "%s", g->account);
        (void) snprintf(ret->person, sizeof ret->person, "%s", g->person);
        (void) snprintf(ret->grant_id, sizeof ret->grant_id, "%s", g->id);
        return 0;
}

/* A browser's session. Whatever changes something must show that it comes from a page of ours. */
static int by_session(struct auth *a, const struct call *call, struct identity *ret, struct err *e)
{
        struct person p;
        struct login l;
        int r = session_find(a, call, &p, &l);

        if (r < 0)
                return err_set(e, -EACCES,
                               "sign in first, or give an API key or an access token: Authorization: Bearer …");
        bool reads = str_eq(call_method(call), STR("GET")) || str_eq(call_method(call), STR("HEAD"));
        if (!reads && (!session_csrf_ok(a, &l, call_header(call, "X-Psbx-Csrf")) || !same_origin(call)))
                return err_set(e, -EACCES, "X-Psbx-Csrf is missing or is not this session's: GET /v1/session has it");
        (void) snprintf(ret->account, sizeof ret->account, "%s", p.account);
        (void) snprintf(ret->person, sizeof ret->person, "%s", p.id);
        return 0;
}

int identify(struct auth *a, const struct call *call, struct identity *ret, bool *ret_presented, struct err *e)
{
        struct str v = call_header(call, "Authorization");
        int r;

        *ret = (struct identity){ 0 };
        *ret_presented = v.p != NULL;
        if (!v.p && str_starts(call_path(call), STR("/v1/"))) {
                r = by_session(a, call, ret, e);
        } else if (!v.p || v.n < 7 || !str_ieq(str_n(v.p, 7), STR("Bearer "))) {
                return err_set(e, -EACCES,
                               "an API key or an access token is required: Authorization: Bearer psbx_… "
                               "(parallelsandbox keys add makes one)");
        } else {
                v = str_trim(str_n(v.p + 7, v.n - 7), " ");
                if (v.n <= 128 && str_starts(v, STR(KEY_PREFIX)))
                        r = by_key(a, v, ret, e);
                else if (v.n <= 128 && str_starts(v, STR(ACCESS_PREFIX)))
                        r = by_token(a, call, v, ret, e);
                else
                        r = err_set(e, -EACCES,
                                    "the key is not valid: parallelsandbox keys list shows which there are");
        }
        return r < 0 ? r : copy_headers(call, ret, e);
}
