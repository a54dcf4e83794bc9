#include "auth/ratelimit.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>

#define WAYS 8

struct counter {
        uint64_t key; /* 0: free */
        unsigned tries;
        int64_t next; /* no try is looked at before; for limit_take: the theoretical arrival time */
        int64_t forget_at;
};

struct ratelimit {
        size_t sets;
        struct counter *v;
};

struct ratelimit *ratelimit_new(size_t counters)
{
        struct ratelimit *l = xcalloc(1, sizeof *l);

        l->sets = max_size(counters / WAYS, 1);
        l->v = xcalloc(l->sets * WAYS, sizeof *l->v);
        return l;
}

void ratelimit_free(struct ratelimit *l)
{
        if (!l)
                return;
        free(l->v);
        free(l);
}

static uint64_t key_hash(struct str key)
{
        uint64_t h = hash_bytes(key.p, key.n);

        return h ? h : 1;
}

static struct counter *find(struct ratelimit *l, struct str key)
{
        uint64_t h = key_hash(key);
        struct counter *set = l->v + (h % l->sets) * WAYS;

        for (size_t i = 0; i < WAYS; i++)
                if (set[i].key == h)
                        return &set[i];
        return NULL;
}

/* A counter for key; when its set is full the one that ends first gives way: one with many tries lasts longer. */
static struct counter *claim(struct ratelimit *l, struct str key, int64_t now)
{
        uint64_t h = key_hash(key);
        struct counter *set = l->v + (h % l->sets) * WAYS, *best = NULL;

        for (size_t i = 0; i < WAYS; i++) {
                if (set[i].key && set[i].forget_at <= now)
                        set[i] = (struct counter){ 0 };
                if (set[i].key == h)
                        return &set[i];
                if (!best || (best->key && (!set[i].key || set[i].tries < best->tries ||
                                            (set[i].tries == best->tries && set[i].forget_at < best->forget_at))))
                        best = &set[i];
        }
        *best = (struct counter){ .key = h };
        return best;
}

static int64_t pause_after(const struct limit_rule *rule, unsigned tries)
{
        int64_t ms = rule->base_ms;

        if (tries <= rule->free)
                return 0;
        for (unsigned i = rule->free + 1; i < tries && ms < rule->max_ms; i++)
                ms *= 2;
        return ms < rule->max_ms ? ms : rule->max_ms;
}

int64_t limit_charge(struct ratelimit *l, struct str key, const struct limit_rule *rule, int64_t now)
{
        struct counter *c = claim(l, key, now);

        if (c->next > now)
                return c->next - now;
        if (c->tries < 1000000)
                c->tries++;
        c->next = now + pause_after(rule, c->tries);
        c->forget_at = c->next + rule->forget_ms;
        return 0;
}

void limit_refund(struct ratelimit *l, struct str key)
{
        struct counter *c = find(l, key);

        if (!c || !c->tries)
                return;
        c->tries--;
        c->next = 0;
}

void limit_clear(struct ratelimit *l, struct str key)
{
        struct counter *c = find(l, key);

        if (c)
                *c = (struct counter){ 0 };
}

int64_t limit_take(struct ratelimit *l, struct str key, unsigned burst, int64_t every_ms, int64_t now)
{
        struct counter *c = claim(l, key, now);
        int64_t at = c->next > now ? c->next : now;
        int64_t ahead = at - now - (int64_t) (burst - 1) * every_ms;

        if (ahead > 0)
                return ahead;
        c->next = at + every_ms;
        c->forget_at = c->next;
        c->tries = 1;
        return 0;
}

size_t limit_used(const struct ratelimit *l)
{
        size_t n = 0;

        for (size_t i = 0; i < l->sets * WAYS; i++)
                n += l->v[i].key != 0;
        return n;
}
