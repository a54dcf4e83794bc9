/*
 * plan: the one exchange that tells what the box lacks. Encoding and decoding are pure; plan_ask suspends.
 */
#pragma once

#include "sync/rest.h"
#include "sync/tree.h"

struct plan {
        bool exists, is_file;
        bool unknown;   /* the server cannot compare: everything is needed, and nothing else is known */
        uint32_t *need; /* indices into tree->v of what must be sent, ascending */
        size_t need_n;
        int64_t extra_count;
        bool extras_partial;
        struct buf extras; /* raw paths, NUL terminated: files of dest that are not in the plan */
};

void plan_done(struct plan *p);

/* Every ENTRY_OK of t in order; map[i] is the index in t->v of the i-th plan entry. */
int plan_encode(const struct tree *t, struct buf *out, uint32_t **map, size_t *n);
/* u32 length + JSON header + u32 indices. -EPROTO with a reason for anything that does not fit the plan that was sent.
 */
int plan_decode(struct str answer, const uint32_t *map, size_t n, struct plan *ret, struct err *e);

/*
 * An exchange that is opened before the local tree is known: the box reads its side of dest meanwhile. It may fail, and
 * may be dropped at any time; plan_ask then asks anew.
 */
struct plan_early {
        struct hc *x;
};
void coroutine_fn plan_early_open(const struct sync_env *env, const char *id, const char *dest, struct plan_early *ret);
void plan_early_close(struct plan_early *p);

/* dest is below /work, "" for /work itself. early may be NULL; it is used up. Tried twice when the connection breaks:
 * asking changes nothing. */
int coroutine_fn plan_ask(const struct sync_env *env, const char *id, const char *dest, const struct tree *t,
                          struct plan_early *early, struct plan *ret, struct err *e);
