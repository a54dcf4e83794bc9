#include "auth/auth.h"

#include "auth/handlers.h"
#include "auth/password.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"

#include "pages_data.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNTERS 8192
#define HASHERS 2
#define JANITOR_MS (5 * 60000)
#define DAY_MS (24 * 3600 * (int64_t) 1000)
#define CLIENTS_KEPT 5000

static void janitor(void *arg)
{
        struct auth *a = arg;
        int64_t now = a->now();

        if (people_trim(a->db, now) < 0 || oauth_trim(a->db, now) < 0 ||
            clients_trim(a->db, now - DAY_MS, now - 180 * DAY_MS, CLIENTS_KEPT) < 0)
                log_warning("what is over could not be removed from the store");
}

static int load_texts(struct auth *a, struct err *e)
{
        static const char *const files[] = { "en.json", "ja.json", "zh-Hant.json" };

        for (size_t i = 0; i < ARRAY_LEN(files); i++)
                for (size_t j = 0; j < pages_count; j++)
                        if (cstr_eq(pages[j].name, files[i])) {
                                int r = json_parse((const char *) pages[j].data, pages[j].len, &a->texts[i], e);

                                if (r < 0)
                                        return r;
                        }
        return 0;
}

int auth_new(const struct auth_config *cfg, struct auth **ret, struct err *e)
{
        struct auth *a = xcalloc(1, sizeof *a);
        _cleanup_free_ char *nobody = random_token(16);

        a->db = cfg->db;
        a->control = cfg->control;
        a->allow_metadata = cfg->allow_metadata;
        a->now = cfg->now ? cfg->now : wall_ms;
        a->limits = ratelimit_new(COUNTERS);
        sem_init_n(&a->hashers, HASHERS);
        /* A key of its own: what signs downloads says nothing about forms or tokens. */
        hmac_sha256(cfg->secret, "auth 1", 6, a->key);
        int r = sodium_init() < 0 ? err_set(e, -EIO, "libsodium does not start") : load_texts(a, e);
        if (r == 0 && crypto_pwhash_str(a->dummy, nobody, strlen(nobody), crypto_pwhash_OPSLIMIT_INTERACTIVE,
                                        crypto_pwhash_MEMLIMIT_INTERACTIVE) != 0)
                r = err_set(e, -ENOMEM, "a password cannot be hashed: 64 MiB of memory are needed");
        if (r < 0) {
                auth_free(a);
                return r;
        }
        a->janitor = timer_start(JANITOR_MS, JANITOR_MS, janitor, a);
        *ret = a;
        return 0;
}

void auth_free(struct auth *a)
{
        if (!a)
                return;
        if (a->janitor)
                timer_stop(&a->janitor);
        for (size_t i = 0; i < ARRAY_LEN(a->texts); i++)
                json_unref(a->texts[i]);
        ratelimit_free(a->limits);
        sodium_memzero(a->key, sizeof a->key);
        free(a);
}

/* ---- the origin ---- */

static bool loopback(struct str host)
{
        return str_starts(host, STR("127.0.0.1")) || str_starts(host, STR("[::1]")) ||
               str_starts(host, STR("localhost"));
}

void auth_origin(const struct call *call, char ret[static ORIGIN_MAX])
{
        struct str host = call_host(call), proto = call_header(call, "X-Forwarded-Proto");
        /* Only a name that the operator gave can have a TLS proxy before it. A client that lies here fools itself
         * alone. */
        bool https = str_eq(proto, STR("https")) && !loopback(host);
        int n = snprintf(ret, ORIGIN_MAX, "%s://%.*s", https ? "https" : "http", (int) min_size(host.n, 260), host.p);

        for (int i = 0; i < n; i++)
                if (ret[i] >= 'A' && ret[i] <= 'Z')
                        ret[i] |= 32;
}

int auth_challenge(struct call *call, const char *error)
{
        char origin[ORIGIN_MAX];

        auth_origin(call, origin);
        _cleanup_free_ char *text = xasprintf(
                "Bearer resource_metadata=\"%s/.well-known/oauth-protected-resource/mcp\", scope=\"" AUTH_SCOPE
                "\"%s%s%s",
                origin, error ? ", error=\"" : "", error ? error : "", error ? "\"" : "");
        return call_add_header(call, "WWW-Authenticate", text);
}

/* ---- routes ---- */

enum { GET = 1, POST = 2, BELOW = 4 };
static const struct route {
        const char *path;
        unsigned methods;
        void coroutine_fn (*endpoint)(struct auth *a, struct call *call);
        void coroutine_fn (*page)(struct visit *v);
} routes[] = {
        { "/.well-known/oauth-protected-resource", GET, serve_resource_metadata, NULL },
        { "/.well-known/oauth-protected-resource/mcp", GET, serve_resource_metadata, NULL },
        { "/.well-known/oauth-authorization-server", GET, serve_server_metadata, NULL },
        { "/.well-known/oauth-authorization-server/mcp", GET, serve_server_metadata, NULL },
        { "/register", POST, serve_register, NULL },
        { "/token", POST, serve_token, NULL },
        { "/revoke", POST, serve_revoke, NULL },
        { "/authorize", GET | POST, NULL, page_authorize },
        { "/join/", GET | POST | BELOW, NULL, page_join },
        { "/sign-in", GET | POST, NULL, page_sign_in },
        { "/sign-out", GET | POST, NULL, page_sign_out },
        { "/", GET, NULL, page_home },
        { "/settings", GET, NULL, page_settings },
        { "/settings/secrets", GET | POST, NULL, page_secrets },
        { "/settings/", POST | BELOW, NULL, page_settings_action },
        { "/passkey/", POST | BELOW, NULL, passkey_action },
};

static bool matches(const struct route *r, struct str path)
{
        if (r->methods & BELOW)
                return str_starts(path, str_of(r->path)) && path.n > strlen(r->path);
        return str_eq(path, str_of(r->path));
}

bool coroutine_fn auth_handle(struct auth *a, struct call *call)
{
        struct str method = call_method(call), path = call_path(call);
        unsigned bit = str_eq(method, STR("GET")) || str_eq(method, STR("HEAD")) ? GET
                       : str_eq(method, STR("POST"))                             ? POST
                                                                                 : 0;

        if (bit == GET && str_starts(path, STR("/assets/"))) {
                serve_asset(call);
                return true;
        }
        for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
                const struct route *r = &routes[i];

                if (!matches(r, path))
                        continue;
                if (!(r->methods & bit)) {
                        (void) call_add_header(call, "Allow",
                                               (r->methods & GET) && (r->methods & POST) ? "GET, HEAD, POST"
                                               : r->methods & GET                        ? "GET, HEAD"
                                                                                         : "POST");
                        (void) call_reply_error(call, 405, "method_not_allowed", "this address does not take %.*s",
                                                (int) min_size(method.n, 20), method.p);
                } else if (r->endpoint) {
                        r->endpoint(a, call);
                } else {
                        struct visit *v = visit_new(a, call);

                        r->page(v);
                        visit_free(v);
                }
                return true;
        }
        return false;
}
