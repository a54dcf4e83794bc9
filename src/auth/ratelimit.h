/*
 * ratelimit: how soon somebody may try again. A fixed number of counters; the one that matters least is given up when
 * all are in use. Time is the caller's, so that tests have their own. Nothing here suspends or allocates after
 * ratelimit_new.
 */
#pragma once

#include "base/str.h"

struct ratelimit;
struct ratelimit *ratelimit_new(size_t counters);
void ratelimit_free(struct ratelimit *l);

struct limit_rule {
        unsigned free;           /* tries without any wait */
        int64_t base_ms, max_ms; /* then base, 2·base, 4·base … max */
        int64_t forget_ms;       /* after so long without a try it starts anew */
};

/*
 * Charges a try of key. 0: go on. Else the milliseconds until the next try is looked at: this one was not, and costs
 * nothing. Charged before the work is done, so that many at once gain nothing.
 */
int64_t limit_charge(struct ratelimit *l, struct str key, const struct limit_rule *rule, int64_t now);
/* The try was a good one: it is taken back, or everything before it as well. */
void limit_refund(struct ratelimit *l, struct str key);
void limit_clear(struct ratelimit *l, struct str key);

/* A steady rate with a burst: 0, or the milliseconds to wait. */
int64_t limit_take(struct ratelimit *l, struct str key, unsigned burst, int64_t every_ms, int64_t now);
size_t limit_used(const struct ratelimit *l);
