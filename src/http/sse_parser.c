/* The event stream interpretation of the HTML standard (§9.2.6): lines end by CR, LF or CRLF; a blank line dispatches.
 */
#include "http/client.h"

#include <errno.h>

typedef int event_fn(const char *event, const char *id, struct str data, void *arg);

void sse_parser_init(struct sse_parser *p, size_t max_event)
{
        *p = (struct sse_parser){ .line = BUF_MAX(max_event + 16), .data = BUF_MAX(max_event + 1), .retry = -1 };
}

void sse_parser_done(struct sse_parser *p)
{
        buf_done(&p->line);
        buf_done(&p->data);
}

static int dispatch(struct sse_parser *p, event_fn *fn, void *arg)
{
        int r = 0;

        if (p->has_data) {
                p->data.len--; /* the line feed after the last data line */
                r = fn(p->event[0] ? p->event : "message", p->id, buf_str(&p->data), arg);
        }
        buf_clear(&p->data);
        p->has_data = false;
        p->event[0] = '\0';
        return r;
}

static int store(char *to, size_t size, struct str value)
{
        if (value.n >= size)
                return -EMSGSIZE;
        if (value.n)
                memcpy(to, value.p, value.n);
        to[value.n] = '\0';
        return 0;
}

static int field(struct sse_parser *p, struct str line)
{
        struct str value = line;
        struct str name = str_cut(&value, ':');
        uint64_t ms;

        if (value.n && value.p[0] == ' ')
                value = str_n(value.p + 1, value.n - 1);
        if (str_eq(name, STR("data"))) {
                if (buf_addstr(&p->data, value) < 0 || buf_addc(&p->data, '\n') < 0)
                        return -EMSGSIZE;
                p->has_data = true;
        } else if (str_eq(name, STR("event"))) {
                return store(p->event, sizeof p->event, value);
        } else if (str_eq(name, STR("id")) && (!value.n || !memchr(value.p, '\0', value.n))) {
                return store(p->id, sizeof p->id, value);
        } else if (str_eq(name, STR("retry")) && parse_u64(value, INT32_MAX, &ms) == 0) {
                p->retry = (int64_t) ms;
        }
        return 0; /* a line that starts with a colon has an empty name: a comment */
}

static int end_of_line(struct sse_parser *p, event_fn *fn, void *arg)
{
        struct str line = buf_str(&p->line);

        if (!p->bom_done && str_starts(line, STR("\xef\xbb\xbf")))
                line = str_n(line.p + 3, line.n - 3);
        p->bom_done = true;
        int r = line.n ? field(p, line) : dispatch(p, fn, arg);
        buf_clear(&p->line);
        return r;
}

int sse_parser_feed(struct sse_parser *p, const char *b, size_t n,
                    int (*fn)(const char *event, const char *id, struct str data, void *arg), void *arg)
{
        size_t i = 0;
        int r = 0;

        while (i < n && r >= 0) {
                size_t start = i;

                if (p->cr && b[i] == '\n') /* the second half of CRLF */
                        start = ++i;
                p->cr = false;
                while (i < n && b[i] != '\r' && b[i] != '\n')
                        i++;
                if (buf_add(&p->line, b + start, i - start) < 0)
                        return -EMSGSIZE;
                if (i == n)
                        break;
                p->cr = b[i++] == '\r';
                r = end_of_line(p, fn, arg);
        }
        return r < 0 ? r : 0;
}
