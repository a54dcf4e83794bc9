/*
 * The head parser works in two steps so that its outcome cannot depend on how the bytes were cut into reads: `scan`
 * walks forward once, byte by byte, and refuses what no head may hold; only a complete head is then taken apart.
 */
#include "http/h1.h"

#include "http/h1_chars.h"

#include <errno.h>

#define METHOD_MAX 32
#define HOST_MAX 260 /* a name of 253 and a port */

static int refuse(struct h1_error *err, unsigned status, const char *reason)
{
        *err = (struct h1_error){ status, reason };
        return -EPROTO;
}

/* Finds the end of the head. `start` is where the first line begins. Returns as h1_request_parse does. */
static long scan(const char *p, size_t n, size_t start, size_t *scanned, struct h1_error *err)
{
        size_t end = min_size(n, H1_HEAD_MAX);
        size_t i = max_size(*scanned, start);
        const char *nl = i > start ? memrchr(p + start, '\n', i - start) : NULL;
        size_t line = nl ? (size_t) (nl - p) + 1 : start;

        for (;;) {
                while (i < end && h1_is_field(p[i]))
                        i++;
                if (i - line > H1_LINE_MAX)
                        return line == start ? refuse(err, 414, "the request line is too long") /* RFC 9112 §3 */
                                             : refuse(err, 431, "a header line is too long");   /* RFC 6585 §5 */
                *scanned = i;
                if (i == end || (p[i] == '\r' && i + 1 == end))
                        break;
                if (p[i] ==
                    '\n') /* RFC 9112 §2.2 lets a recipient accept it; every second reading is a smuggling risk */
                        return refuse(err, 400, "a line ends with LF alone");
                if (p[i] != '\r') /* RFC 9110 §5.5 */
                        return refuse(err, 400, "a control byte in the head");
                if (p[i + 1] != '\n') /* RFC 9112 §2.2 */
                        return refuse(err, 400, "CR without LF");
                if (i == line)
                        return i == start ? refuse(err, 400, "an empty line instead of a head") : (long) i + 2;
                i += 2;
                line = i;
        }
        return n >= H1_HEAD_MAX ? refuse(err, 431, "the head is too long") : 0; /* RFC 6585 §5 */
}

/* What the header lines say, collected in one pass. */
struct facts {
        unsigned lengths, codings, hosts;
        struct str length, coding, expect;
        bool close, keep_alive, upgrade_token, upgrade;
};

static bool list_has(struct str list, struct str token)
{
        while (list.n) {
                struct str item = str_trim(str_cut(&list, ','), " \t");

                if (str_ieq(item, token))
                        return true;
        }
        return false;
}

static void note(struct facts *f, struct h1_head *h, const struct h1_header *x)
{
        switch (x->name.n) {
        case 4:
                if (str_ieq(x->name, STR("host"))) {
                        f->hosts++;
                        h->host = x->value;
                }
                break;
        case 6:
                if (str_ieq(x->name, STR("expect")))
                        f->expect = f->expect.p ? STR("twice") : x->value; /* one of several is not 100-continue */
                break;
        case 7:
                f->upgrade |= str_ieq(x->name, STR("upgrade")) && x->value.n;
                break;
        case 10:
                if (str_ieq(x->name, STR("connection"))) {
                        f->close |= list_has(x->value, STR("close"));
                        f->keep_alive |= list_has(x->value, STR("keep-alive"));
                        f->upgrade_token |= list_has(x->value, STR("upgrade"));
                }
                break;
        case 14:
                if (str_ieq(x->name, STR("content-length"))) {
                        f->lengths++;
                        f->length = x->value;
                }
                break;
        case 17:
                if (str_ieq(x->name, STR("transfer-encoding"))) {
                        f->codings++;
                        f->coding = x->value;
                }
                break;
        default:
                break;
        }
}

/* The next line of a scanned head (every CR in it is followed by LF), without its CRLF. */
static struct str next_line(struct str *head)
{
        struct str line = str_cut(head, '\r');

        head->p++;
        head->n--;
        return line;
}

static int parse_headers(struct str head, struct h1_head *h, struct facts *f, struct h1_error *err)
{
        for (;;) {
                struct str line = next_line(&head);
                size_t i = 0;

                if (!line.n)
                        return 0;
                if (line.p[0] == ' ' || line.p[0] == '\t') /* obs-fold, RFC 9112 §5.2 */
                        return refuse(err, 400, "a folded header line");
                while (i < line.n && h1_is_token(line.p[i]))
                        i++;
                if (i == line.n || line.p[i] != ':') /* also white space before the colon, RFC 9112 §5.1 */
                        return refuse(err, 400, "a malformed header name");
                if (!i)
                        return refuse(err, 400, "an empty header name");
                if (h->header_count == H1_HEADERS_MAX)
                        return refuse(err, 431, "too many header lines"); /* RFC 6585 §5 */
                struct h1_header *x = &h->headers[h->header_count++];
                x->name = str_n(line.p, i);
                x->value = str_trim(str_n(line.p + i + 1, line.n - i - 1), " \t"); /* RFC 9112 §5.1 */
                note(f, h, x);
        }
}

/* "HTTP/1.0" or "HTTP/1.1". RFC 9112 §2.3; a newer minor version is refused, since we know nothing of its framing. */
static int parse_version(struct str v, struct h1_head *h, struct h1_error *err)
{
        if (v.n != 8 || !str_starts(v, STR("HTTP/")) || !h1_is_digit(v.p[5]) || v.p[6] != '.' || !h1_is_digit(v.p[7]))
                return refuse(err, 400, "a malformed protocol version");
        if (v.p[5] != '1' || v.p[7] > '1')
                return refuse(err, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        h->minor = (unsigned) (v.p[7] - '0');
        return 0;
}

/* uri-host [":" port], RFC 9110 §7.2. */
static bool host_valid(struct str s, bool need_port)
{
        size_t i = 0;
        uint64_t port;

        if (!s.n || s.n > HOST_MAX)
                return false;
        if (s.p[0] == '[') { /* IP-literal; RFC 3986 §3.2.2 */
                for (i = 1; i < s.n && (h1_hex(s.p[i]) >= 0 || s.p[i] == ':' || s.p[i] == '.'); i++)
                        ;
                if (i < 3 || i == s.n || s.p[i] != ']')
                        return false;
                i++;
        } else {
                while (i < s.n && h1_is_host(s.p[i]))
                        i++;
                if (!i)
                        return false;
        }
        if (i == s.n)
                return !need_port;
        if (s.p[i] != ':' || s.n - i > 6)
                return false;
        return parse_u64(str_n(s.p + i + 1, s.n - i - 1), 65535, &port) == 0;
}

/* The authority of "http://…" or "https://…", or an empty string when it is no such target. */
static struct str absolute_authority(struct str t)
{
        struct str scheme = str_n(t.p, min_size(t.n, 8));
        size_t skip = str_ieq(scheme, STR("https://")) ? 8 : 0;

        if (!skip && t.n >= 7 && str_ieq(str_n(t.p, 7), STR("http://")))
                skip = 7;
        if (!skip)
                return str_n(t.p, 0);
        size_t n = skip;
        while (n < t.n && t.p[n] != '/' && t.p[n] != '?')
                n++;
        return str_n(t.p + skip, n - skip);
}

/* The four forms of RFC 9112 §3.2, each only where it belongs. */
static int check_target(const struct h1_head *h, struct h1_error *err)
{
        struct str t = h->target;

        if (str_eq(h->method, STR("CONNECT"))) /* §3.2.3 */
                return host_valid(t, true) ? 0 : refuse(err, 400, "CONNECT wants host:port");
        if (t.p[0] == '/') /* §3.2.1 */
                return 0;
        if (str_eq(t, STR("*"))) /* §3.2.4 */
                return str_eq(h->method, STR("OPTIONS")) ? 0 : refuse(err, 400, "* is a target for OPTIONS only");
        struct str a = absolute_authority(t); /* §3.2.2 */
        if (!a.n || !host_valid(a, false))
                return refuse(err, 400, "the request target is not a path");
        /* §3.2.2 has the target win over Host. Two names for one request is what a desync attack needs: both or none.
         */
        if (h->host.n && !str_ieq(a, h->host))
                return refuse(err, 400, "the request target and Host differ");
        return 0;
}

/* method SP request-target SP HTTP-version; single spaces. RFC 9112 §3. */
static int parse_request_line(struct str line, struct h1_head *h, struct h1_error *err)
{
        struct str rest = line;

        h->method = str_cut(&rest, ' ');
        for (size_t i = 0; i < h->method.n; i++)
                if (!h1_is_token(h->method.p[i])) /* RFC 9110 §9.1 */
                        return refuse(err, 400, "a malformed method");
        if (!h->method.n)
                return refuse(err, 400, "a malformed method");
        h->target = str_cut(&rest, ' ');
        for (size_t i = 0; i < h->target.n; i++)
                if (!h1_is_target(h->target.p[i]))
                        return refuse(err, 400, "a forbidden character in the request target");
        if (!h->target.n)
                return refuse(err, 400, "an empty request target");
        int r = parse_version(rest, h, err);
        if (r < 0)
                return r;
        if (h->method.n > METHOD_MAX)
                return refuse(err, 501, "the method name is too long"); /* RFC 9112 §3 */
        return 0;
}

/* Content-Length and Transfer-Encoding, RFC 9112 §6. Sets framing for a message that has a body. */
static int parse_framing(struct h1_head *h, const struct facts *f, struct h1_error *err)
{
        if (f->codings) {
                if (f->lengths) /* §6.3 item 3: "ought to be handled as an error" */
                        return refuse(err, 400, "both Content-Length and Transfer-Encoding");
                if (h->minor == 0) /* §6.1 */
                        return refuse(err, 400, "Transfer-Encoding in HTTP/1.0");
                if (f->codings > 1 || !f->coding.n)
                        return refuse(err, 400, "more or less than one transfer coding");
                if (!str_ieq(f->coding, STR("chunked"))) /* §6.1: unknown codings get 501 */
                        return refuse(err, 501, "the only transfer coding here is chunked");
                h->framing = H1_CHUNKED;
                return 0;
        }
        if (!f->lengths)
                return 0;
        if (f->lengths > 1) /* §6.3 item 5 would let equal values pass */
                return refuse(err, 400, "more than one Content-Length");
        int r = parse_u64(f->length, INT64_MAX, &h->length); /* RFC 9110 §8.6: 1*DIGIT, nothing else */
        if (r == -ERANGE)
                return refuse(err, 413, "Content-Length is out of range");
        if (r < 0)
                return refuse(err, 400, "a malformed Content-Length");
        h->framing = H1_LENGTH;
        return 0;
}

static void parse_connection(struct h1_head *h, const struct facts *f)
{
        /* RFC 9112 §9.3 */
        h->keep_alive = !f->close && (h->minor == 1 || f->keep_alive);
        /* RFC 9110 §7.8: ignored in HTTP/1.0 */
        h->upgrade = h->minor == 1 && f->upgrade_token && f->upgrade;
}

static int check_request(struct h1_head *h, const struct facts *f, struct h1_error *err)
{
        if (f->hosts > 1 || (h->minor == 1 && !f->hosts)) /* RFC 9112 §3.2 */
                return refuse(err, 400, "more or less than one Host");
        if (f->hosts && !host_valid(h->host, false))
                return refuse(err, 400, "a malformed Host");
        int r = check_target(h, err);
        if (r < 0)
                return r;
        r = parse_framing(h, f, err);
        if (r < 0)
                return r;
        if (h->framing != H1_NO_BODY && str_eq(h->method, STR("CONNECT"))) /* RFC 9110 §9.3.6 */
                return refuse(err, 400, "CONNECT has no body");
        parse_connection(h, f);
        if (f->expect.p && h->minor == 1) { /* RFC 9110 §10.1.1; ignored in HTTP/1.0 */
                if (!str_ieq(f->expect, STR("100-continue")))
                        return refuse(err, 417, "the only expectation known here is 100-continue");
                h->expect_continue = h->framing == H1_CHUNKED || (h->framing == H1_LENGTH && h->length);
        }
        return 0;
}

/* Everything but the headers themselves, which are written before they are read. */
static void head_reset(struct h1_head *h)
{
        h->method = h->target = h->reason = h->host = str_n(NULL, 0);
        h->status = h->minor = 0;
        h->header_count = 0;
        h->framing = H1_NO_BODY;
        h->length = 0;
        h->keep_alive = h->expect_continue = h->upgrade = false;
}

long h1_request_parse(const char *p, size_t n, size_t *scanned, struct h1_head *ret, struct h1_error *err)
{
        struct facts f = { 0 };
        size_t start = 0;

        if (n && p[0] == '\r') { /* one empty line before the request line is ignored, RFC 9112 §2.2 */
                if (n == 1)
                        return 0;
                if (p[1] == '\n')
                        start = 2;
        }
        long len = scan(p, n, start, scanned, err);
        if (len <= 0)
                return len;
        struct str head = str_n(p + start, (size_t) len - start);
        struct str line = next_line(&head);
        head_reset(ret);
        int r = parse_request_line(line, ret, err);
        if (r == 0)
                r = parse_headers(head, ret, &f, err);
        if (r == 0)
                r = check_request(ret, &f, err);
        return r < 0 ? r : len;
}

/* HTTP-version SP status-code SP [reason-phrase], RFC 9112 §4. */
static int parse_status_line(struct str line, struct h1_head *h, struct h1_error *err)
{
        struct str rest = line;
        uint64_t status;
        int r = parse_version(str_cut(&rest, ' '), h, err);

        if (r < 0)
                return r;
        if (rest.n < 4 || rest.p[3] != ' ' || parse_u64(str_n(rest.p, 3), 999, &status) < 0 || status < 100)
                return refuse(err, 400, "a malformed status line");
        h->status = (unsigned) status;
        h->reason = str_n(rest.p + 4, rest.n - 4);
        return 0;
}

/* RFC 9112 §6.3, in its order. */
static int response_framing(struct h1_head *h, const struct facts *f, struct str method, struct h1_error *err)
{
        int r = parse_framing(h, f, err);

        if (r < 0)
                return r;
        if (h->status < 200 || h->status == 204 || h->status == 304 || str_eq(method, STR("HEAD")) ||
            (str_eq(method, STR("CONNECT")) && h->status < 300))
                h->framing = H1_NO_BODY; /* length stays what Content-Length said: it describes the GET */
        else if (h->framing == H1_NO_BODY)
                h->framing = H1_UNTIL_CLOSE;
        return 0;
}

long h1_response_parse(const char *p, size_t n, size_t *scanned, struct str request_method, struct h1_head *ret,
                       struct h1_error *err)
{
        struct facts f = { 0 };
        long len = scan(p, n, 0, scanned, err);

        if (len <= 0)
                return len;
        struct str head = str_n(p, (size_t) len);
        struct str line = next_line(&head);
        head_reset(ret);
        int r = parse_status_line(line, ret, err);
        if (r == 0)
                r = parse_headers(head, ret, &f, err);
        if (r == 0)
                r = response_framing(ret, &f, request_method, err);
        if (r < 0)
                return r;
        parse_connection(ret, &f);
        if (ret->framing == H1_UNTIL_CLOSE)
                ret->keep_alive = false;
        return len;
}

static struct str moved(struct str s, const char *from, const char *to)
{
        return s.p ? str_n(to + (s.p - from), s.n) : s;
}

struct h1_head *h1_head_keep(const struct h1_head *h, const char *p, size_t n)
{
        size_t fixed = offsetof(struct h1_head, headers) + h->header_count * sizeof h->headers[0];
        struct h1_head *k = xmalloc(fixed + n);
        char *text = (char *) k + fixed;

        memcpy(text, p, n);
        memcpy(k, h, fixed);
        k->method = moved(h->method, p, text);
        k->target = moved(h->target, p, text);
        k->host = moved(h->host, p, text);
        k->reason = moved(h->reason, p, text);
        for (size_t i = 0; i < h->header_count; i++) {
                k->headers[i].name = moved(h->headers[i].name, p, text);
                k->headers[i].value = moved(h->headers[i].value, p, text);
        }
        return k;
}

const struct h1_header *h1_find(const struct h1_head *h, const char *name)
{
        struct str s = str_of(name);

        for (size_t i = 0; i < h->header_count; i++)
                if (str_ieq(h->headers[i].name, s))
                        return &h->headers[i];
        return NULL;
}

bool h1_has_token(const struct h1_head *h, const char *name, const char *token)
{
        struct str s = str_of(name);

        for (size_t i = 0; i < h->header_count; i++)
                if (str_ieq(h->headers[i].name, s) && list_has(h->headers[i].value, str_of(token)))
                        return true;
        return false;
}
