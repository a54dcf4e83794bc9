/*
 * Streams between stream_close_after_flush and their end. What is queued drains; then, on TCP, writing ends and what
 * the peer still sends is read away until it has noticed: a close with unread input would make the kernel throw the
 * answer away (RFC 9112 §9.6).
 */
#include <errno.h>
#include <stdlib.h>

#include "loop/loop_impl.h"
#include "loop/stream_impl.h"

#define AFTER_FLUSH_MS 2000
#define FLUSH_DEFAULT_MS 60000

struct lingering {
        struct tmo limit;
        struct list node;
        struct stream *s;
        bool flushed;
};

static struct list all = { &all, &all };

static void limit_passed(struct tmo *t)
{
        stream_close_now(container_of(t, struct lingering, limit)->s);
}

void linger_cancel(struct stream *s)
{
        struct lingering *l = s->linger;

        if (!l)
                return;
        s->linger = NULL;
        tmo_stop(&l->limit);
        list_remove(&l->node);
        free(l);
}

void linger_begin(struct stream *s, int64_t timeout_ms)
{
        struct lingering *l = xcalloc(1, sizeof(*l));

        l->limit.fn = limit_passed;
        l->s = s;
        s->linger = l;
        list_append(&all, &l->node);
        tmo_start(&l->limit, timeout_ms < 0 ? FLUSH_DEFAULT_MS : timeout_ms);
        (void) stream_shutdown(s);
        stream_kick(s, 0);
}

void linger_step(struct stream *s)
{
        struct lingering *l = s->linger;
        char *scratch = loop_scratch();
        bool ended = s->in_err != 0;

        for (int i = 0; i < 4 && !ended; i++) {
                ssize_t r = s->ops->lingers ? s->ops->try_read(s, scratch, LOOP_SCRATCH) : 0;

                if (r == -EAGAIN)
                        break;
                ended = r <= 0;
        }
        if (ended)
                s->in_err = STREAM_EOF;
        if (!l->flushed && s->shut_done) {
                int64_t left = l->limit.due - loop_now();

                l->flushed = true;
                if (left > AFTER_FLUSH_MS)
                        tmo_start(&l->limit, AFTER_FLUSH_MS);
        }
        if (s->out_err || (s->shut_done && ended))
                stream_close_now(s);
}

void linger_end_all(void)
{
        list_for_each_safe (it, &all)
                stream_close_now(list_entry(it, struct lingering, node)->s);
}
