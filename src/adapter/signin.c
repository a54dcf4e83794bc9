#include "adapter/signin.h"
#include "adapter/browser.h"
#include "adapter/call.h"
#include "adapter/callback.h"
#include "adapter/fetch.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK_MS 60000
#define ASK_LIMIT_MS 30000

/* One sign-in while it runs. */
struct run {
        struct adapter *a;
        struct as_meta meta;
        struct json *file;   /* the token file as it was */
        struct json *client; /* who we are there */
        struct callback *callback;
        char *scope, *state, *verifier, *redirect;
};

static void run_done(struct run *r)
{
        as_meta_done(&r->meta);
        json_unref(r->file);
        json_unref(r->client);
        free(r->scope);
        free(r->state);
        free(r->verifier);
        free(r->redirect);
}

/* Asks without a token, for the challenge. 1: the server wants none. */
static int coroutine_fn ask_challenge(struct adapter *a, struct err *e)
{
        const struct up_spec spec = { .method = "tools/list",
                                      .id = upstream_next_id(&a->up),
                                      .repeatable = true,
                                      .anonymous = true,
                                      .limit_ms = ASK_LIMIT_MS };
        struct answer ans;
        int r;

        upstream_request(&a->up, &spec, &ans);
        if (ans.fate == FATE_RESULT) {
                r = 1;
        } else if (ans.fate == FATE_REFUSED) {
                challenge_done(&a->signin.challenge);
                a->signin.challenge = ans.challenge;
                ans.challenge = (struct challenge){ 0 };
                r = 0;
        } else {
                r = err_set(e, -EIO, "%.200s did not answer as expected: %s", a->config.mcp_text,
                            ans.reason.msg[0] ? err_text(&ans.reason) : "a protocol error");
        }
        answer_done(&ans);
        return r;
}

/* What to ask for: the challenge, else what the resource lists, else nothing; with what was granted already when it is
 * about more. offline_access where the server knows it, since without it there may be nothing to refresh with. */
static char *choose_scope(const struct adapter *a, const struct as_meta *m)
{
        const struct signin *s = &a->signin;
        const char *wanted = s->challenge.scope ? s->challenge.scope : m->scopes;
        _cleanup_free_ char *granted = s->wider ? scope_union(a->creds.scope, s->scope) : NULL;
        _cleanup_free_ char *all = scope_union(granted, wanted);

        return scope_union(all, m->offline_access ? "offline_access" : NULL);
}

static unsigned port_of(const char *redirect)
{
        struct url u;

        return redirect && url_parse(redirect, &u, NULL) == 0 ? u.port : 0;
}

/* The client of an earlier sign-in, if it was made by the same authorization server. */
static const struct json *known_client(const struct run *r)
{
        if (!cstr_eq(json_get_str(r->file, "issuer", NULL), r->meta.issuer))
                return NULL;
        return json_get_str(json_get(r->file, "client"), "id", NULL) ? json_get(r->file, "client") : NULL;
}

/* A client that the person has configured: a metadata document where the server reads those, or one known by name. */
static struct json *configured_client(const struct run *r)
{
        const struct config *cf = &r->a->config;
        bool document = cf->client_id && strncmp(cf->client_id, "https://", 8) == 0;
        const struct json *methods = r->meta.token_methods;
        bool post = methods != NULL;
        struct json *c;

        if (!cf->client_id || (document && !r->meta.metadata_ids))
                return NULL;
        for (size_t i = 0; i < json_len(methods); i++)
                post &= !cstr_eq(json_str(json_at(methods, i)), "client_secret_basic");
        c = json_obj();
        json_set_str(c, "id", cf->client_id);
        json_set_str(c, "secret", document ? NULL : cf->client_secret);
        json_set_str(c, "method",
                     document || !cf->client_secret ? "none"
                     : post                         ? "client_secret_post"
                                                    : "client_secret_basic");
        json_set_str(c, "redirectUri", r->redirect);
        return c;
}

/* The client is kept at once: when nobody signs in now, the next attempt needs no other one. */
static void coroutine_fn keep_client(const struct run *r)
{
        const struct tokenfile *f = &r->a->creds.file;
        _cleanup_close_ int lock = tokenfile_lock(f, LOCK_MS, NULL);
        _cleanup_json_ struct json *file = NULL;

        if (lock < 0)
                return;
        file = tokenfile_read(f, true);
        if (json_get(file, "tokens")) /* they belong to the client that is there */
                return;
        if (!file)
                file = json_obj();
        json_set_int(file, "version", 1);
        json_set_str(file, "endpoint", f->endpoint);
        json_set_str(file, "issuer", r->meta.issuer);
        json_set(file, "client", json_ref(r->client));
        (void) tokenfile_write(f, file, NULL);
        r->a->creds.stamp = tokenfile_stamp(f);
}

static int coroutine_fn choose_client(struct run *r, struct err *e)
{
        const struct json *known = known_client(r);
        int ret;

        r->client = configured_client(r);
        if (r->client)
                return 0;
        /* Servers that compare the port too (RFC 8252 §7.3 forbids it, some do) must know the present one. */
        if (known && cstr_eq(json_get_str(known, "redirectUri", NULL), r->redirect)) {
                r->client = json_ref((struct json *) (uintptr_t) known);
                return 0;
        }
        ret = oauth_register(&r->meta, r->redirect, r->scope, &r->client, e);
        if (ret == 0)
                keep_client(r);
        return ret;
}

static int coroutine_fn prepare(struct run *r, struct err *e)
{
        struct adapter *a = r->a;
        const struct json *known;
        int ret = discover(a->config.mcp_text, &a->config.mcp, a->signin.challenge.resource_metadata, &r->meta, e);

        if (ret < 0)
                return ret;
        r->scope = choose_scope(a, &r->meta);
        r->file = tokenfile_read(&a->creds.file, false);
        r->state = random_token(24);
        r->verifier = random_token(48);
        known = known_client(r);
        ret = callback_open(port_of(json_get_str(known, "redirectUri", NULL)), r->state, &r->callback, e);
        if (ret < 0)
                return ret;
        r->redirect = xasprintf("http://127.0.0.1:%u/callback", callback_port(r->callback));
        return choose_client(r, e);
}

/* RFC 9207: compared as it is, without any normalization, and required of servers that say they send it. */
static int check_answer(const struct as_meta *m, const struct callback_answer *b, struct err *e)
{
        if (b->iss ? strcmp(b->iss, m->issuer) != 0 : m->iss_required)
                return err_set(e, -EACCES, "the answer came from another authorization server than was asked");
        if (b->error)
                return err_set(e, -EACCES,
                               strcmp(b->error, "access_denied") == 0 ? "the sign-in was declined"
                                                                      : "the authorization server reported an error");
        if (!b->code || !*b->code)
                return err_set(e, -EPROTO, "the authorization server sent no code");
        return 0;
}

static int coroutine_fn save(struct run *r, const struct json *file, struct err *e)
{
        struct creds *c = &r->a->creds;
        _cleanup_close_ int lock = tokenfile_lock(&c->file, LOCK_MS, e);
        int ret;

        if (lock < 0)
                return lock;
        json_unref(tokenfile_read(&c->file, true)); /* sets aside what cannot be understood */
        ret = tokenfile_write(&c->file, file, e);
        c->stamp = tokenfile_stamp(&c->file);
        if (ret == 0)
                creds_take(c, file);
        return ret;
}

static int coroutine_fn finish(struct run *r, const struct callback_answer *b, struct err *e)
{
        const struct oauth_code code = {
                .code = b->code, .verifier = r->verifier, .redirect_uri = r->redirect, .asked_scope = r->scope
        };
        _cleanup_json_ struct json *file = NULL;
        int ret = check_answer(&r->meta, b, e);

        if (ret == 0)
                ret = oauth_exchange(&r->meta, r->client, r->a->config.mcp_text, &code, &file, e);
        return ret == 0 ? save(r, file, e) : ret;
}

static int coroutine_fn ask_person(struct run *r, struct err *e)
{
        struct signin *s = &r->a->signin;
        const struct callback_answer *answer = NULL;
        int ret;

        s->link = oauth_link(&r->meta, json_get_str(r->client, "id", ""), r->redirect, r->scope, r->state, r->verifier);
        if (!s->link)
                return err_set(e, -ENOBUFS, "the sign-in address would be too long");
        free(s->scope);
        s->scope = xstrdup(r->scope);
        s->browser = !r->a->config.no_browser && browser_open(s->link);
        waitq_wake_all(&s->changed);
        ret = callback_wait(r->callback, r->a->config.signin_ms, &answer);
        if (ret == -ETIMEDOUT)
                return err_set(e, ret, "nobody signed in within %lld minutes",
                               (long long) (r->a->config.signin_ms + 59999) / 60000);
        if (ret == 0)
                ret = finish(r, answer, e);
        callback_decide(r->callback, ret == 0, ret == 0 ? NULL : err_text(e));
        return ret;
}

static int coroutine_fn run_signin(struct run *r, struct err *e)
{
        struct adapter *a = r->a;
        int ret = 0;

        creds_load(&a->creds);
        if (!a->signin.wider && creds_ready(&a->creds))
                return 0; /* another adapter was faster */
        if (!a->signin.asked)
                ret = ask_challenge(a, e);
        if (ret > 0) {
                creds_set_open(&a->creds);
                return 0;
        }
        if (ret == 0)
                ret = prepare(r, e);
        return ret == 0 ? ask_person(r, e) : ret;
}

static void coroutine_fn signin_task(void *arg)
{
        struct adapter *a = arg;
        struct signin *s = &a->signin;
        struct run r = { .a = a };
        struct err e = { 0 };

        if (run_signin(&r, &e) < 0) {
                s->why = e;
                log_warning("sign-in: %s", err_text(&e));
        }
        free(steal_ptr(s->link));
        challenge_done(&s->challenge);
        s->asked = s->running = false;
        waitq_wake_all(&s->changed);
        callback_close(r.callback); /* the page is still on its way */
        run_done(&r);
}

void signin_init(struct signin *s)
{
        *s = (struct signin){ 0 };
        waitq_init(&s->changed);
}

void signin_start(struct adapter *a, struct challenge *challenge)
{
        struct signin *s = &a->signin;

        if (s->running || a->ending)
                return;
        s->why = (struct err){ 0 };
        s->asked = s->wider = challenge != NULL;
        challenge_done(&s->challenge);
        if (challenge) {
                s->challenge = *challenge;
                *challenge = (struct challenge){ 0 };
        }
        s->running = coro_start(signin_task, a, CORO_STACK_LARGE, "sign-in") != NULL;
        if (!s->running)
                (void) err_set(&s->why, -EAGAIN, "too much is going on at a time");
}

static void tell_link(struct adapter *a, struct call *c, const char **told)
{
        _cleanup_free_ char *text = NULL;

        if (!a->signin.link || *told == a->signin.link)
                return;
        *told = a->signin.link;
        text = xasprintf("Waiting for somebody to sign in: %s", a->signin.link);
        call_progress(c, text);
}

int coroutine_fn signin_wait(struct adapter *a, struct call *c, int64_t timeout_ms, struct err *e)
{
        int64_t until = loop_now() + timeout_ms;
        const char *told = NULL;

        while (a->signin.running && (a->signin.wider || !creds_ready(&a->creds))) {
                int64_t left = until - loop_now();

                tell_link(a, c, &told);
                if (left <= 0)
                        return -ETIMEDOUT;
                if (waitq_wait(&a->signin.changed, left) == -ECANCELED)
                        return -ECANCELED;
        }
        return a->signin.why.code ? err_set(e, a->signin.why.code, "%s", err_text(&a->signin.why)) : 0;
}

int64_t signin_patience(const struct adapter *a)
{
        int64_t ms = a->config.wait_sec * 1000;

        return ms < 5000 ? 5000 : ms > a->config.signin_ms ? a->config.signin_ms : ms;
}

/* Another adapter of the same endpoint may have signed in: its file is ours too. */
static void coroutine_fn look(void *arg)
{
        struct adapter *a = arg;

        creds_load(&a->creds);
        a->signin.looking = false;
        if (creds_ready(&a->creds))
                waitq_wake_all(&a->signin.changed);
}

#define WATCH_MS 2000

static void on_watch(void *arg)
{
        struct adapter *a = arg;

        if (a->creds.state != CREDS_OUT || a->signin.looking || a->ending ||
            tokenfile_stamp(&a->creds.file) == a->creds.stamp)
                return;
        a->signin.looking = coro_start(look, a, CORO_STACK_LARGE, "token file") != NULL;
}

void signin_watch(struct adapter *a)
{
        if (!a->signin.watch && a->creds.state == CREDS_OUT)
                a->signin.watch = timer_start(WATCH_MS, WATCH_MS, on_watch, a);
}
