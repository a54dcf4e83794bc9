/*
 * Deadlines: a binary heap of embedded nodes above one uv timer. A libuv timer per parked coroutine would cost 152
 * bytes and a close callback each.
 */
#include <stdlib.h>

#include "loop/loop_impl.h"

static struct {
        struct tmo **at; /* heap order by (due, seq); at[0] is position 1 */
        size_t n, cap;
        uint64_t seq;
        uv_timer_t timer;
        int64_t armed; /* what the uv timer is set to; -1 when stopped */
        bool firing;
} heap;

static bool before(const struct tmo *a, const struct tmo *b)
{
        return a->due < b->due || (a->due == b->due && a->seq < b->seq);
}

static void put(size_t i, struct tmo *t)
{
        heap.at[i] = t;
        t->pos = i + 1;
}

static void sift_up(size_t i, struct tmo *t)
{
        while (i > 0 && before(t, heap.at[(i - 1) / 2])) {
                put(i, heap.at[(i - 1) / 2]);
                i = (i - 1) / 2;
        }
        put(i, t);
}

static void sift_down(size_t i, struct tmo *t)
{
        for (;;) {
                size_t k = 2 * i + 1;

                if (k >= heap.n)
                        break;
                if (k + 1 < heap.n && before(heap.at[k + 1], heap.at[k]))
                        k++;
                if (!before(heap.at[k], t))
                        break;
                put(i, heap.at[k]);
                i = k;
        }
        put(i, t);
}

static void on_timer(uv_timer_t *timer)
{
        int64_t now = loop_now();

        (void) timer;
        heap.armed = -1;
        /* A callback may set new deadlines; those of 0 ms wait for the next turn, or a loop of them would block
         * polling. libuv runs every due timer before it goes on: hence the next arming by tmo_sync, before polling. */
        heap.firing = true;
        uint64_t newest = heap.seq;
        while (heap.n > 0 && heap.at[0]->due <= now && heap.at[0]->seq <= newest) {
                struct tmo *t = heap.at[0];

                tmo_stop(t);
                t->fn(t);
        }
        heap.firing = false;
}

static void arm(int64_t due)
{
        int64_t now = loop_now();

        uv_timer_start(&heap.timer, on_timer, due > now ? (uint64_t) (due - now) : 0, 0);
        heap.armed = due;
}

int tmo_init(void)
{
        heap.armed = -1;
        return uv_timer_init(loop_uv(), &heap.timer);
}

void tmo_start(struct tmo *t, int64_t after_ms)
{
        tmo_stop(t);
        if (heap.n == heap.cap) {
                heap.cap = heap.cap ? heap.cap * 2 : 64;
                heap.at = xrealloc(heap.at, heap.cap * sizeof(struct tmo *));
        }
        /* The cached time is that of the turn's start: after a long computation a deadline counted from it would be
         * early. */
        uv_update_time(loop_uv());
        if (after_ms < 0)
                after_ms = 0;
        int64_t now = loop_now();
        t->due = after_ms > INT64_MAX - now ? INT64_MAX : now + after_ms;
        t->seq = ++heap.seq;
        heap.n++;
        sift_up(heap.n - 1, t);
        if (!heap.firing && (heap.armed < 0 || t->due < heap.armed))
                arm(t->due);
}

void tmo_stop(struct tmo *t)
{
        if (t->pos == 0)
                return;
        size_t i = t->pos - 1;
        struct tmo *last = heap.at[--heap.n];

        t->pos = 0;
        if (last == t)
                return;
        if (i > 0 && before(last, heap.at[(i - 1) / 2]))
                sift_up(i, last);
        else
                sift_down(i, last);
}

void tmo_sync(void)
{
        if (heap.n == 0) {
                if (heap.armed >= 0)
                        uv_timer_stop(&heap.timer);
                heap.armed = -1;
        } else if (heap.armed != heap.at[0]->due) {
                arm(heap.at[0]->due);
        }
}

void tmo_done(void)
{
        for (size_t i = 0; i < heap.n; i++)
                heap.at[i]->pos = 0;
        free(heap.at);
        heap.at = NULL;
        heap.n = heap.cap = 0;
        heap.armed = -1;
}
