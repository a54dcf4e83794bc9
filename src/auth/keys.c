#include "auth/keys.h"

#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_PREFIX "psbx_"
#define WAIT_DEFAULT_SEC 25
#define WAIT_MAX_SEC 1800

int key_add(struct db *db, const char *account, const char *name, char **ret_key, char **ret_id, struct err *e)
{
        _cleanup_free_ char *secret = random_token(32);
        _cleanup_free_ char *key = xasprintf(KEY_PREFIX "%s", secret);
        unsigned char hash[HASH_LEN];
        char id[13], hint[16];

        if (!name[0] || strlen(name) > 60 || !utf8_valid(str_of(name)))
                return err_set(e, -EINVAL, "a key's name is 1 to 60 bytes of UTF-8");
        sha256_of(key, strlen(key), hash);
        random_id(id, sizeof id - 1);
        (void) snprintf(hint, sizeof hint, "%.9s…", key);
        int r = keys_insert(db, id, account, name, hash, hint, e);
        if (r < 0)
                return r;
        *ret_key = steal_ptr(key);
        *ret_id = xstrdup(id);
        return 0;
}

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

int identify(struct db *db, const struct call *call, struct identity *ret, bool *ret_presented, struct err *e)
{
        struct str v = call_header(call, "Authorization");
        _cleanup_free_ char *account = NULL, *key = NULL;
        unsigned char hash[HASH_LEN];

        *ret = (struct identity){ 0 };
        *ret_presented = v.p != NULL;
        if (!v.p || v.n < 7 || !str_ieq(str_n(v.p, 7), STR("Bearer ")))
                return err_set(e, -EACCES, "an API key is required: Authorization: Bearer psbx_… (parallelsandbox keys add makes one)");
        v = str_trim(str_n(v.p + 7, v.n - 7), " ");
        if (!str_starts(v, STR(KEY_PREFIX)) || v.n > 128)
                return err_set(e, -EACCES, "the key is not valid: parallelsandbox keys list shows which there are");
        sha256_of(v.p, v.n, hash);
        int r = keys_find(db, hash, &account, &key);
        if (r == -ENOENT)
                return err_set(e, -EACCES, "the key is not valid or was revoked: parallelsandbox keys list shows which there are");
        if (r < 0)
                return err_set(e, r, "the key cannot be checked");
        (void) snprintf(ret->account, sizeof ret->account, "%s", account);
        (void) snprintf(ret->key_id, sizeof ret->key_id, "%s", key);
        return copy_headers(call, ret, e);
}
