/*
 * Stacks: one mapping each, the lowest part of it without access. -fstack-clash-protection touches every page on the
 * way down, but libraries are built without it: a guard of four pages stops their larger frames too and costs address
 * space only.
 */
#include "loop/coro_switch.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "loop/coro.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define STACK_FACTOR 2 /* red zones make frames larger */
#else
#define STACK_FACTOR 1
#endif

#ifndef MAP_STACK
#define MAP_STACK 0
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

#define GUARD_PAGES 4
/* Per size class: the last few stacks given back keep their pages (the next request takes them warm), the others do
 * not. */
#define POOL_WARM 64
#define POOL_MAX 1024

struct pooled {
        struct cstack s;
        bool warm;
};

static struct pool {
        size_t usable;
        struct pooled *stacks; /* a stack of stacks: warm ones on top */
        size_t n;
} pools[] = { { CORO_STACK_DEFAULT, NULL, 0 }, { CORO_STACK_LARGE, NULL, 0 } };

static struct pool *pool_for(size_t usable)
{
        for (size_t i = 0; i < ARRAY_LEN(pools); i++)
                if (pools[i].usable == usable)
                        return &pools[i];
        return NULL;
}

static int stack_map(struct cstack *s, size_t usable)
{
        size_t page = (size_t) sysconf(_SC_PAGESIZE);
        size_t guard = GUARD_PAGES * page;
        size_t size = (usable * STACK_FACTOR + page - 1) / page * page;
        char *p = mmap(NULL, guard + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

        if (p == MAP_FAILED)
                return -ENOMEM;
        if (mprotect(p + guard, size, PROT_READ | PROT_WRITE) < 0) {
                munmap(p, guard + size);
                return -ENOMEM; /* vm.max_map_count: two mappings per stack */
        }
#ifdef MADV_NOHUGEPAGE
        /* A huge page for the first touched byte would be the whole stack. Fails harmlessly without THP. */
        (void) madvise(p + guard, size, MADV_NOHUGEPAGE);
#endif
        *s = (struct cstack){ .map = p, .map_size = guard + size, .lo = p + guard, .size = size };
#ifdef WITH_ASAN
        /* LSan looks for pointers only in stacks of threads. The guard must stay out: reading it would kill the
         * process. */
        __lsan_register_root_region(s->lo, s->size);
#endif
        return 0;
}

static void stack_unmap(struct cstack *s)
{
#ifdef WITH_ASAN
        __lsan_unregister_root_region(s->lo, s->size);
        __asan_unpoison_memory_region(s->lo, s->size);
#endif
        munmap(s->map, s->map_size);
        *s = (struct cstack){ 0 };
}

static void give_back(void *p, size_t n)
{
#ifdef __linux__
        (void) madvise(p, n, MADV_DONTNEED);
#elif defined(MADV_FREE)
        (void) madvise(p, n, MADV_FREE);
#endif
}

static void stack_cool(struct cstack *s)
{
#ifdef WITH_ASAN
        __asan_unpoison_memory_region(s->lo, s->size);
#endif
        give_back(s->lo, s->size);
}

void cstack_trim(const struct cstack *s, const void *sp)
{
        uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
        /* The frame of the switch itself and the red zone are less than a page. */
        uintptr_t end = ((uintptr_t) sp - page) / page * page;

        if (end > (uintptr_t) s->lo)
                give_back(s->lo, end - (uintptr_t) s->lo);
}

int cstack_get(struct cstack *s, size_t usable)
{
        struct pool *p = pool_for(usable);

        if (p && p->n > 0) {
                *s = p->stacks[--p->n].s;
                return 0;
        }
        return stack_map(s, usable);
}

void cstack_put(struct cstack *s)
{
        struct pool *p = pool_for(s->size / STACK_FACTOR);
        bool warm = true;

        if (!p || p->n == POOL_MAX) {
                stack_unmap(s);
                return;
        }
        if (!p->stacks)
                p->stacks = xcalloc(POOL_MAX, sizeof(*p->stacks));
#ifdef WITH_ASAN
        warm = false; /* stale frames would hide leaks from LSan */
#endif
        /* The one that leaves the warm top gives its pages back. Warm stacks below it were pushed at lower heights. */
        if (p->n >= POOL_WARM && p->stacks[p->n - POOL_WARM].warm) {
                stack_cool(&p->stacks[p->n - POOL_WARM].s);
                p->stacks[p->n - POOL_WARM].warm = false;
        }
        if (!warm)
                stack_cool(s);
        p->stacks[p->n++] = (struct pooled){ *s, warm };
        *s = (struct cstack){ 0 };
}

void cstack_pool_done(void)
{
        for (size_t i = 0; i < ARRAY_LEN(pools); i++) {
                while (pools[i].n > 0)
                        stack_unmap(&pools[i].stacks[--pools[i].n].s);
                freep(&pools[i].stacks);
                pools[i].stacks = NULL;
        }
}
