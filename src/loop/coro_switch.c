/* glibc's checked longjmp takes a jump to another stack for an attack: off in this file only. */
#undef _FORTIFY_SOURCE

#include "loop/coro_switch.h"

#include <stdlib.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* The scheduler's side. One loop thread per process, hence static. */
static struct {
        sigjmp_buf env;
        const void *lo;
        size_t size;
        void *fake_stack;
        struct coro_ctx *starting;
        ucontext_t uc;
} sched;

/* fake_stack NULL: the stack that is left will never be entered again. */
static inline void switch_begins(void **fake_stack, const void *lo, size_t size)
{
#ifdef WITH_ASAN
        __sanitizer_start_switch_fiber(fake_stack, lo, size);
#else
        (void) fake_stack;
        (void) lo;
        (void) size;
#endif
}

static inline void switch_ended(void *fake_stack, const void **lo, size_t *size)
{
#ifdef WITH_ASAN
        __sanitizer_finish_switch_fiber(fake_stack, lo, size);
#else
        (void) fake_stack;
        (void) lo;
        (void) size;
#endif
}

static void trampoline(void)
{
        struct coro_ctx *c = sched.starting;

        switch_ended(NULL, &sched.lo, &sched.size);
        c->entry(c->arg);
        abort();
}

static void begin(struct coro_ctx *c)
{
        c->begun = true;
        if (getcontext(&sched.uc) < 0)
                abort();
        sched.uc.uc_stack.ss_sp = c->lo;
        sched.uc.uc_stack.ss_size = c->size;
        sched.uc.uc_link = NULL;
        makecontext(&sched.uc, trampoline, 0);
        sched.starting = c;
        setcontext(&sched.uc);
        abort();
}

void ctx_enter(struct coro_ctx *c)
{
        switch_begins(&sched.fake_stack, c->lo, c->size);
        if (sigsetjmp(sched.env, 0) == 0) {
                if (c->begun)
                        siglongjmp(c->env, 1);
                begin(c);
        }
        switch_ended(sched.fake_stack, NULL, NULL);
}

void ctx_leave(struct coro_ctx *c, bool last)
{
        c->sp = __builtin_frame_address(0);
        switch_begins(last ? NULL : &c->fake_stack, sched.lo, sched.size);
        if (sigsetjmp(c->env, 0) == 0)
                siglongjmp(sched.env, 1);
        switch_ended(c->fake_stack, NULL, NULL);
}
