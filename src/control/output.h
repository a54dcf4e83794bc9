/*
 * output: one stream of a command's output as it comes: head and tail for the model, all of it for outputUrl.
 * Small outputs stay in memory; once one grows past OUTPUT_INLINE, or is no UTF-8, all bytes go to an object as well.
 * Of a box that holds secrets everything is masked before anything else is done with it (base/mask.h).
 */
#pragma once

#include "base/mask.h"
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
        struct mask_stream mask;
        /* While it is not known what lies between what comes: the bytes as they came (output_hold). */
        struct buf held;
        bool holding;
};

void output_init(struct output *o, struct objects *objects);
void output_done(struct output *o);
void output_add(struct output *o, const void *p, size_t n);
/* Before the first byte: values that m knows go. NULL: none do. Takes a reference of its own. */
void output_mask(struct output *o, struct mask *m);
/* The last byte came: what a mask held back is added. */
void output_end(struct output *o);
/*
 * For what a box's daemon kept, which may have a gap that is only told of behind it: keeps up to OUTPUT_HELD bytes as
 * they come, until output_release says where the gap is (as output_omitted does) and on which sides (MASK_CUT_…) all of
 * it is cut off. Both do nothing but output_omitted without a mask.
 */
#define OUTPUT_HELD ((size_t) 256 << 10)
void output_hold(struct output *o);
void output_release(struct output *o, uint64_t omitted, uint64_t at, unsigned cuts);
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
