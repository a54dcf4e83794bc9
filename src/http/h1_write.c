/* Writing heads. A piece that is refused or does not fit leaves the buffer as it was. */
#include "http/h1.h"

#include "http/h1_chars.h"

#include <errno.h>
#include <stdio.h>

static bool all(struct str s, bool (*ok)(char c))
{
        for (size_t i = 0; i < s.n; i++)
                if (!ok(s.p[i]))
                        return false;
        return true;
}

/* Appends up to four strings or nothing. */
static int add(struct buf *b, struct str a, struct str c, struct str d, struct str e)
{
        size_t before = b->len;
        int r = buf_addstr(b, a);

        if (r == 0)
                r = buf_addstr(b, c);
        if (r == 0)
                r = buf_addstr(b, d);
        if (r == 0)
                r = buf_addstr(b, e);
        if (r < 0)
                b->len = before;
        return r;
}

int h1_write_request_line(struct buf *b, const char *method, const char *target)
{
        struct str m = str_of(method), t = str_of(target);

        if (!m.n || !t.n || !all(m, h1_is_token) || !all(t, h1_is_target)) /* RFC 9112 §3 */
                return -EINVAL;
        return add(b, m, STR(" "), t, STR(" HTTP/1.1\r\n"));
}

int h1_write_status_line(struct buf *b, unsigned status)
{
        char line[16];

        if (status < 100 || status > 999) /* RFC 9110 §15 */
                return -EINVAL;
        int n = snprintf(line, sizeof line, "HTTP/1.1 %u ", status);
        return add(b, str_n(line, (size_t) n), str_of(h1_reason(status)), STR("\r\n"), STR(""));
}

int h1_write_header(struct buf *b, const char *name, struct str value)
{
        struct str k = str_of(name);

        if (!k.n || !all(k, h1_is_token) || !all(value, h1_is_field)) /* RFC 9110 §5.1, §5.5 */
                return -EINVAL;
        return add(b, k, STR(": "), value, STR("\r\n"));
}

int h1_write_end(struct buf *b)
{
        return buf_adds(b, "\r\n");
}

int h1_write_chunk_head(struct buf *b, size_t n)
{
        char line[20];
        int k = snprintf(line, sizeof line, "%zx\r\n", n);

        return buf_add(b, line, (size_t) k);
}

const char *h1_reason(unsigned status)
{
        static const struct {
                unsigned status;
                const char *reason;
        } reasons[] = {
                { 100, "Continue" },
                { 101, "Switching Protocols" },
                { 200, "OK" },
                { 201, "Created" },
                { 202, "Accepted" },
                { 204, "No Content" },
                { 206, "Partial Content" },
                { 301, "Moved Permanently" },
                { 302, "Found" },
                { 303, "See Other" },
                { 304, "Not Modified" },
                { 307, "Temporary Redirect" },
                { 308, "Permanent Redirect" },
                { 400, "Bad Request" },
                { 401, "Unauthorized" },
                { 403, "Forbidden" },
                { 404, "Not Found" },
                { 405, "Method Not Allowed" },
                { 406, "Not Acceptable" },
                { 408, "Request Timeout" },
                { 409, "Conflict" },
                { 410, "Gone" },
                { 411, "Length Required" },
                { 412, "Precondition Failed" },
                { 413, "Content Too Large" },
                { 414, "URI Too Long" },
                { 415, "Unsupported Media Type" },
                { 416, "Range Not Satisfiable" },
                { 417, "Expectation Failed" },
                { 421, "Misdirected Request" },
                { 422, "Unprocessable Content" },
                { 425, "Too Early" },
                { 426, "Upgrade Required" },
                { 428, "Precondition Required" },
                { 429, "Too Many Requests" },
                { 431, "Request Header Fields Too Large" },
                { 500, "Internal Server Error" },
                { 501, "Not Implemented" },
                { 502, "Bad Gateway" },
                { 503, "Service Unavailable" },
                { 504, "Gateway Timeout" },
                { 505, "HTTP Version Not Supported" },
                { 507, "Insufficient Storage" },
        };

        for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
                if (reasons[i].status == status)
                        return reasons[i].reason;
        return ""; /* RFC 9112 §4: the phrase may be empty */
}
