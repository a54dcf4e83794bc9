/* list: an intrusive, circular, doubly linked list. A node is in one list at most; an unlinked node is zeroed. */
#pragma once

#include "base/mem.h"

struct list {
        struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
        l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
        return l->next == l;
}

static inline bool list_linked(const struct list *n)
{
        return n->next != NULL;
}

static inline void list_append(struct list *head, struct list *n)
{
        n->prev = head->prev;
        n->next = head;
        head->prev->next = n;
        head->prev = n;
}

static inline void list_remove(struct list *n)
{
        if (!n->next)
                return;
        n->prev->next = n->next;
        n->next->prev = n->prev;
        n->next = n->prev = NULL;
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
#define list_for_each_safe(it, head) \
        for (struct list *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)
