#include "adapter/creds.h"
#include "base/clock.h"
#include "base/mem.h"
#include "loop/child.h"
#include "loop/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOCK_WAIT_MS 60000
#define REASON_MAX 400

int creds_init(struct creds *c, const struct config *config, struct err *e)
{
        *c = (struct creds){ .config = config };
        waitq_init(&c->refreshed);
        if (!config->key)
                return tokenfile_init(&c->file, config->auth_dir, config->mcp_text, e);
        c->state = CREDS_KEY;
        if ((size_t) snprintf(c->authorization, sizeof c->authorization, "Bearer %s", config->key) >=
            sizeof c->authorization)
                return err_set(e, -EINVAL, "PARALLELSANDBOX_API_KEY is too long to be a key");
        return 0;
}

bool creds_ready(const struct creds *c)
{
        return c->state == CREDS_KEY || c->state == CREDS_OPEN || c->state == CREDS_IN;
}

static void set_state(struct creds *c, enum creds_state state)
{
        bool known = c->state != CREDS_UNKNOWN, before = creds_ready(c);

        c->state = state;
        if (state == CREDS_OUT) {
                c->authorization[0] = '\0';
                c->generation++;
        }
        if (known && before != creds_ready(c) && c->changed)
                c->changed(c->arg);
}

void creds_set_open(struct creds *c)
{
        c->authorization[0] = '\0';
        set_state(c, CREDS_OPEN);
}

void creds_drop(struct creds *c)
{
        c->stamp = tokenfile_stamp(&c->file);
        set_state(c, CREDS_OUT);
}

void creds_take(struct creds *c, const struct json *file)
{
        const struct json *tokens = json_get(file, "tokens");
        const char *access = json_get_str(tokens, "access", NULL);

        if (!access || json_get(file, "refreshing") || strlen(access) + 8 >= sizeof c->authorization) {
                set_state(c, CREDS_OUT);
                return;
        }
        if (strcmp(c->authorization, "") == 0 || strcmp(c->authorization + 7, access) != 0)
                c->generation++;
        (void) snprintf(c->authorization, sizeof c->authorization, "Bearer %s", access);
        free(c->scope);
        c->scope = xstrdup(json_get_str(tokens, "scope", NULL));
        c->expires_at = json_get_int(tokens, "expiresAt", 0);
        c->can_refresh = json_get(tokens, "refresh") != NULL;
        set_state(c, CREDS_IN);
}

/* A file that is marked may belong to a refresh that is running at this moment: its token is not good any more, but it
 * is too early to say that there will be no other. The lock tells. */
static void coroutine_fn load(struct creds *c)
{
        _cleanup_json_ struct json *file = NULL;

        c->stamp = tokenfile_stamp(&c->file);
        file = tokenfile_read(&c->file, false);
        if (json_get(file, "refreshing") && json_get_str(json_get(file, "tokens"), "access", NULL)) {
                _cleanup_close_ int fd = tokenfile_lock(&c->file, LOCK_WAIT_MS, NULL);

                json_unrefp(&file);
                c->stamp = tokenfile_stamp(&c->file);
                file = tokenfile_read(&c->file, fd >= 0);
        }
        creds_take(c, file);
}

void coroutine_fn creds_load(struct creds *c)
{
        if (c->state == CREDS_UNKNOWN || (c->state == CREDS_OUT && tokenfile_stamp(&c->file) != c->stamp))
                load(c);
}

static enum refreshed coroutine_fn in_process(struct creds *c)
{
        return oauth_refresh(&c->file, &c->why);
}

static enum refreshed coroutine_fn read_outcome(struct child *child, struct err *why)
{
        struct stream *s = child_stdio(child, 1);
        char text[REASON_MAX];
        size_t n = 0;

        while (n < sizeof text - 1) {
                ssize_t got = stream_read(s, text + n, sizeof text - 1 - n, -1);

                if (got <= 0)
                        break;
                n += (size_t) got;
        }
        text[n] = '\0';
        (void) err_set(why, -EACCES, "%s", n ? text : "refreshing the sign-in ended without an answer");
        int status = child_wait(child, -1);
        return status == REFRESH_DONE || status == REFRESH_LATER ? (enum refreshed) status : REFRESH_ENDED;
}

/* The lock is held by this process and by the one that refreshes, until both have closed it. */
static enum refreshed coroutine_fn refresh_apart(struct creds *c, int lock)
{
        const char *const argv[] = { c->config->self, REFRESH_ARG, NULL };
        const struct child_spec spec = { .argv = argv,
                                         .io = { CHILD_NULL, CHILD_PIPE, CHILD_NULL },
                                         .new_session = true,
                                         .extra = &lock,
                                         .extra_n = 1 };
        struct child *child = NULL;
        enum refreshed r;

        if (!c->config->self || child_spawn(&spec, &child, NULL) < 0)
                return in_process(c);
        r = read_outcome(child, &c->why);
        child_free(child);
        return r;
}

static enum refreshed coroutine_fn refresh_locked(struct creds *c)
{
        _cleanup_close_ int lock = tokenfile_lock(&c->file, LOCK_WAIT_MS, &c->why);
        _cleanup_json_ struct json *file = NULL, *after = NULL;
        enum refreshed r;

        if (lock < 0)
                return REFRESH_LATER;
        file = tokenfile_read(&c->file, true);
        const char *access = json_get_str(json_get(file, "tokens"), "access", NULL);
        if (access && !json_get(file, "refreshing") && c->authorization[0] &&
            strcmp(c->authorization + 7, access) != 0) {
                creds_take(c, file); /* another adapter was faster */
                return REFRESH_DONE;
        }
        r = refresh_apart(c, lock);
        c->stamp = tokenfile_stamp(&c->file);
        after = tokenfile_read(&c->file, true);
        if (r == REFRESH_LATER)
                return r;
        creds_take(c, after);
        return c->state == CREDS_IN ? r : REFRESH_ENDED;
}

static void coroutine_fn refresh_task(void *arg)
{
        struct creds *c = arg;

        c->why = (struct err){ 0 };
        c->outcome = refresh_locked(c);
        c->refreshing = false;
        waitq_wake_all(&c->refreshed);
}

/* One refresh at a time; who comes meanwhile waits for its outcome. Not in the caller's coroutine: a call that is
 * cancelled must not take the refresh with it. */
static int coroutine_fn refresh(struct creds *c, struct err *e)
{
        if (!c->refreshing) {
                c->refreshing = coro_start(refresh_task, c, CORO_STACK_LARGE, "refresh") != NULL;
                if (!c->refreshing)
                        return err_set(e, -EAGAIN, "too much is going on at a time");
        }
        while (c->refreshing)
                if (waitq_wait(&c->refreshed, -1) == -ECANCELED)
                        return -ECANCELED;
        if (c->outcome == REFRESH_DONE)
                return 0;
        return err_set(e, c->outcome == REFRESH_LATER ? -EAGAIN : -EACCES, "%s", err_text(&c->why));
}

int coroutine_fn creds_use(struct creds *c, int64_t min_left_ms, struct err *e)
{
        int64_t left;
        int r;

        creds_load(c);
        if (c->state == CREDS_OUT)
                return err_set(e, -EACCES, "nobody is signed in");
        if (c->state != CREDS_IN || !c->expires_at)
                return 0;
        left = c->expires_at - wall_ms();
        if (left > min_left_ms || (left > 0 && !c->can_refresh))
                return 0;
        r = refresh(c, e);
        if (r == -EAGAIN && left > 0) /* it is good for a moment yet */
                return 0;
        return r;
}

int coroutine_fn creds_refused(struct creds *c, uint64_t generation, struct err *e)
{
        if (c->state == CREDS_IN && c->generation != generation)
                return 0;
        if (c->state != CREDS_IN)
                return err_set(e, -EACCES, "nobody is signed in");
        return refresh(c, e);
}

/* The other mode */

static int refresh_code = 1;

static void coroutine_fn refresh_main_task(void *arg)
{
        struct tokenfile *f = arg;
        struct err e = { 0 };

        refresh_code = (int) oauth_refresh(f, &e);
        if (refresh_code != REFRESH_DONE)
                (void) !write(STDOUT_FILENO, err_text(&e), strlen(err_text(&e)));
        loop_stop();
}

_Noreturn void creds_refresh_main(void)
{
        static struct config config;
        struct tokenfile f;
        struct err e = { 0 };

        if (config_read(&config, &e) < 0 || tokenfile_init(&f, config.auth_dir, config.mcp_text, &e) < 0 ||
            loop_init(&e) < 0)
                _exit(REFRESH_LATER);
        if (!coro_start(refresh_main_task, &f, CORO_STACK_LARGE, "refresh"))
                _exit(REFRESH_LATER);
        loop_run();
        _exit(refresh_code); /* everything is written, and nothing is worth freeing */
}
