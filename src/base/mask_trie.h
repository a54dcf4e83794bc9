/*
 * mask_trie: the automaton behind base/mask.h (Aho and Corasick, 1975), made for few branches: a node with one child
 * costs 24 bytes, one with more a table. The struct owns everything; nothing suspends.
 */
#pragma once

#include "base/buf.h"

#define TRIE_NODES_MAX ((size_t) 4 << 20)

struct trie_node {
        uint32_t fail;        /* the longest proper suffix that is a node too */
        uint32_t longest;     /* length of the longest pattern that ends here, 0: none does */
        uint32_t depth, next; /* next: the only child, or TRIE_BRANCH and a table's number, or TRIE_NONE */
        uint16_t rule;        /* whose pattern that is */
        uint16_t owner;       /* whose pattern made this node */
        unsigned char byte;
};

struct trie_pattern {
        uint32_t at, len; /* in text */
        uint16_t rule;
};

struct trie {
        struct trie_node *nodes; /* 0 is the root */
        size_t n, cap;
        uint32_t (*tables)[256];
        size_t n_tables, cap_tables;
        struct buf text; /* of all patterns */
        struct trie_pattern *patterns;
        size_t n_patterns, cap_patterns;
        size_t longest; /* of the patterns */
};

#define TRIE_NONE UINT32_MAX
#define TRIE_BRANCH ((uint32_t) 1 << 31)

void trie_init(struct trie *t);
void trie_done(struct trie *t); /* wipes it */
/* -E2BIG; empty patterns are passed over. */
int trie_add(struct trie *t, struct str pattern, uint16_t rule);
/* After the last pattern. */
void trie_link(struct trie *t);

static inline uint32_t trie_child(const struct trie *t, uint32_t node, unsigned char c)
{
        uint32_t next = t->nodes[node].next;

        if (next == TRIE_NONE)
                return 0;
        if (next & TRIE_BRANCH)
                return t->tables[next & ~TRIE_BRANCH][c];
        return t->nodes[next].byte == c ? next : 0;
}

/* From one state to the next; a byte costs a constant, on average over any text. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char c)
{
        uint32_t child;

        while (!(child = trie_child(t, node, c)) && node)
                node = t->nodes[node].fail;
        return child;
}

/* The longest beginning of text that some pattern ends with; *ret_rule: whose. */
size_t trie_fragment(const struct trie *t, struct str text, uint16_t *ret_rule);
