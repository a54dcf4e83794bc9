/* How the proxy rewrites heads. Bytes in, bytes out: what comes was parsed by h1, so names and values are clean. */
#include "http/proxy_head.h"

#include <errno.h>

#define VALUE_MAX 9000 /* a header line that was read is no longer than H1_LINE_MAX; mapping adds an origin */

enum kind {
        PASS,
        DROP, /* hop by hop, about us, or written anew */
        ORIGIN,
        REFERER,
        COOKIE,
        FORWARDED_FOR,
        LOCATION,
        ALLOW_ORIGIN,
        SET_COOKIE,
};

struct known {
        struct str name;
        enum kind kind;
};
#define K(text, what)                            \
        {                                        \
                { text, sizeof(text) - 1 }, what \
        }

/* In both directions: hop by hop (RFC 9110 §7.6.1), and lengths, which the codec writes anew. */
static const struct known either_known[] = {
        K("connection", DROP),
        K("keep-alive", DROP),
        K("proxy-connection", DROP),
        K("te", DROP),
        K("trailer", DROP),
        K("transfer-encoding", DROP),
        K("content-length", DROP),
        K("upgrade", DROP),
        K("proxy-authorization", DROP),
        K("proxy-authenticate", DROP),
};

static const struct known request_known[] = {
        K("host", DROP),
        K("http2-settings", DROP),
        K("expect", DROP),
        K("forwarded", DROP),
        K("x-forwarded-host", DROP),
        K("x-forwarded-proto", DROP),
        K("x-forwarded-port", DROP),
        K("x-forwarded-server", DROP),
        K("x-forwarded-prefix", DROP),
        K("x-forwarded-scheme", DROP),
        K("x-forwarded-ssl", DROP),
        K("x-original-host", DROP),
        K("x-original-url", DROP),
        K("x-rewrite-url", DROP),
        K("x-forwarded-for", FORWARDED_FOR),
        K("x-real-ip", DROP),
        K("x-psbx-scene", DROP),
        K("origin", ORIGIN),
        K("referer", REFERER),
        K("cookie", COOKIE),
};

static const struct known response_known[] = {
        K("strict-transport-security", DROP), /* would reach beyond the service: to other ports and to subdomains */
        K("public-key-pins", DROP),
        K("alt-svc", DROP),         /* another port of our host is not the service's to give */
        K("clear-site-data", DROP), /* clears for the whole registrable domain */
        K("location", LOCATION),
        K("content-location", LOCATION),
        K("access-control-allow-origin", ALLOW_ORIGIN),
        K("set-cookie", SET_COOKIE),
};

static enum kind look_up(const struct known *table, size_t n, struct str name)
{
        for (size_t i = 0; i < n; i++)
                if (table[i].name.n == name.n && str_ieq(table[i].name, name))
                        return table[i].kind;
        return PASS;
}

static enum kind kind_of(const struct known *table, size_t n, struct str name)
{
        enum kind kind = look_up(either_known, ARRAY_LEN(either_known), name);

        return kind == PASS ? look_up(table, n, name) : kind;
}

/* Whether Connection names this header as one for this hop alone. */
static bool nominated(const struct h1_head *h, struct str name)
{
        for (size_t i = 0; i < h->header_count; i++) {
                struct str list = h->headers[i].value;

                if (!str_ieq(h->headers[i].name, STR("connection")))
                        continue;
                while (list.n)
                        if (str_ieq(str_trim(str_cut(&list, ','), " \t"), name))
                                return true;
        }
        return false;
}

/* Most Connection headers name nothing that is passed: then nobody needs to look for each. */
static bool nominates(const struct h1_head *h)
{
        for (size_t i = 0; i < h->header_count; i++) {
                struct str list = h->headers[i].value;

                if (!str_ieq(h->headers[i].name, STR("connection")))
                        continue;
                while (list.n) {
                        struct str item = str_trim(str_cut(&list, ','), " \t");

                        if (!str_ieq(item, STR("keep-alive")) && !str_ieq(item, STR("close")) &&
                            !str_ieq(item, STR("upgrade")))
                                return true;
                }
        }
        return false;
}

static int add_line(struct buf *b, struct str name, struct str value)
{
        char *p = buf_room(b, name.n + value.n + 4);

        if (!p)
                return -ENOBUFS;
        memcpy(p, name.p, name.n);
        memcpy(p + name.n, ": ", 2);
        if (value.n)
                memcpy(p + name.n + 2, value.p, value.n);
        memcpy(p + name.n + 2 + value.n, "\r\n", 2);
        buf_grew(b, name.n + value.n + 4);
        return 0;
}

/* "scheme://authority" at the start of a URL; the rest is what follows. False when there is none. */
static bool split_origin(struct str url, struct str *origin, struct str *rest)
{
        size_t skip = url.n >= 7 && str_ieq(str_n(url.p, 7), STR("http://"))    ? 7
                      : url.n >= 8 && str_ieq(str_n(url.p, 8), STR("https://")) ? 8
                                                                                : 0;
        size_t n = skip;

        if (!skip)
                return false;
        while (n < url.n && url.p[n] != '/' && url.p[n] != '?' && url.p[n] != '#')
                n++;
        *origin = str_n(url.p, n);
        *rest = str_n(url.p + n, url.n - n);
        return n > skip;
}

/* Adds a path that the service gave as the client knows it. */
static int add_without_base(struct buf *out, struct str path, const char *base)
{
        struct str prefix = str_of(base);
        char next = path.n > prefix.n ? path.p[prefix.n] : '\0';

        if (!prefix.n || !str_starts(path, prefix) || (next && next != '/' && next != '?' && next != '#'))
                return buf_addstr(out, path);
        if (next != '/' && buf_addc(out, '/') < 0)
                return -ENOBUFS;
        return buf_addstr(out, str_n(path.p + prefix.n, path.n - prefix.n));
}

/* base: taken away from the path behind an origin that was replaced; NULL: it stays. */
static int add_mapped(struct buf *b, const struct h1_header *x, int (*map)(void *arg, struct str origin, struct buf *),
                      void *arg, const char *base, struct str otherwise)
{
        _cleanup_buf_ struct buf out = BUF_MAX(VALUE_MAX);
        struct str origin, rest;
        int r;

        if (!map || !split_origin(x->value, &origin, &rest))
                return add_line(b, x->name, x->value);
        r = map(arg, origin, &out);
        if (r == 0)
                return add_line(b, x->name, x->value);
        if (r < 0)
                return otherwise.n ? add_line(b, x->name, otherwise) : 0;
        r = add_without_base(&out, rest, base);
        return r < 0 ? r : add_line(b, x->name, buf_str(&out));
}

/* RFC 9110 §10.2.2 allows a reference without a scheme; "//host/…" takes ours. */
static int add_location(struct buf *b, const struct h1_header *x, const struct proxy_policy *p)
{
        _cleanup_buf_ struct buf whole = BUF_MAX(VALUE_MAX);
        struct h1_header y = *x;

        if (str_starts(x->value, STR("/")) && !str_starts(x->value, STR("//"))) {
                int r = add_without_base(&whole, x->value, p->base);

                return r < 0 ? r : add_line(b, x->name, buf_str(&whole));
        }
        if (!str_starts(x->value, STR("//")))
                return add_mapped(b, x, p->outward, p->arg, p->base, STR(""));
        if (buf_adds(&whole, "http:") < 0 || buf_addstr(&whole, x->value) < 0)
                return -ENOBUFS;
        y.value = buf_str(&whole);
        return add_mapped(b, &y, p->outward, p->arg, p->base, STR(""));
}

static bool is_private(const struct proxy_policy *p, struct str name)
{
        for (size_t i = 0; p->private_cookies && p->private_cookies[i]; i++)
                if (str_starts(name, str_of(p->private_cookies[i])))
                        return true;
        return false;
}

/* RFC 6265 §4.2.1 */
static int add_cookie(struct buf *b, const struct h1_header *x, const struct proxy_policy *p)
{
        _cleanup_buf_ struct buf out = BUF_MAX(VALUE_MAX);
        struct str all = x->value, prefix = str_of(p->cookie_prefix);

        while (all.n) {
                struct str pair = str_trim(str_cut(&all, ';'), " \t");

                if (!pair.n || is_private(p, pair))
                        continue;
                if (prefix.n) {
                        if (!str_starts(pair, prefix))
                                continue;
                        pair = str_n(pair.p + prefix.n, pair.n - prefix.n);
                }
                if ((out.len && buf_adds(&out, "; ") < 0) || buf_addstr(&out, pair) < 0)
                        return -ENOBUFS;
        }
        return out.len ? add_line(b, x->name, buf_str(&out)) : 0;
}

/* RFC 6265 §4.1.1. Without Domain a cookie belongs to the one host that set it. */
static int add_set_cookie(struct buf *b, const struct h1_header *x, const struct proxy_policy *p)
{
        _cleanup_buf_ struct buf out = BUF_MAX(VALUE_MAX);
        struct str all = x->value;
        struct str pair = str_trim(str_cut(&all, ';'), " \t");

        if (is_private(p, pair) || (p->cookie_prefix && buf_adds(&out, p->cookie_prefix) < 0))
                return 0;
        int r = buf_addstr(&out, pair);
        while (r == 0 && all.n) {
                struct str item = str_trim(str_cut(&all, ';'), " \t"), rest = item;

                struct str name = str_trim(str_cut(&rest, '='), " \t");
                if (!item.n || str_ieq(name, STR("domain")) || (p->cookie_prefix && str_ieq(name, STR("httponly"))))
                        continue;
                r = buf_adds(&out, "; ");
                if (r == 0)
                        r = buf_addstr(&out, item);
        }
        if (r == 0 && p->cookie_prefix)
                r = buf_adds(&out, "; HttpOnly");
        return r < 0 ? r : add_line(b, x->name, buf_str(&out));
}

/* What came before is the word of whoever connected; it is passed, and the address that we see is added. */
static int add_forwarded(struct buf *b, const struct h1_head *h, const char *peer, const struct proxy_policy *p)
{
        int r = buf_adds(b, "X-Forwarded-For: ");

        for (size_t i = 0; r == 0 && i < h->header_count; i++) {
                if (!str_ieq(h->headers[i].name, STR("x-forwarded-for")) || !h->headers[i].value.n)
                        continue;
                r = buf_addstr(b, h->headers[i].value);
                if (r == 0)
                        r = buf_adds(b, ", ");
        }
        if (r == 0)
                r = buf_adds(b, peer);
        if (r == 0)
                r = buf_addf(b, "\r\nX-Forwarded-Host: %s\r\nX-Forwarded-Proto: %s\r\n", p->forwarded_host,
                             p->forwarded_proto);
        return r;
}

static int add_request_header(struct buf *b, const struct h1_header *x, const struct proxy_policy *p)
{
        switch (kind_of(request_known, ARRAY_LEN(request_known), x->name)) {
        case PASS:
                return add_line(b, x->name, x->value);
        case ORIGIN:
                return add_mapped(b, x, p->inward, p->arg, NULL, STR("null"));
        case REFERER:
                return add_mapped(b, x, p->inward, p->arg, NULL, STR(""));
        case COOKIE:
                return add_cookie(b, x, p);
        default:
                return 0;
        }
}

/* RFC 9112 §6: exactly one way to tell the end of the body, and it is ours. */
static int add_request_framing(struct buf *b, const struct h1_head *h, bool expect, bool upgrade)
{
        int r = 0;

        if (h->framing == H1_LENGTH)
                r = buf_addf(b, "Content-Length: %llu\r\n", (unsigned long long) h->length);
        else if (h->framing == H1_CHUNKED)
                r = buf_adds(b, "Transfer-Encoding: chunked\r\n");
        if (r == 0 && expect)
                r = buf_adds(b, "Expect: 100-continue\r\n");
        if (r < 0 || !upgrade)
                return r;
        r = buf_adds(b, "Connection: Upgrade\r\n");
        return r < 0 ? r : add_line(b, STR("Upgrade"), h1_find(h, "upgrade")->value);
}

int proxy_request_head(struct buf *b, const struct h1_head *h, struct str target, const char *peer,
                       const struct proxy_policy *p, bool expect, bool upgrade)
{
        bool some = nominates(h);
        int r = buf_addstr(b, h->method);

        if (r == 0)
                r = buf_addc(b, ' ');
        if (r == 0 && p->base && str_starts(target, STR("/")))
                r = buf_adds(b, p->base);
        if (r == 0)
                r = buf_addstr(b, target);
        if (r == 0)
                r = buf_addf(b, " HTTP/1.1\r\nHost: %s\r\n", p->host);
        for (size_t i = 0; r == 0 && i < h->header_count; i++)
                if (!some || !nominated(h, h->headers[i].name))
                        r = add_request_header(b, &h->headers[i], p);
        if (r == 0 && p->forwarded_host)
                r = add_forwarded(b, h, peer, p);
        if (r == 0)
                r = add_request_framing(b, h, expect, upgrade);
        return r == 0 ? h1_write_end(b) : r;
}

static bool replaced(const struct proxy_policy *p, struct str name)
{
        for (size_t i = 0; p->more && p->more[i]; i += 2)
                if (str_ieq(name, str_of(p->more[i])))
                        return true;
        return false;
}

static int add_response_header(struct buf *b, const struct h1_header *x, const struct proxy_policy *p)
{
        switch (kind_of(response_known, ARRAY_LEN(response_known), x->name)) {
        case PASS:
                return replaced(p, x->name) ? 0 : add_line(b, x->name, x->value);
        case LOCATION:
                return add_location(b, x, p);
        case ALLOW_ORIGIN:
                return add_mapped(b, x, p->outward, p->arg, NULL, STR(""));
        case SET_COOKIE:
                return add_set_cookie(b, x, p);
        default:
                return 0;
        }
}

int proxy_response_headers(struct buf *b, const struct h1_head *h, const struct proxy_policy *p)
{
        bool some = nominates(h);
        int r = 0;

        for (size_t i = 0; r == 0 && i < h->header_count; i++)
                if (!some || !nominated(h, h->headers[i].name))
                        r = add_response_header(b, &h->headers[i], p);
        if (r == 0 && p->cookie_prefix)
                r = add_line(b, STR("Vary"), STR("Cookie"));
        for (size_t i = 0; r == 0 && p->more && p->more[i]; i += 2)
                r = add_line(b, str_of(p->more[i]), str_of(p->more[i + 1]));
        return r;
}
