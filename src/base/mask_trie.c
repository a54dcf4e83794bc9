#include "base/mask_trie.h"

#include "base/mem.h"
#include "base/seal.h"

#include <errno.h>
#include <stdlib.h>

/* Growing would leave a copy of the old bytes behind: it is wiped. */
static void *grow(void *p, size_t *cap, size_t size)
{
        size_t want = *cap ? *cap * 2 : 64;
        char *fresh = xmalloc(want * size);

        if (p) {
                memcpy(fresh, p, *cap * size);
                mem_wipe(p, *cap * size);
                free(p);
        }
        *cap = want;
        return fresh;
}

static uint32_t add_table(struct trie *t)
{
        if (t->n_tables == t->cap_tables)
                t->tables = grow(t->tables, &t->cap_tables, sizeof *t->tables);
        memset(t->tables[t->n_tables], 0, sizeof *t->tables);
        return (uint32_t) t->n_tables++;
}

static uint32_t add_node(struct trie *t, uint32_t parent, unsigned char byte, uint16_t rule)
{
        if (t->n == t->cap)
                t->nodes = grow(t->nodes, &t->cap, sizeof *t->nodes);
        uint32_t self = (uint32_t) t->n++;
        t->nodes[self] = (struct trie_node){
                .depth = t->nodes[parent].depth + 1, .next = TRIE_NONE, .owner = rule, .byte = byte
        };
        uint32_t next = t->nodes[parent].next;
        if (next == TRIE_NONE) {
                t->nodes[parent].next = self;
                return self;
        }
        if (!(next & TRIE_BRANCH)) {
                uint32_t table = add_table(t);

                t->tables[table][t->nodes[next].byte] = next;
                next = t->nodes[parent].next = TRIE_BRANCH | table;
        }
        t->tables[next & ~TRIE_BRANCH][byte] = self;
        return self;
}

void trie_init(struct trie *t)
{
        *t = (struct trie){ .text = BUF_MAX(TRIE_NODES_MAX) };
        t->nodes = grow(NULL, &t->cap, sizeof *t->nodes);
        /* The root has a table from the start: most bytes of a text are looked up there. */
        t->nodes[0] = (struct trie_node){ .next = TRIE_BRANCH | add_table(t) };
        t->n = 1;
}

void trie_done(struct trie *t)
{
        if (t->nodes)
                mem_wipe(t->nodes, t->cap * sizeof *t->nodes);
        if (t->tables)
                mem_wipe(t->tables, t->cap_tables * sizeof *t->tables);
        if (t->text.p)
                mem_wipe(t->text.p, t->text.cap);
        free(t->nodes);
        free(t->tables);
        free(t->patterns);
        buf_done(&t->text);
        *t = (struct trie){ 0 };
}

static int keep_pattern(struct trie *t, struct str p, uint16_t rule)
{
        if (t->text.len + p.n > t->text.cap) { /* grown by hand, for the wiping */
                size_t cap = t->text.cap;

                while (t->text.len + p.n > cap)
                        cap = cap ? cap * 2 : 4096;
                if (cap > TRIE_NODES_MAX)
                        return -E2BIG;
                char *fresh = xmalloc(cap);
                if (t->text.p) {
                        memcpy(fresh, t->text.p, t->text.len);
                        mem_wipe(t->text.p, t->text.cap);
                        free(t->text.p);
                }
                t->text.p = fresh;
                t->text.cap = cap;
        }
        if (t->n_patterns == t->cap_patterns)
                t->patterns = grow(t->patterns, &t->cap_patterns, sizeof *t->patterns);
        t->patterns[t->n_patterns++] = (struct trie_pattern){ (uint32_t) t->text.len, (uint32_t) p.n, rule };
        memcpy(t->text.p + t->text.len, p.p, p.n);
        t->text.len += p.n;
        return 0;
}

int trie_add(struct trie *t, struct str p, uint16_t rule)
{
        uint32_t node = 0;

        if (p.n == 0)
                return 0;
        if (t->n + p.n > TRIE_NODES_MAX)
                return -E2BIG;
        for (size_t i = 0; i < p.n; i++) {
                unsigned char c = (unsigned char) p.p[i];
                uint32_t child = trie_child(t, node, c);

                node = child ? child : add_node(t, node, c, rule);
        }
        if (t->nodes[node].longest)
                return 0; /* another spelling is written the same */
        t->nodes[node].longest = t->nodes[node].depth;
        t->nodes[node].rule = rule;
        t->longest = max_size(t->longest, p.n);
        return keep_pattern(t, p, rule);
}

static void link_child(struct trie *t, uint32_t parent, uint32_t child)
{
        struct trie_node *c = &t->nodes[child];

        c->fail = parent ? trie_step(t, t->nodes[parent].fail, c->byte) : 0;
        if (!c->longest) {
                c->longest = t->nodes[c->fail].longest;
                c->rule = t->nodes[c->fail].rule;
        }
}

void trie_link(struct trie *t)
{
        _cleanup_free_ uint32_t *queue = xmalloc(t->n * sizeof *queue);
        size_t head = 0, tail = 0;

        queue[tail++] = 0;
        while (head < tail) {
                uint32_t node = queue[head++], next = t->nodes[node].next;

                if (next == TRIE_NONE)
                        continue;
                if (!(next & TRIE_BRANCH)) {
                        link_child(t, node, next);
                        queue[tail++] = next;
                        continue;
                }
                for (size_t c = 0; c < 256; c++) {
                        uint32_t child = t->tables[next & ~TRIE_BRANCH][c];

                        if (!child)
                                continue;
                        link_child(t, node, child);
                        queue[tail++] = child;
                }
        }
}

/* Knuth, Morris and Pratt, with the text as what is looked for: it is found in part at the end of each pattern. */
size_t trie_fragment(const struct trie *t, struct str text, uint16_t *ret_rule)
{
        size_t n = min_size(text.n, t->longest), best = 0;

        if (n == 0)
                return 0;
        _cleanup_free_ uint32_t *back = xmalloc(n * sizeof *back);
        back[0] = 0;
        for (size_t i = 1, q = 0; i < n; i++) {
                while (q && text.p[q] != text.p[i])
                        q = back[q - 1];
                if (text.p[q] == text.p[i])
                        q++;
                back[i] = (uint32_t) q;
        }
        for (size_t k = 0; k < t->n_patterns; k++) {
                const char *p = t->text.p + t->patterns[k].at;
                size_t q = 0;

                for (size_t i = 0; i < t->patterns[k].len; i++) {
                        while (q && (q == n || text.p[q] != p[i]))
                                q = back[q - 1];
                        if (text.p[q] == p[i])
                                q++;
                }
                if (q > best) {
                        best = q;
                        *ret_rule = t->patterns[k].rule;
                }
        }
        return best;
}
