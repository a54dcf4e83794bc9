/* session: who is signed in in a browser. The cookie holds 256 random bits; the store holds their hash. */
#include "auth/visit.h"

#include "base/b64.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SESSION_COOKIE "session"
#define KNOWN_COOKIE "known"
#define TOUCH_MS 60000
#define DAY_SEC (24 * 3600)

/* ---- cookies ---- */

/*
 * The name a cookie has. Browsers give every port of a machine the same cookies, so the port is in the name: two
 * servers on one machine do not sign each other's people out. With TLS it is __Host- (RFC 6265bis §4.1.3.2), which
 * needs Secure; browsers do not keep that on plain http.
 */
static void cookie_name(const struct call *call, const char *name, char ret[64])
{
        char origin[ORIGIN_MAX];

        auth_origin(call, origin);
        const char *port = strrchr(origin, ':') + 1;
        bool digits = *port >= '0' && *port <= '9' && !strchr(port, ']');
        if (str_starts(str_of(origin), STR("https:")))
                (void) snprintf(ret, 64, "__Host-psbx_%s", name);
        else
                (void) snprintf(ret, 64, "psbx_%.5s_%s", digits ? port : "80", name);
}

bool cookie_get(const struct call *call, const char *name, char *ret, size_t n)
{
        struct str all = call_header(call, "Cookie");
        char full[64];

        cookie_name(call, name, full);
        while (all.n) {
                struct str value = str_trim(str_cut(&all, ';'), " \t");
                struct str key = str_cut(&value, '=');

                if (!str_eq(key, str_of(full)) || !value.n || value.n >= n)
                        continue;
                (void) snprintf(ret, n, "%.*s", (int) value.n, value.p);
                return true;
        }
        return false;
}

void cookie_set(struct visit *v, const char *name, const char *value, int64_t max_age_sec)
{
        char full[64];

        cookie_name(v->call, name, full);
        _cleanup_free_ char *text = xasprintf("%s=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Lax%s", full, value,
                                              (long long) max_age_sec, full[0] == '_' ? "; Secure" : "");

        (void) call_add_header(v->call, "Set-Cookie", text);
}

/* ---- the session ---- */

int session_find(struct auth *a, const struct call *call, struct person *ret, struct login *ret_login)
{
        unsigned char hash[HASH_LEN];
        char value[64];
        int64_t now = a->now();

        if (!cookie_get(call, SESSION_COOKIE, value, sizeof value))
                return -ENOENT;
        sha256_of(value, strlen(value), hash);
        int r = logins_find(a->db, hash, now, ret_login);
        if (r == 0)
                r = people_by_id(a->db, ret_login->person, ret);
        if (r == 0 && now - ret_login->used_at > TOUCH_MS)
                (void) logins_touch(a->db, ret_login->id, now, now + SESSION_MS);
        return r;
}

int session_start(struct visit *v, const struct person *p, struct err *e)
{
        _cleanup_free_ char *value = random_token(32);
        struct str agent = call_header(v->call, "User-Agent");
        struct login l = { .created_at = v->a->now() };
        unsigned char hash[HASH_LEN];

        if (v->signed_in)
                (void) logins_delete(v->a->db, v->person.id, v->login.id);
        random_id(l.id, 12);
        (void) snprintf(l.address, sizeof l.address, "%s", call_peer(v->call));
        (void) snprintf(l.agent, sizeof l.agent, "%.*s", (int) min_size(agent.n, sizeof l.agent - 1),
                        agent.p ? agent.p : "");
        (void) snprintf(l.person, sizeof l.person, "%s", p->id);
        l.used_at = l.created_at;
        l.expires_at = l.created_at + SESSION_MS;
        sha256_of(value, strlen(value), hash);
        int r = logins_insert(v->a->db, hash, &l, e);
        if (r < 0)
                return r;
        (void) people_seen(v->a->db, p->id, l.created_at);
        cookie_set(v, SESSION_COOKIE, value, SESSION_MS / 1000);
        browser_remember(v, p->login);
        v->signed_in = true;
        v->person = *p;
        v->login = l;
        return 0;
}

void session_renew_cookie(struct visit *v)
{
        char value[64];

        if (v->a->now() - v->login.used_at > TOUCH_MS && cookie_get(v->call, SESSION_COOKIE, value, sizeof value))
                cookie_set(v, SESSION_COOKIE, value, SESSION_MS / 1000);
}

void session_end(struct visit *v)
{
        if (v->signed_in)
                (void) logins_delete(v->a->db, v->person.id, v->login.id);
        v->signed_in = false;
        cookie_set(v, SESSION_COOKIE, "", 0);
}

/* ---- what is made from the server's secret ---- */

static void mac_of(const struct auth *a, const char *purpose, const char *x, const char *y, struct buf *out)
{
        _cleanup_free_ char *text = xasprintf("%s\n%s\n%s", purpose, x, y);
        unsigned char mac[HASH_LEN];

        hmac_sha256(a->key, text, strlen(text), mac);
        (void) b64url_encode(out, mac, sizeof mac);
}

char *session_csrf(struct auth *a, const struct login *l)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64);

        mac_of(a, "session", l->id, l->person, &b);
        return buf_steal(&b);
}

bool session_csrf_ok(struct auth *a, const struct login *l, struct str given)
{
        _cleanup_free_ char *want = session_csrf(a, l);

        return given.n == strlen(want) && mem_equal(given.p, want, given.n);
}

bool browser_known(struct visit *v, const char *login, char ret[48])
{
        _cleanup_buf_ struct buf want = BUF_MAX(64);
        char value[128];

        if (!cookie_get(v->call, KNOWN_COOKIE, value, sizeof value))
                return false;
        struct str mac = str_of(value), nonce = str_cut(&mac, '.');
        if (nonce.n >= 48)
                return false;
        (void) snprintf(ret, 48, "%.*s", (int) nonce.n, nonce.p);
        mac_of(v->a, "known", login, ret, &want);
        return mac.n == want.len && mem_equal(mac.p, want.p, mac.n);
}

void browser_remember(struct visit *v, const char *login)
{
        _cleanup_buf_ struct buf b = BUF_MAX(128);
        _cleanup_free_ char *nonce = random_token(16);

        (void) buf_addf(&b, "%s.", nonce);
        mac_of(v->a, "known", login, nonce, &b);
        cookie_set(v, KNOWN_COOKIE, buf_cstr(&b), 365 * (int64_t) DAY_SEC);
}
