#include "auth/visit.h"

#include "auth/page.h"
#include "auth/params.h"
#include "auth/template.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/seal.h"
#include "http/url.h"

#include "pages_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BROWSER_COOKIE "browser"
#define LANG_COOKIE "lang"
#define YEAR_SEC (365 * 24 * 3600)
#define PAGE_MAX ((size_t) 2 << 20)

static const struct language {
        const char *tag, *name;
} languages[] = { { "en", "English" }, { "ja", "日本語" }, { "zh-Hant", "繁體中文" } };

/* ---- language (RFC 9110 §12.5.4, RFC 4647 §3.4) ---- */

/* zh-TW, zh-HK, zh-MO are written in the traditional script; so is plain zh here, since there is no other Chinese. */
static int language_of(struct str tag)
{
        if (str_ieq(tag, STR("ja")) || (tag.n > 3 && str_ieq(str_n(tag.p, 3), STR("ja-"))))
                return 1;
        if (str_ieq(tag, STR("zh")) || (tag.n > 3 && str_ieq(str_n(tag.p, 3), STR("zh-"))))
                return 2;
        if (str_ieq(tag, STR("en")) || (tag.n > 3 && str_ieq(str_n(tag.p, 3), STR("en-"))))
                return 0;
        return -1;
}

/* "q=0.8" in thousandths; 1000 without one. */
static unsigned quality(struct str params)
{
        struct str p = str_trim(params, " \t");
        unsigned q = 0, scale = 100;

        if (!str_starts(p, STR("q=")) || p.n < 3)
                return 1000;
        if (p.p[2] == '1')
                return 1000;
        for (size_t i = 4; i < p.n && i < 7 && p.p[i] >= '0' && p.p[i] <= '9'; i++, scale /= 10)
                q += (unsigned) (p.p[i] - '0') * scale;
        return q;
}

static unsigned accepted_language(struct str header)
{
        unsigned best = 0, best_q = 0;

        for (int i = 0; header.n && i < 32; i++) {
                struct str params = str_cut(&header, ',');
                struct str tag = str_trim(str_cut(&params, ';'), " \t");
                int lang = language_of(tag);
                unsigned q = quality(params);

                if (lang >= 0 && q > best_q) {
                        best = (unsigned) lang;
                        best_q = q;
                }
        }
        return best;
}

static int exact_language(const char *tag)
{
        for (size_t i = 0; i < ARRAY_LEN(languages); i++)
                if (cstr_eq(tag, languages[i].tag))
                        return (int) i;
        return -1;
}

/* ?lang= is remembered; then the cookie, then what the browser asks for. */
static unsigned choose_language(struct visit *v)
{
        _cleanup_buf_ struct buf asked = BUF_MAX(32);
        char cookie[16];
        int lang;

        if (call_query(v->call, "lang", &asked) == 1 && (lang = exact_language(buf_cstr(&asked))) >= 0) {
                cookie_set(v, LANG_COOKIE, languages[lang].tag, YEAR_SEC);
                return (unsigned) lang;
        }
        if (cookie_get(v->call, LANG_COOKIE, cookie, sizeof cookie) && (lang = exact_language(cookie)) >= 0)
                return (unsigned) lang;
        return accepted_language(call_header(v->call, "Accept-Language"));
}

const char *visit_text(const struct visit *v, const char *key)
{
        const char *s = json_get_str(v->a->texts[v->lang], key, NULL);

        return s ? s : json_get_str(v->a->texts[0], key, key);
}

/* ---- a visit ---- */

static void find_browser(struct visit *v)
{
        if (cookie_get(v->call, BROWSER_COOKIE, v->browser, sizeof v->browser))
                return;
        _cleanup_free_ char *fresh = random_token(24);
        (void) snprintf(v->browser, sizeof v->browser, "%s", fresh);
        /* A POST that brings no cookie has no form of ours: the next page gives one. */
        if (!str_eq(call_method(v->call), STR("POST")))
                cookie_set(v, BROWSER_COOKIE, v->browser, YEAR_SEC);
}

struct visit *visit_new(struct auth *a, struct call *call)
{
        struct visit *v = xcalloc(1, sizeof *v);

        v->a = a;
        v->call = call;
        v->data = json_obj();
        v->form = BUF_MAX(FORM_MAX);
        auth_origin(call, v->origin);
        find_browser(v);
        v->signed_in = session_find(a, call, &v->person, &v->login) == 0;
        if (v->signed_in)
                session_renew_cookie(v);
        v->lang = choose_language(v);
        return v;
}

void visit_free(struct visit *v)
{
        if (!v)
                return;
        json_unref(v->data);
        buf_wipe(&v->form);
        free(v);
}

bool coroutine_fn visit_form(struct visit *v, const char *purpose)
{
        struct err e = { 0 };

        if (!same_origin(v->call)) {
                visit_message(v, 403, "origin_title", "origin_text");
                return false;
        }
        int r = form_read(v->call, &v->form, &e);
        if (r < 0) {
                visit_message(v, r == -EMSGSIZE ? 413 : 400, "bad_form_title", "bad_form_text");
                return false;
        }
        _cleanup_free_ char *token = visit_field(v, "csrf");
        if (form_token_use(v, purpose, str_of(token)) < 0) {
                visit_message(v, 403, "stale_title", "stale_text");
                return false;
        }
        return true;
}

char *visit_field(const struct visit *v, const char *name)
{
        char *s = param_str(buf_str(&v->form), name);

        return s ? s : xstrdup("");
}

bool local_path_ok(const char *path)
{
        if (path[0] != '/' || path[1] == '/' || strlen(path) > 4000)
                return false;
        for (const char *p = path; *p; p++)
                if ((unsigned char) *p <= 0x20 || *p == '\\' || (unsigned char) *p >= 0x7f)
                        return false;
        return true;
}

/* ---- answers ---- */

/* No form-action: Chromium applies it to the redirect that follows a form, and the consent page's leads to the client.
 */
void visit_add_headers(struct call *call)
{
        static const char *const headers[][2] = {
                { "Content-Security-Policy",
                  "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:;"
                  " frame-ancestors 'none'; base-uri 'none'" },
                { "X-Frame-Options", "DENY" },
                { "Referrer-Policy",
                  "same-origin" }, /* no-referrer would make browsers send "Origin: null" with forms */
                { "Cache-Control", "no-store" },
                { "Cross-Origin-Opener-Policy", "same-origin" },
                { "Vary", "Accept-Language, Cookie" },
        };

        for (size_t i = 0; i < ARRAY_LEN(headers); i++)
                (void) call_add_header(call, headers[i][0], headers[i][1]);
}

static const char *page_file(const char *name, size_t *ret_len)
{
        for (size_t i = 0; i < pages_count; i++)
                if (cstr_eq(pages[i].name, name)) {
                        *ret_len = pages[i].len;
                        return (const char *) pages[i].data;
                }
        return NULL;
}

static const char *asset_path(const char *name)
{
        for (size_t i = 0; i < pages_count; i++)
                if (pages[i].path && cstr_eq(pages[i].name, name))
                        return pages[i].path;
        return NULL;
}

/* The address of this page in another language. A page that answers a form is asked for anew. */
static char *language_link(const struct visit *v, const char *tag)
{
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 10);
        struct str query = call_target(v->call);
        struct str path = str_cut(&query, '?');
        const char *here = json_get_str(v->data, "here", NULL);

        if (here) {
                query = str_of(here);
                path = str_cut(&query, '?');
        }
        (void) buf_addstr(&b, path);
        while (query.n) {
                struct str part = str_cut(&query, '&');

                if (part.n && !str_starts(part, STR("lang=")))
                        (void) buf_addf(&b, "%c%.*s", memchr(b.p, '?', b.len) ? '&' : '?', (int) part.n, part.p);
        }
        (void) param_add(&b, "lang", tag);
        return buf_steal(&b);
}

static void add_common(struct visit *v)
{
        struct json *list = json_arr();

        for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
                _cleanup_free_ char *href = language_link(v, languages[i].tag);
                struct json *l = json_obj();

                json_set_str(l, "name", languages[i].name);
                json_set_str(l, "tag", languages[i].tag);
                json_set_str(l, "href", href);
                json_set_bool(l, "current", i == v->lang);
                json_push(list, l);
        }
        json_set(v->data, "languages", list);
        json_set_str(v->data, "lang", languages[v->lang].tag);
        json_set_str(v->data, "host", strstr(v->origin, "://") + 3);
        json_set_bool(v->data, "signed_in", v->signed_in);
        if (v->signed_in) {
                _cleanup_free_ char *out = form_token(v, "sign-out");

                json_set_str(v->data, "me", v->person.name);
                json_set_str(v->data, "me_login", v->person.login);
                json_set_str(v->data, "csrf_out", out);
        }
}

void coroutine_fn visit_page(struct visit *v, unsigned status, const char *page)
{
        _cleanup_buf_ struct buf out = BUF_MAX(PAGE_MAX);
        struct template_set set = {
                .file = page_file, .asset = asset_path, .texts = v->a->texts[v->lang], .fallback = v->a->texts[0]
        };

        add_common(v);
        int r = template_render(&set, page, v->data, &out);
        if (r < 0) {
                (void) call_reply_error(v->call, 500, "internal", "the page %s cannot be made (%d)", page, r);
                return;
        }
        visit_add_headers(v->call);
        (void) call_add_header(v->call, "Content-Language", languages[v->lang].tag);
        (void) call_reply(v->call, status, "text/html; charset=utf-8", out.p, out.len);
}

void coroutine_fn page_alone(struct auth *a, struct call *call, unsigned status, const char *page, struct json *data)
{
        _cleanup_buf_ struct buf out = BUF_MAX(PAGE_MAX);
        unsigned lang = accepted_language(call_header(call, "Accept-Language"));
        struct template_set set = {
                .file = page_file, .asset = asset_path, .texts = a->texts[lang], .fallback = a->texts[0]
        };

        json_set_str(data, "lang", languages[lang].tag);
        int r = template_render(&set, page, data, &out);
        if (r < 0) {
                (void) call_reply_error(call, 500, "internal", "the page %s cannot be made (%d)", page, r);
                return;
        }
        (void) call_add_header(call, "Content-Language", languages[lang].tag);
        (void) call_add_header(call, "Vary", "Accept-Language");
        (void) call_reply(call, status, "text/html; charset=utf-8", out.p, out.len);
}

void coroutine_fn visit_message(struct visit *v, unsigned status, const char *title_key, const char *text_key)
{
        json_set_str(v->data, "title", visit_text(v, title_key));
        json_set_str(v->data, "text", visit_text(v, text_key));
        json_set_bool(v->data, "bad", status >= 400);
        visit_page(v, status, "message.html");
}

/* 303, so that what follows a form is a GET whatever the client (RFC 9110 §15.4.4; RFC 9700 §4.12 forbids 307). */
void coroutine_fn visit_redirect(struct visit *v, const char *location)
{
        visit_add_headers(v->call);
        if (call_add_header(v->call, "Location", location) < 0)
                (void) call_reply_error(v->call, 500, "internal", "the address to go on to cannot be written");
        else
                (void) call_reply(v->call, 303, NULL, NULL, 0);
}

bool coroutine_fn visit_need_person(struct visit *v)
{
        if (v->signed_in)
                return true;
        _cleanup_buf_ struct buf to = BUF_MAX(8192);
        _cleanup_free_ char *here = xstrndup(call_target(v->call).p, call_target(v->call).n);
        (void) buf_adds(&to, "/sign-in");
        if (str_eq(call_method(v->call), STR("GET")) && !cstr_eq(here, "/") && local_path_ok(here))
                (void) param_add(&to, "next", here);
        visit_redirect(v, buf_cstr(&to));
        return false;
}

void time_text(int64_t ms, char ret[32])
{
        time_t t = (time_t) (ms / 1000);
        struct tm tm;

        ret[0] = '\0';
        if (ms > 0 && gmtime_r(&t, &tm))
                (void) strftime(ret, 32, "%Y-%m-%d %H:%M UTC", &tm);
}

/* Assets have the hash of their content in their name, so they never change. */
void coroutine_fn serve_asset(struct call *call)
{
        struct str path = call_path(call);

        for (size_t i = 0; i < pages_count; i++) {
                if (!pages[i].path || !str_eq(path, str_of(pages[i].path)))
                        continue;
                (void) call_add_header(call, "Cache-Control", "public, max-age=31536000, immutable");
                (void) call_add_header(call, "Cross-Origin-Resource-Policy", "same-origin");
                (void) call_reply(call, 200, pages[i].type, pages[i].data, pages[i].len);
                return;
        }
        (void) call_reply_error(call, 404, "not_found", "there is nothing at this address");
}
