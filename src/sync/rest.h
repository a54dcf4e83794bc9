/*
 * rest: calls to /v1 of the server, with one limit that counts what really moves: a watch ends an exchange on which no
 * byte moved for too long, and turns what moved into a line for the caller every 10 s. All calls suspend.
 */
#pragma once

#include "loop/loop.h"
#include "sync/sync.h"

struct watch {
        const struct sync_env *env;
        struct timer *timer;
        struct hc *x;
        const char *what;            /* "uploading to /work/repo" */
        uint64_t moved, seen, total; /* bytes; total 0 when unknown */
        int64_t limit_ms, quiet_ms, last_tick, last_told;
        bool stalled;
};

void watch_start(struct watch *w, const struct sync_env *env, struct hc *x, const char *what, int64_t limit_ms);
void watch_stop(struct watch *w);
static inline void watch_moved(struct watch *w, size_t n)
{
        w->moved += n;
}

struct rest_answer {
        unsigned status;
        struct buf body;
        bool not_sent; /* nothing can have reached the server */
        bool lost;     /* the connection broke, before or during the answer */
};

/* "/v1/boxes/{id}/{op}?dest=…" with the base's prefix; id and dest are escaped. */
int rest_box_path(const struct sync_env *env, struct buf *out, const char *id, const char *op, const char *dest);
/* One header list: what the environment gives, then the extra pairs (up to 4). Valid as long as env and extra. */
#define REST_HEADERS_MAX 40
void rest_headers(const struct sync_env *env, const char *out[REST_HEADERS_MAX], const char *const *extra);

/* POSTs a whole body. 0 when an answer came, whatever its status. */
int coroutine_fn rest_post(const struct sync_env *env, const char *path, const char *type, const struct buf *body,
                           const char *what, size_t answer_max, struct rest_answer *ret, struct err *e);
/* Reads the answer of an open exchange into ret. */
int coroutine_fn rest_finish(struct hc *x, struct watch *w, size_t answer_max, struct rest_answer *ret, struct err *e);
/* Sets e from an answer that is no success: the server's own sentence with the status. Returns a negative errno. */
int rest_fail(const struct rest_answer *a, struct err *e);
