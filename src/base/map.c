#include "base/map.h"
#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>

#define FIRST_SIZE 16

struct node {
        struct node *next;
        uint64_t hash;
        void *value;
        size_t n;
        char key[];
};

/* Chaining, so that removing an entry moves no other: map_each depends on it. */
struct map {
        struct node **slots;
        size_t size; /* a power of two */
        size_t len;
};

struct map *map_new(void)
{
        struct map *m = xcalloc(1, sizeof *m);

        m->size = FIRST_SIZE;
        m->slots = xcalloc(m->size, sizeof *m->slots);
        return m;
}

void map_free(struct map *m)
{
        if (!m)
                return;
        for (size_t i = 0; i < m->size; i++)
                for (struct node *n = m->slots[i], *next; n; n = next) {
                        next = n->next;
                        free(n);
                }
        free(m->slots);
        free(m);
}

void map_freep(struct map **m)
{
        map_free(*m);
}

/* The link that points to the node with this key, or to the NULL at the end of its chain. */
static struct node **find(const struct map *m, struct str key, uint64_t hash)
{
        struct node **at = &m->slots[hash & (m->size - 1)];

        while (*at && !((*at)->hash == hash && str_eq(str_n((*at)->key, (*at)->n), key)))
                at = &(*at)->next;
        return at;
}

void *map_get(const struct map *m, struct str key)
{
        struct node *n = *find(m, key, hash_bytes(key.p, key.n));

        return n ? n->value : NULL;
}

static void enlarge(struct map *m)
{
        size_t size = m->size * 2;
        struct node **slots = xcalloc(size, sizeof *slots);

        for (size_t i = 0; i < m->size; i++)
                for (struct node *n = m->slots[i], *next; n; n = next) {
                        struct node **at = &slots[n->hash & (size - 1)];

                        next = n->next;
                        n->next = *at;
                        *at = n;
                }
        free(m->slots);
        m->slots = slots;
        m->size = size;
}

void *map_put(struct map *m, struct str key, void *value)
{
        uint64_t hash = hash_bytes(key.p, key.n);
        struct node **at = find(m, key, hash);
        struct node *n = *at;

        if (n) {
                void *old = n->value;

                n->value = value;
                return old;
        }
        n = xmalloc(sizeof *n + key.n);
        *n = (struct node){ .hash = hash, .value = value, .n = key.n };
        if (key.n)
                memcpy(n->key, key.p, key.n);
        *at = n;
        if (++m->len > m->size)
                enlarge(m);
        return NULL;
}

void *map_del(struct map *m, struct str key)
{
        struct node **at = find(m, key, hash_bytes(key.p, key.n));
        struct node *n = *at;

        if (!n)
                return NULL;
        void *value = n->value;
        *at = n->next;
        free(n);
        m->len--;
        return value;
}

size_t map_len(const struct map *m)
{
        return m->len;
}

int map_each(struct map *m, int (*fn)(struct str key, void *value, void *arg), void *arg)
{
        for (size_t i = 0; i < m->size; i++)
                for (struct node *n = m->slots[i], *next; n; n = next) {
                        next = n->next; /* fn may remove n */
                        int r = fn(str_n(n->key, n->n), n->value, arg);
                        if (r != 0)
                                return r;
                }
        return 0;
}
