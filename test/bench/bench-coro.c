/*
 * bench-coro: what coroutines and streams cost. Prints one figure a line; not a test.
 *
 *   bench-coro [ROUNDS]
 *
 * Switching is measured against swapcontext in the same run, so the ratio holds on a busy machine too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucontext.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/clock.h"
#include "loop/coro_switch.h"
#include "loop/loop.h"
#include "loop/stream.h"
#include "loop/wait.h"

#define STACK ((size_t) 64 << 10)
#define PARKED 10000

static size_t rounds = 2000000;

static void say(const char *what, double value, const char *unit)
{
        printf("%-52s %10.1f %s\n", what, value, unit);
}

static double ns_each(int64_t since_us, size_t n)
{
        return (double) (clock_us() - since_us) * 1000 / (double) n;
}

/* The bare switch, both ways */

static struct coro_ctx ctx;

static void ctx_main(void *arg)
{
        (void) arg;
        for (size_t i = 0; i < rounds; i++)
                ctx_leave(&ctx, false);
        ctx_leave(&ctx, true);
}

static double own_switch(void)
{
        struct cstack s;
        int64_t t;

        if (cstack_get(&s, STACK) < 0)
                abort();
        ctx = (struct coro_ctx){ .lo = s.lo, .size = s.size, .entry = ctx_main };
        t = clock_us();
        for (size_t i = 0; i < rounds + 1; i++)
                ctx_enter(&ctx);
        double ns = ns_each(t, rounds);
        cstack_put(&s);
        return ns;
}

static ucontext_t uc_main, uc_coro;

static void swap_main(void)
{
        for (;;)
                swapcontext(&uc_coro, &uc_main);
}

static double swapcontext_switch(void)
{
        struct cstack s;
        int64_t t;

        if (cstack_get(&s, STACK) < 0)
                abort();
        getcontext(&uc_coro);
        uc_coro.uc_stack.ss_sp = s.lo;
        uc_coro.uc_stack.ss_size = s.size;
        makecontext(&uc_coro, swap_main, 0);
        t = clock_us();
        for (size_t i = 0; i < rounds / 10; i++)
                swapcontext(&uc_main, &uc_coro);
        double ns = ns_each(t, rounds / 10);
        cstack_put(&s);
        return ns;
}

/* Through the scheduler */

static void yield_often(void *arg)
{
        size_t n = *(size_t *) arg;

        for (size_t i = 0; i < n; i++)
                (void) coro_yield();
}

static void nothing(void *arg)
{
        (void) arg;
}

static void sleep_often(void *arg)
{
        size_t n = *(size_t *) arg;

        for (size_t i = 0; i < n; i++)
                (void) coro_park(0);
}

static void scheduled(void)
{
        size_t each = rounds / 1000;
        int64_t t = clock_us();

        for (int i = 0; i < 1000; i++)
                coro_start(yield_often, &each, 0, "yield");
        loop_run();
        say("yield, 1000 coroutines", ns_each(t, each * 1000), "ns");
        t = clock_us();
        for (int i = 0; i < 1000; i++)
                coro_start(sleep_often, &each, 0, "sleep");
        loop_run();
        say("wait that times out, 1000 coroutines", ns_each(t, each * 1000), "ns");
        t = clock_us();
        for (size_t i = 0; i < rounds / 20; i++) {
                coro_start(nothing, NULL, 0, "nothing");
                if (i % 10 == 9)
                        loop_run();
        }
        loop_run();
        say("start and end, warm stacks", ns_each(t, rounds / 20), "ns");
}

/* Memory */

static size_t status_kib(const char *key)
{
        FILE *f = fopen("/proc/self/status", "re");
        char line[256];
        size_t kib = 0;

        while (f && fgets(line, sizeof(line), f))
                if (strncmp(line, key, strlen(key)) == 0)
                        kib = (size_t) strtoul(line + strlen(key), NULL, 10);
        if (f)
                fclose(f);
        return kib;
}

static size_t heap_bytes(void)
{
#ifdef __GLIBC__
        return mallinfo2().uordblks;
#else
        return 0;
#endif
}

static struct waitq never;

static void park(void *arg)
{
        (void) arg;
        (void) waitq_wait(&never, 1000000);
}

static void parked_memory(void)
{
        struct coro **c = calloc(PARKED, sizeof(struct coro *));
        size_t rss = status_kib("VmRSS:"), pte = status_kib("VmPTE:");

        waitq_init(&never);
        for (int i = 0; i < PARKED; i++)
                c[i] = coro_start(park, NULL, 0, "parked");
        loop_defer((void (*)(void *)) loop_stop, NULL);
        loop_run();
        loop_defer((void (*)(void *)) loop_stop, NULL);
        loop_run();
        say("a parked coroutine, resident", (double) (status_kib("VmRSS:") - rss) * 1024 / PARKED, "bytes");
        say("its page tables", (double) (status_kib("VmPTE:") - pte) * 1024 / PARKED, "bytes");
        for (int i = 0; i < PARKED; i++)
                coro_cancel(c[i]);
        loop_run();
        free(c);
}

static void ignore(void *arg, const void *p, size_t n)
{
        (void) arg;
        (void) p;
        (void) n;
}

static void passive_memory(void)
{
        enum { N = 4000 };
        struct stream **s = calloc(N, sizeof(struct stream *));
        size_t n = 0;
        size_t heap = heap_bytes();

        while (n + 2 <= N) {
                int fds[2];

                if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                        break;
                if (stream_from_fd(fds[0], &s[n], NULL) < 0 || stream_from_fd(fds[1], &s[n + 1], NULL) < 0)
                        abort();
                stream_passive(s[n], ignore, NULL, NULL);
                stream_passive(s[n + 1], ignore, NULL, NULL);
                n += 2;
        }
        loop_defer((void (*)(void *)) loop_stop, NULL);
        loop_run();
        say("an idle passive stream, heap", (double) (heap_bytes() - heap) / (double) n, "bytes");
        for (size_t i = 0; i < n; i++)
                stream_close(s[i]);
        loop_run();
        free(s);
}

/* Streams */

static void echo(void *arg)
{
        struct stream *s = arg;
        char b[4096];
        ssize_t n;

        while ((n = stream_read(s, b, sizeof(b), -1)) > 0)
                if (stream_write(s, b, (size_t) n, -1) < 0)
                        break;
        stream_close(s);
}

static void ping(void *arg)
{
        size_t n = rounds / 40;
        char b[64] = { 0 };
        int64_t t = clock_us();

        for (size_t i = 0; i < n; i++)
                if (stream_write(arg, b, sizeof(b), -1) < 0 || stream_read_full(arg, b, sizeof(b), -1) < 0)
                        abort();
        say("64 bytes there and back, one process", ns_each(t, n), "ns");
        stream_close(arg);
}

static void drain(void *arg)
{
        static char b[65536];
        size_t total = 0;
        int64_t t = clock_us();
        ssize_t n;

        while ((n = stream_read(arg, b, sizeof(b), -1)) > 0)
                total += (size_t) n;
        say("one way, 64 KiB blocks", (double) total / (double) (clock_us() - t), "MB/s");
        stream_close(arg);
}

static void pour(void *arg)
{
        static char b[65536];

        for (size_t i = 0; i < rounds / 100; i++)
                if (stream_write(arg, b, sizeof(b), -1) < 0)
                        abort();
        (void) stream_flush(arg, -1);
        stream_close(arg);
}

static void pair(struct stream **a, struct stream **b)
{
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 || stream_from_fd(fds[0], a, NULL) < 0 ||
            stream_from_fd(fds[1], b, NULL) < 0)
                abort();
}

int main(int argc, char **argv)
{
        struct stream *a, *b;
        struct err e;

        if (argc > 1)
                rounds = (size_t) strtoul(argv[1], NULL, 10);
        if (rounds < 2000 || loop_init(&e) < 0)
                return 2;
        double own = own_switch(), swap = swapcontext_switch();
        say("switch there and back", own, "ns");
        say("the same by swapcontext", swap, "ns");
        say("times faster", swap / own, "x");
        parked_memory();
        passive_memory();
        scheduled();
        pair(&a, &b);
        coro_start(echo, b, 0, "echo");
        coro_start(ping, a, 0, "ping");
        loop_run();
        pair(&a, &b);
        coro_start(drain, b, 0, "drain");
        coro_start(pour, a, 0, "pour");
        loop_run();
        loop_done();
        return 0;
}
