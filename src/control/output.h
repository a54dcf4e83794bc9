/*
 * output: one stream of a command's output as it comes: head and tail for the model, all of it for outputUrl.
 * Small outputs stay in memory; once one grows past OUTPUT_INLINE, or is no UTF-8, all bytes go to an object as well.
 */
#pragma once

#include "control/control.h"

#define OUTPUT_INLINE ((size_t) 24 << 10) /* kept in memory */
#define OUTPUT_STORED_MAX ((int64_t) 1 << 30)

struct output {
        struct objects *objects;
        struct buf head; /* the first half */
        char *tail;      /* ring of the last half, allocated when the head is full */
        uint64_t total;
        /* Bytes a box's daemon already left out before we saw them, and where in what came. */
        uint64_t omitted_before, omitted_at;
        const char *why_omitted;
        struct object_writer object;
        bool storing;
        bool store_failed;
        bool linked; /* the object is complete and may be linked again */
};

void output_init(struct output *o, struct objects *objects);
void output_done(struct output *o);
void output_add(struct output *o, const void *p, size_t n);
/* Says that the box's daemon left bytes out, at a place in what was added: what was added is no whole then. */
void output_omitted(struct output *o, uint64_t bytes, uint64_t at);
/* Takes an object that holds every byte, for output_link; w is consumed. */
void output_take_whole(struct output *o, struct object_writer *w);
/* A copy of what src keeps at this moment, into a fresh output; it has no object. */
void output_snapshot(struct output *o, const struct output *src);
/* Text of at most limit bytes (before JSON escaping): all, or head and tail around a line that says what is missing.
 * True when something is. */
bool output_text(const struct output *o, size_t limit, struct buf *out);
bool output_exact(const struct output *o); /* the text of output_text(OUTPUT_INLINE) holds every byte as it was */
/* Ends the object: a link to all bytes, or NULL when none can be given (why says so). */
char *output_link(struct output *o, struct control *c, const char *account, const char *box, const char *name,
                  const char **why);
