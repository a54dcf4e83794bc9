#include "auth/redirect.h"

#include "base/mem.h"

#include <strings.h>

struct parts {
        struct str scheme, authority, host, port, rest; /* rest: path and query */
        bool has_authority, has_port;
};

static bool scheme_char(char c)
{
        return c_is_alnum(c) || c == '+' || c == '-' || c == '.';
}

/* RFC 3986: everything else must be percent-encoded. Brackets are looked at in the host only. */
static bool uri_char(char c)
{
        return c_is_alnum(c) || (c && strchr("-._~:/?@!$&'()*+,;=%[]", c));
}

static bool split(struct str uri, struct parts *p)
{
        size_t n = 0;

        *p = (struct parts){ 0 };
        if (!uri.n || uri.n > REDIRECT_MAX)
                return false;
        for (size_t i = 0; i < uri.n; i++)
                if (!uri_char(uri.p[i])) /* '#' too: a fragment is refused (OAuth 2.1 §2.3) */
                        return false;
        while (n < uri.n && scheme_char(uri.p[n]))
                n++;
        if (n == 0 || n == uri.n || uri.p[n] != ':' || !((uri.p[0] | 32) >= 'a' && (uri.p[0] | 32) <= 'z'))
                return false;
        p->scheme = str_n(uri.p, n);
        p->rest = str_n(uri.p + n + 1, uri.n - n - 1);
        if (!str_starts(p->rest, STR("//")))
                return true;
        p->has_authority = true;
        struct str a = str_n(p->rest.p + 2, p->rest.n - 2);
        size_t end = 0;
        while (end < a.n && a.p[end] != '/' && a.p[end] != '?')
                end++;
        p->authority = str_n(a.p, end);
        p->rest = str_n(a.p + end, a.n - end);
        return true;
}

static bool host_name(struct str h)
{
        for (size_t i = 0; i < h.n; i++)
                if (!c_is_alnum(h.p[i]) && h.p[i] != '.' && h.p[i] != '-')
                        return false;
        return h.n > 0 && h.n <= 253 && h.p[0] != '.' && h.p[0] != '-';
}

static bool split_host(struct parts *p)
{
        struct str a = p->authority;
        size_t n = 0;

        if (a.n && a.p[0] == '[') {
                while (n < a.n && a.p[n] != ']')
                        n++;
                if (n == a.n)
                        return false;
                n++;
                for (size_t i = 1; i + 1 < n; i++)
                        if (!c_is_alnum(a.p[i]) && a.p[i] != ':' && a.p[i] != '.')
                                return false;
        } else {
                while (n < a.n && a.p[n] != ':')
                        n++;
                if (!host_name(str_n(a.p, n)))
                        return false;
        }
        p->host = str_n(a.p, n);
        if (n == a.n)
                return true;
        uint64_t port;
        p->has_port = true;
        p->port = str_n(a.p + n + 1, a.n - n - 1);
        return a.p[n] == ':' && parse_u64(p->port, 65535, &port) == 0 && port > 0;
}

static bool loopback_host(struct str h)
{
        return str_eq(h, STR("127.0.0.1")) || str_eq(h, STR("[::1]")) || str_ieq(h, STR("localhost"));
}

/* Schemes that a browser or a system acts on by itself: never an application's own. */
static bool scheme_refused(struct str s)
{
        static const char *const names[] = { "javascript",
                                             "data",
                                             "vbscript",
                                             "blob",
                                             "file",
                                             "filesystem",
                                             "about",
                                             "view-source",
                                             "ftp",
                                             "ftps",
                                             "sftp",
                                             "ssh",
                                             "telnet",
                                             "ws",
                                             "wss",
                                             "http",
                                             "https",
                                             "mailto",
                                             "tel",
                                             "sms",
                                             "intent",
                                             "chrome",
                                             "chrome-extension",
                                             "moz-extension",
                                             "edge",
                                             "resource",
                                             "jar",
                                             "ms-settings",
                                             "search-ms",
                                             "ms-msdt",
                                             "shell",
                                             "ldap",
                                             "smb",
                                             "nfs",
                                             "gopher",
                                             "news",
                                             "irc",
                                             "magnet",
                                             "urn",
                                             "x-apple-systempreferences" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (str_ieq(s, str_of(names[i])))
                        return true;
        return false;
}

/* RFC 8252 §7.1: reverse-domain schemes ("com.example.app:/cb"), and "name://…" as editors use it. */
static enum redirect_kind check_app(const struct parts *p, struct str *ret_host)
{
        if (scheme_refused(p->scheme) || p->scheme.n < 2)
                return REDIRECT_BAD;
        if (!p->has_authority && (!memchr(p->scheme.p, '.', p->scheme.n) || !str_starts(p->rest, STR("/"))))
                return REDIRECT_BAD;
        if (p->has_authority && (!p->authority.n || memchr(p->authority.p, '@', p->authority.n)))
                return REDIRECT_BAD;
        if (ret_host)
                *ret_host = str_n(p->scheme.p, p->scheme.n + 1);
        return REDIRECT_APP;
}

enum redirect_kind redirect_check(struct str uri, struct str *ret_host)
{
        struct parts p;

        if (!split(uri, &p))
                return REDIRECT_BAD;
        bool http = str_ieq(p.scheme, STR("http")), https = str_ieq(p.scheme, STR("https"));
        if (!http && !https)
                return check_app(&p, ret_host);
        if (!p.has_authority || !split_host(&p))
                return REDIRECT_BAD;
        if (ret_host)
                *ret_host = p.authority;
        if (https)
                return loopback_host(p.host) ? REDIRECT_LOOPBACK : REDIRECT_HTTPS;
        return loopback_host(p.host) ? REDIRECT_LOOPBACK : REDIRECT_BAD;
}

bool redirect_matches(struct str registered, struct str asked)
{
        struct parts a, b;

        if (redirect_check(registered, NULL) == REDIRECT_BAD || redirect_check(asked, NULL) == REDIRECT_BAD)
                return false;
        if (str_eq(registered, asked))
                return true;
        if (redirect_check(registered, NULL) != REDIRECT_LOOPBACK || redirect_check(asked, NULL) != REDIRECT_LOOPBACK)
                return false;
        if (!split(registered, &a) || !split(asked, &b))
                return false;
        return str_eq(a.scheme, b.scheme) && str_eq(a.rest, b.rest);
}
