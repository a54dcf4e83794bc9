#include "adapter/discover.h"
#include "adapter/fetch.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

#define ADDRESS_MAX 8192
#define PROTOCOL "2025-11-25"

void as_meta_done(struct as_meta *m)
{
        free(m->resource);
        free(m->issuer);
        free(m->authorize);
        free(m->token);
        free(m->registration);
        free(m->scopes);
        json_unref(m->token_methods);
        *m = (struct as_meta){ 0 };
}

/* The path without its query and without slashes at its end. */
static struct str plain_path(const struct url *u)
{
        struct str rest = str_of(u->path), path = str_cut(&rest, '?');

        while (path.n && path.p[path.n - 1] == '/')
                path.n--;
        return path;
}

bool discover_covers(const char *resource, const struct url *endpoint)
{
        struct url r;
        struct str above, below = plain_path(endpoint);

        if (url_parse(resource, &r, NULL) < 0 || !url_same_origin(&r, endpoint))
                return false;
        above = plain_path(&r);
        return str_starts(below, above) && (below.n == above.n || below.p[above.n] == '/');
}

bool discover_as_address(const char *issuer, unsigned i, struct buf *out)
{
        static const char oauth[] = "/.well-known/oauth-authorization-server",
                          openid[] = "/.well-known/openid-configuration";
        struct str path;
        struct url u;
        int r;

        buf_clear(out);
        if (url_parse(issuer, &u, NULL) < 0 || url_add_origin(out, &u) < 0)
                return false;
        path = plain_path(&u);
        if (i >= (path.n ? 3 : 2))
                return false;
        if (i == 2) { /* OpenID's own place is behind the path */
                r = buf_addstr(out, path);
                return r == 0 && buf_adds(out, openid) == 0;
        }
        r = buf_adds(out, i == 0 ? oauth : openid);
        return r == 0 && buf_addstr(out, path) == 0;
}

/* 1 with the document, 0 when there is none at this address, or -errno. */
static int coroutine_fn get_json(const char *url, const struct url *named, struct json **ret, struct err *e)
{
        static const char *const headers[] = { "MCP-Protocol-Version", PROTOCOL, NULL };
        const struct fetch_spec spec = { .method = "GET", .url = url, .headers = headers, .follow = true };
        struct fetched got;
        int r;

        if (!fetch_is_safe(url, named))
                return err_set(e, -EACCES, "%.200s is neither https nor on this machine", url);
        r = fetch(&spec, &got, e);
        if (r == 0 && got.status >= 500)
                r = err_set(e, -EIO, "%.200s answered HTTP %u", url, got.status);
        else if (r == 0 && got.status == 200)
                r = json_parse(got.body.p ? got.body.p : "", got.body.len, ret, NULL) == 0 &&
                    json_type(*ret) == JSON_OBJECT;
        buf_done(&got.body);
        return r;
}

static char *words(const struct json *list)
{
        _cleanup_buf_ struct buf out = BUF_MAX(ADDRESS_MAX);

        for (size_t i = 0; i < json_len(list); i++) {
                const char *s = json_str(json_at(list, i));

                if (!s || !*s || strchr(s, ' '))
                        continue;
                if (out.len)
                        (void) buf_addc(&out, ' ');
                (void) buf_adds(&out, s);
        }
        return out.len ? xstrdup(buf_cstr(&out)) : NULL;
}

static bool lists(const struct json *list, const char *word)
{
        for (size_t i = 0; i < json_len(list); i++)
                if (cstr_eq(json_str(json_at(list, i)), word))
                        return true;
        return false;
}

static int take_resource(const struct json *j, const struct url *u, struct as_meta *m, struct err *e)
{
        const char *resource = json_get_str(j, "resource", NULL);
        const char *issuer = json_str(json_at(json_get(j, "authorization_servers"), 0));

        if (resource && !discover_covers(resource, u))
                return err_set(e, -EACCES, "the server's metadata is about another resource, %.200s", resource);
        if (resource) {
                free(m->resource);
                m->resource = xstrdup(resource);
        }
        if (issuer) {
                free(m->issuer);
                m->issuer = xstrdup(issuer);
                m->has_issuer = true;
        }
        m->scopes = words(json_get(j, "scopes_supported"));
        return 1;
}

/* 1 found, 0 none, -errno. */
static int coroutine_fn find_resource(const struct url *u, const char *hint, struct as_meta *m, struct err *e)
{
        static const char well_known[] = "/.well-known/oauth-protected-resource";
        _cleanup_json_ struct json *j = NULL;
        _cleanup_buf_ struct buf address = BUF_MAX(ADDRESS_MAX);
        int r = 0;

        if (hint)
                r = get_json(hint, u, &j, e);
        for (int i = hint ? 2 : 0; r == 0 && i < 2; i++) {
                buf_clear(&address);
                if (url_add_origin(&address, u) < 0 || buf_adds(&address, well_known) < 0 ||
                    (i == 0 && buf_addstr(&address, plain_path(u)) < 0))
                        return err_set(e, -ENOBUFS, "the endpoint's address is too long");
                json_unrefp(&j);
                r = get_json(buf_cstr(&address), u, &j, e);
        }
        if (r == 0 && hint)
                return err_set(e, -ENOENT, "%.200s has no metadata", hint);
        return r > 0 ? take_resource(j, u, m, e) : r;
}

static int take_server(const struct json *j, const struct url *named, struct as_meta *m, struct err *e)
{
        const char *issuer = json_get_str(j, "issuer", NULL), *authorize, *token;
        const struct json *methods = json_get(j, "code_challenge_methods_supported");

        /* RFC 8414 §3.3: otherwise one server could send us to another with what is meant for itself. */
        if (!issuer || strcmp(issuer, m->issuer) != 0)
                return err_set(e, -EACCES, "its metadata is that of another issuer, %.200s",
                               issuer ? issuer : "(none)");
        authorize = json_get_str(j, "authorization_endpoint", NULL);
        token = json_get_str(j, "token_endpoint", NULL);
        if (!authorize || !token)
                return err_set(e, -EPROTO, "its metadata lacks authorization_endpoint or token_endpoint");
        if (!lists(methods, "S256"))
                return err_set(e, -EACCES, "it does not offer PKCE with S256");
        m->authorize = xstrdup(authorize);
        m->token = xstrdup(token);
        m->registration = xstrdup(json_get_str(j, "registration_endpoint", NULL));
        m->iss_required = json_get_bool(j, "authorization_response_iss_parameter_supported", false);
        m->metadata_ids = json_get_bool(j, "client_id_metadata_document_supported", false);
        m->offline_access = lists(json_get(j, "scopes_supported"), "offline_access");
        m->token_methods = json_ref(json_get(j, "token_endpoint_auth_methods_supported"));
        if (!fetch_is_safe(m->authorize, named) || !fetch_is_safe(m->token, named) ||
            (m->registration && !fetch_is_safe(m->registration, named)))
                return err_set(e, -EACCES, "one of its addresses is neither https nor on this machine");
        return 0;
}

static int coroutine_fn find_server(const struct url *named, struct as_meta *m, struct err *e)
{
        _cleanup_buf_ struct buf address = BUF_MAX(ADDRESS_MAX);

        for (unsigned i = 0; discover_as_address(m->issuer, i, &address); i++) {
                _cleanup_json_ struct json *j = NULL;
                int r = get_json(buf_cstr(&address), named, &j, e);

                if (r > 0)
                        r = take_server(j, named, m, e) < 0 ? -EACCES : 1;
                if (r != 0)
                        return r;
        }
        return 0;
}

static char *below(const char *issuer, const char *path)
{
        return xasprintf("%s%s", issuer, path);
}

int coroutine_fn discover(const char *endpoint, const struct url *u, const char *hint, struct as_meta *m, struct err *e)
{
        _cleanup_buf_ struct buf origin = BUF_MAX(ADDRESS_MAX);
        int r;

        *m = (struct as_meta){ .resource = xstrdup(endpoint) };
        r = find_resource(u, hint, m, e);
        if (r < 0)
                return r;
        if (!m->issuer) {
                if (url_add_origin(&origin, u) < 0)
                        return err_set(e, -ENOBUFS, "the endpoint's address is too long");
                m->issuer = xstrdup(buf_cstr(&origin));
        }
        r = find_server(u, m, e);
        if (r < 0)
                return err_wrap(e, "the authorization server %.200s", m->issuer);
        if (r > 0)
                return 0;
        if (m->has_issuer)
                return err_set(e, -ENOENT, "the authorization server %.200s has no metadata", m->issuer);
        m->authorize = below(m->issuer, "/authorize"); /* 2025-03-26, "Fallbacks" */
        m->token = below(m->issuer, "/token");
        m->registration = below(m->issuer, "/register");
        return 0;
}
