#include "adapter/callback.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "http/server.h"
#include "loop/loop.h"
#include "loop/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_MAX 8192
#define DECIDE_MS 60000
#define CLOSE_MS 2000

struct callback {
        struct http_server *server;
        unsigned port;
        char *state;
        bool came, decided, connected;
        struct callback_answer answer;
        char *reason;
        struct waitq q;
};

enum page { PAGE_CONNECTED, PAGE_FAILED, PAGE_STRANGE };

static const char *const codes[] = { "en", "ja", "zh-Hant" };

static const struct {
        const char *title, *text;
} pages[][3] = {
        [PAGE_CONNECTED] = { { "Connected", "ParallelSandbox is connected. You can close this page." },
                             { "接続しました", "ParallelSandbox に接続しました。このページは閉じてかまいません。" },
                             { "已連線", "ParallelSandbox 已連線。您可以關閉此頁面。" } },
        [PAGE_FAILED] = { { "Not connected", "The sign-in did not succeed. Start it again from your AI client." },
                          { "接続できませんでした",
                            "サインインに失敗しました。AI クライアントからもう一度お試しください。" },
                          { "未連線", "登入未成功。請從您的 AI 用戶端重新開始。" } },
        [PAGE_STRANGE] = { { "Not this sign-in",
                             "This page does not belong to a sign-in that is waiting here. Use the newest link." },
                           { "別のサインインです",
                             "このページは待機中のサインインのものではありません。最新のリンクをお使いください。" },
                           { "並非此次登入", "此頁面不屬於正在等待的登入。請使用最新的連結。" } },
};

/* q of one item in thousandths. */
static int quality(struct str params)
{
        while (params.n) {
                struct str p = str_trim(str_cut(&params, ';'), " \t");

                if (str_starts(p, STR("q=0"))) {
                        int q = 0, unit = 100;

                        for (size_t i = 4; i < p.n && unit; i++, unit /= 10)
                                q += p.p[i] >= '0' && p.p[i] <= '9' ? (p.p[i] - '0') * unit : 0;
                        return q;
                }
        }
        return 1000;
}

unsigned callback_language(const char *accept)
{
        static const char *const prefix[] = { "en", "ja", "zh" };
        struct str rest = str_of(accept ? accept : "");
        unsigned best = 0;
        int best_q = 0;

        while (rest.n) {
                struct str params = str_cut(&rest, ',');
                struct str tag = str_trim(str_cut(&params, ';'), " \t");
                int q = quality(params);

                for (unsigned i = 0; i < ARRAY_LEN(prefix); i++)
                        if (tag.n >= 2 && (tag.n == 2 || tag.p[2] == '-') &&
                            str_ieq(str_n(tag.p, 2), str_of(prefix[i])) && q > best_q) {
                                best = i;
                                best_q = q;
                        }
        }
        return best;
}

static int add_escaped(struct buf *b, const char *s)
{
        int r = 0;

        for (; *s && r == 0; s++)
                if (*s == '<' || *s == '>' || *s == '&' || *s == '"' || *s == '\'')
                        r = buf_addf(b, "&#%d;", *s);
                else
                        r = buf_addc(b, *s);
        return r;
}

static void coroutine_fn reply_page(struct call *c, unsigned status, enum page page, const char *reason)
{
        _cleanup_buf_ struct buf html = BUF_MAX(16384);
        struct str accept = call_header(c, "Accept-Language");
        _cleanup_free_ char *text = xstrndup(accept.p ? accept.p : "", accept.n);
        unsigned lang = callback_language(text);

        (void) buf_addf(&html,
                        "<!doctype html><html lang=\"%s\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
                        "content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\"><title>%s - "
                        "ParallelSandbox</title><style>body{font:1rem/1.6 system-ui,sans-serif;max-width:32rem;"
                        "margin:20vh auto;padding:0 1rem}</style><h1>%s</h1><p>%s</p>",
                        codes[lang], pages[page][lang].title, pages[page][lang].title, pages[page][lang].text);
        if (reason) {
                (void) buf_adds(&html, "<p><small>");
                (void) add_escaped(&html, reason);
                (void) buf_adds(&html, "</small></p>");
        }
        (void) buf_adds(&html, "</html>\n");
        (void) call_add_header(c, "Cache-Control", "no-store");
        (void) call_add_header(c, "Referrer-Policy", "no-referrer");
        (void) call_add_header(c, "Content-Security-Policy",
                               "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
        (void) call_reply(c, status, "text/html; charset=utf-8", html.p, html.len);
}

static char *query_value(struct call *c, const char *key)
{
        _cleanup_buf_ struct buf b = BUF_MAX(VALUE_MAX);

        return call_query(c, key, &b) == 1 ? xstrdup(buf_cstr(&b)) : NULL;
}

static bool state_fits(const struct callback *b, const char *state)
{
        size_t n = strlen(b->state);

        return state && strlen(state) == n && mem_equal(state, b->state, n);
}

/* A name that leads to this machine but is not ours would be another site's page talking to us. */
static bool host_fits(const struct callback *b, struct call *c)
{
        char own[64];

        (void) snprintf(own, sizeof own, "127.0.0.1:%u", b->port);
        return str_eq(call_host(c), str_of(own));
}

static void coroutine_fn serve(struct call *c, void *arg)
{
        struct callback *b = arg;
        _cleanup_free_ char *state = NULL;

        if (!host_fits(b, c) || !str_eq(call_path(c), STR("/callback"))) {
                (void) call_reply_error(c, 404, "not_found", "there is nothing here");
                return;
        }
        if (!str_eq(call_method(c), STR("GET"))) {
                (void) call_add_header(c, "Allow", "GET");
                (void) call_reply_error(c, 405, "method", "only GET");
                return;
        }
        state = query_value(c, "state");
        if (!state_fits(b, state)) {
                reply_page(c, 400, PAGE_STRANGE, NULL);
                return;
        }
        if (!b->came) { /* a browser that asks twice gets the same page twice, and the code is used once */
                b->answer = (struct callback_answer){ .code = query_value(c, "code"),
                                                      .error = query_value(c, "error"),
                                                      .iss = query_value(c, "iss") };
                b->came = true;
                waitq_wake_all(&b->q);
        }
        for (int64_t until = loop_now() + DECIDE_MS; !b->decided;) {
                int64_t left = until - loop_now();

                if (left <= 0 || waitq_wait(&b->q, left) == -ECANCELED)
                        break;
        }
        reply_page(c, b->connected ? 200 : 400, b->connected ? PAGE_CONNECTED : PAGE_FAILED, b->reason);
}

int callback_open(unsigned port, const char *state, struct callback **ret, struct err *e)
{
        struct callback *b = xcalloc(1, sizeof *b);
        int r = -EADDRINUSE;

        waitq_init(&b->q);
        b->state = xstrdup(state);
        b->server = http_server_new(NULL, serve, b);
        if (port)
                r = http_server_listen(b->server, "127.0.0.1", port, NULL);
        if (r < 0)
                r = http_server_listen(b->server, "127.0.0.1", 0, e);
        if (r < 0) {
                http_server_free(b->server);
                free(b->state);
                free(b);
                return r;
        }
        b->port = http_server_port(b->server);
        *ret = b;
        return 0;
}

unsigned callback_port(const struct callback *b)
{
        return b->port;
}

int coroutine_fn callback_wait(struct callback *b, int64_t timeout_ms, const struct callback_answer **ret)
{
        int64_t until = loop_now() + timeout_ms;

        while (!b->came) {
                int64_t left = until - loop_now();
                int r = left > 0 ? waitq_wait(&b->q, left) : -ETIMEDOUT;

                if (r < 0 && !b->came)
                        return r;
        }
        *ret = &b->answer;
        return 0;
}

void callback_decide(struct callback *b, bool connected, const char *reason)
{
        b->connected = connected;
        b->reason = xstrdup(reason);
        b->decided = true;
        waitq_wake_all(&b->q);
}

void coroutine_fn callback_close(struct callback *b)
{
        if (!b)
                return;
        if (!b->decided)
                callback_decide(b, false, NULL);
        http_server_stop(b->server, CLOSE_MS);
        http_server_free(b->server);
        free(b->state);
        free(b->reason);
        free(b->answer.code);
        free(b->answer.error);
        free(b->answer.iss);
        free(b);
}
