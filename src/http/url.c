#include "http/url.h"

#include "http/h1_chars.h"

#include <errno.h>
#include <strings.h>

int url_decode(struct str s, bool form, struct buf *out)
{
        size_t before = out->len;
        int r = 0;

        for (size_t i = 0; r == 0 && i < s.n; i++) {
                char c = s.p[i];

                if (c == '%') {
                        int high = s.n - i > 2 ? h1_hex(s.p[i + 1]) : -1, low = s.n - i > 2 ? h1_hex(s.p[i + 2]) : -1;

                        c = high < 0 || low < 0 ? '\0' : (char) (high * 16 + low);
                        i += 2;
                } else if (c == '+' && form) {
                        c = ' ';
                }
                r = c ? buf_addc(out, c) : -EINVAL;
        }
        if (r < 0)
                out->len = before;
        return r;
}

int url_encode(struct buf *out, struct str s)
{
        static const char hex[] = "0123456789ABCDEF";
        size_t before = out->len;
        int r = 0;

        for (size_t i = 0; r == 0 && i < s.n; i++) {
                unsigned char c = (unsigned char) s.p[i];
                bool unreserved =
                        c_is_alnum((char) c) || c == '-' || c == '.' || c == '_' || c == '~'; /* RFC 3986 §2.3 */
                char escaped[3] = { '%', hex[c >> 4], hex[c & 15] };

                r = unreserved ? buf_addc(out, (char) c) : buf_add(out, escaped, 3);
        }
        if (r < 0)
                out->len = before;
        return r;
}

/* No "..", no empty segment but a last one: what a path means must not depend on who normalises it. */
static bool path_clean(struct str p)
{
        if (!p.n || p.p[0] != '/')
                return false;
        p = str_n(p.p + 1, p.n - 1);
        while (p.n) {
                bool more = memchr(p.p, '/', p.n) != NULL;
                struct str segment = str_cut(&p, '/');

                if (str_eq(segment, STR("..")) || (more && !segment.n))
                        return false;
        }
        return true;
}

int url_split_target(struct str target, struct buf *path, struct str *query)
{
        size_t before = path->len;
        struct str rest = target;
        struct str raw = str_cut(&rest, '?');
        int r = url_decode(raw, false, path);

        if (r < 0)
                return r;
        if (!path_clean(str_n(path->p + before, path->len - before))) {
                path->len = before;
                return -EINVAL;
        }
        *query = rest;
        return 0;
}

int url_query(struct str query, const char *key, struct buf *out)
{
        _cleanup_buf_ struct buf name = BUF_MAX(query.n + 1);

        while (query.n) {
                struct str value = str_cut(&query, '&');
                struct str raw = str_cut(&value, '=');

                buf_clear(&name);
                int r = url_decode(raw, true, &name);
                if (r < 0)
                        return r;
                if (!str_eq(buf_str(&name), str_of(key)))
                        continue;
                r = url_decode(value, true, out);
                return r < 0 ? r : 1;
        }
        return 0;
}

/* host, [v6] or host:port into ret. */
static int parse_authority(struct str a, struct url *ret, struct err *e)
{
        struct str host, port = { 0 };
        bool has_port = false;

        if (a.n && a.p[0] == '[') {
                struct str rest = str_n(a.p + 1, a.n - 1);

                host = str_cut(&rest, ']');
                if (host.n + 1 == a.n || (rest.n && rest.p[0] != ':'))
                        return err_set(e, -EINVAL, "the URL has a malformed address");
                for (size_t i = 0; i < host.n; i++)
                        if (h1_hex(host.p[i]) < 0 && host.p[i] != ':' && host.p[i] != '.')
                                return err_set(e, -EINVAL, "the URL has a malformed address");
                has_port = rest.n > 0;
                port = has_port ? str_n(rest.p + 1, rest.n - 1) : port;
        } else {
                port = a;
                host = str_cut(&port, ':');
                has_port = host.n < a.n;
                for (size_t i = 0; i < host.n; i++)
                        if (!h1_is_host(host.p[i]))
                                return err_set(e, -EINVAL, "the URL has a forbidden character in its host");
        }
        if (!host.n || host.n >= sizeof ret->host)
                return err_set(e, -EINVAL, "the URL has no usable host");
        uint64_t number = ret->https ? 443 : 80;
        if (has_port && (parse_u64(port, 65535, &number) < 0 || number == 0))
                return err_set(e, -EINVAL, "the URL has a malformed port");
        ret->port = (unsigned) number;
        memcpy(ret->host, host.p, host.n);
        ret->host[host.n] = '\0';
        return 0;
}

int url_parse(const char *s, struct url *ret, struct err *e)
{
        struct url u = { 0 };
        size_t skip = 7;

        if (strncasecmp(s, "https://", 8) == 0) {
                u.https = true;
                skip = 8;
        } else if (strncasecmp(s, "http://", 7) != 0) {
                return err_set(e, -EINVAL, "only http:// and https:// URLs are possible");
        }
        s += skip;
        size_t n = strcspn(s, "/?#");
        if (memchr(s, '@', n))
                return err_set(e, -EINVAL, "a URL with a user name is not accepted");
        int r = parse_authority(str_n(s, n), &u, e);
        if (r < 0)
                return r;
        struct str path = str_of(s + n);
        size_t slash = path.n && path.p[0] == '/' ? 0 : 1;
        if (path.n + slash >= sizeof u.path)
                return err_set(e, -EINVAL, "the URL is too long");
        for (size_t i = 0; i < path.n; i++)
                if (!h1_is_target(path.p[i]))
                        return err_set(e, -EINVAL,
                                       path.p[i] == '#' ? "a URL with a fragment is not accepted"
                                                        : "the URL has a forbidden character");
        u.path[0] = '/';
        memcpy(u.path + slash, path.p, path.n);
        u.path[path.n + slash] = '\0';
        *ret = u;
        return 0;
}
