/*
 * creds: what this process proves itself with: the API key, or the tokens of a sign-in that all adapters of one
 * endpoint share through the token file. It reads the file when first needed, and refreshes when a token ends or was
 * refused.
 *
 * A refresh runs in a process of its own, which holds the file's lock and outlives this one: hosts end adapters at any
 * moment, by SIGKILL too, and an answer that nobody writes down would cost the person a new sign-in.
 */
#pragma once

#include "adapter/config.h"
#include "adapter/oauth.h"
#include "loop/wait.h"

enum creds_state {
        CREDS_UNKNOWN, /* the file was not looked at yet */
        CREDS_KEY,
        CREDS_OPEN, /* the server asks for nothing */
        CREDS_OUT,  /* a sign-in is needed */
        CREDS_IN,
};

#define CREDS_HEADER_MAX 8320

struct creds {
        const struct config *config;
        struct tokenfile file;
        enum creds_state state;
        char authorization[CREDS_HEADER_MAX]; /* "" without; changes in place */
        char *scope;                          /* what was granted, or NULL */
        int64_t expires_at;                   /* Unix ms, 0: not told */
        uint64_t generation;                  /* another number with each token */
        uint64_t stamp;                       /* of the file when it was read last */
        bool can_refresh;
        bool refreshing;
        enum refreshed outcome;
        struct err why;
        struct waitq refreshed;
        void (*changed)(void *arg); /* signed in, or out; never suspends */
        void *arg;
};

int creds_init(struct creds *c, const struct config *config, struct err *e);
/* Looks at the file if that was not done yet, or if it is another one and we are signed out. */
void coroutine_fn creds_load(struct creds *c);
bool creds_ready(const struct creds *c); /* a tool call makes sense */
static inline bool creds_by_sign_in(const struct creds *c)
{
        return c->state == CREDS_IN || c->state == CREDS_OUT;
}

/* Before a request: loads, and refreshes what ends within min_left_ms. 0, -EACCES (sign in), -EAGAIN (could not be
 * refreshed now), -ECANCELED. */
int coroutine_fn creds_use(struct creds *c, int64_t min_left_ms, struct err *e);
/* The server refused the token of this generation. 0: there is another one now; else as creds_use. */
int coroutine_fn creds_refused(struct creds *c, uint64_t generation, struct err *e);
/* Takes over what a token file says. */
void creds_take(struct creds *c, const struct json *file);
void creds_set_open(struct creds *c);
/* What we have is of no use, whatever the file says: out until the file is another one. */
void creds_drop(struct creds *c);

/* The program's other mode: refreshes and exits. The lock is descriptor 3. */
_Noreturn void creds_refresh_main(void);
