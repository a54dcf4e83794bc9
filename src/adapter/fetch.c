#include "adapter/fetch.h"
#include "base/mem.h"
#include "http/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECT_MS 10000
#define ANSWER_MS 20000
#define BODY_MAX ((size_t) 1 << 20)
#define REDIRECTS_MAX 3

bool url_is_loopback(const struct url *u)
{
        return strcmp(u->host, "127.0.0.1") == 0 || strcmp(u->host, "localhost") == 0 || strcmp(u->host, "::1") == 0;
}

bool url_same_origin(const struct url *a, const struct url *b)
{
        return a->https == b->https && a->port == b->port && str_ieq(str_of(a->host), str_of(b->host));
}

int url_add_origin(struct buf *out, const struct url *u)
{
        bool v6 = strchr(u->host, ':') != NULL;
        int r = buf_addf(out, v6 ? "%s://[%s]" : "%s://%s", u->https ? "https" : "http", u->host);

        if (r == 0 && u->port != (u->https ? 443 : 80))
                r = buf_addf(out, ":%u", u->port);
        return r;
}

bool fetch_is_safe(const char *text, const struct url *named)
{
        struct url u;

        if (url_parse(text, &u, NULL) < 0)
                return false;
        return u.https || url_is_loopback(&u) || (!named->https && str_ieq(str_of(u.host), str_of(named->host)));
}

static void client_freep(struct http_client **h)
{
        http_client_free(*h);
}

static void fill_headers(const struct fetch_spec *s, const char **out, size_t n)
{
        size_t k = 0;

        for (const char *const *h = s->headers; h && h[0] && k + 8 < n; h += 2) {
                out[k++] = h[0];
                out[k++] = h[1];
        }
        out[k++] = "Accept";
        out[k++] = "application/json";
        out[k++] = "User-Agent";
        out[k++] = "parallelsandbox-mcp/" PSBX_VERSION;
        if (s->type) {
                out[k++] = "Content-Type";
                out[k++] = s->type;
        }
        out[k] = NULL;
}

/* One request. *next is the address of a redirect that may be followed, or NULL. */
static int coroutine_fn fetch_one(const struct fetch_spec *s, const struct url *u, struct fetched *ret, char **next,
                                  struct err *e)
{
        _cleanup_(client_freep) struct http_client *client = http_client_new(u);
        _cleanup_(hc_closep) struct hc *x = NULL;
        const char *headers[24];

        fill_headers(s, headers, ARRAY_LEN(headers));
        const struct http_request req = { .method = s->method,
                                          .path = u->path,
                                          .headers = headers,
                                          .body = s->body.p,
                                          .body_len = s->body.n,
                                          .connect_ms = CONNECT_MS,
                                          .answer_ms = ANSWER_MS,
                                          .once = s->once };
        int r = hc_open(client, &req, &x, &ret->not_sent, e);
        if (r == 0)
                r = hc_answer(x, e);
        if (r < 0)
                return r;
        ret->status = hc_status(x);
        struct str to = hc_header(x, "Location");
        if (s->follow && ret->status >= 300 && ret->status < 400 && to.p)
                *next = xstrndup(to.p, to.n);
        r = hc_read_all(x, &ret->body, ANSWER_MS, e);
        return r;
}

/* An absolute address, or a path of the same origin. */
static int resolve(const char *to, const struct url *from, struct url *ret)
{
        _cleanup_buf_ struct buf full = BUF_MAX(8192);

        if (to[0] == '/' && to[1] != '/') {
                if (url_add_origin(&full, from) < 0 || buf_adds(&full, to) < 0)
                        return -EINVAL;
                to = buf_cstr(&full);
        }
        return url_parse(to, ret, NULL);
}

int coroutine_fn fetch(const struct fetch_spec *spec, struct fetched *ret, struct err *e)
{
        struct url u;
        int r = url_parse(spec->url, &u, e);

        *ret = (struct fetched){ .body = BUF_MAX(BODY_MAX), .not_sent = true };
        for (int i = 0; r == 0; i++) {
                _cleanup_free_ char *next = NULL;
                struct url to;

                r = fetch_one(spec, &u, ret, &next, e);
                if (r < 0 || !next)
                        break;
                if (i == REDIRECTS_MAX || resolve(next, &u, &to) < 0 || !url_same_origin(&to, &u)) {
                        r = err_set(e, -ELOOP, "it redirects elsewhere");
                        break;
                }
                buf_clear(&ret->body);
                u = to;
        }
        return r < 0 ? err_wrap(e, "%.200s", spec->url) : 0;
}
