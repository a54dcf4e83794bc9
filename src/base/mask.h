/*
 * mask: takes known secret values out of text, however the text is cut into pieces, in time linear in its length.
 *
 * A struct mask is what to look for: each value as it is, each long line of it, and its usual spellings
 * (docs/secrets.md lists them). It is reference counted, immutable, and wiped when the last reference goes. A struct
 * mask_stream is one text being masked; it holds a reference. Every byte that any occurrence covers goes, and "[secret
 * NAME]" stands for each run of occurrences that overlap. With no mask (NULL) nothing is looked at or copied. Nothing
 * here suspends.
 */
#pragma once

#include "base/buf.h"

struct mask;
struct mask_value {
        const char *name;
        struct str value;
};

#define MASK_VALUE_MIN ((size_t) 6) /* a shorter one would be found everywhere by chance */
#define MASK_FRAGMENT_MIN 4         /* of a value that a cut of the text went through */
#define MASK_PREFIX_MIN 8           /* the same where a text may have been cut anywhere */

/* Values shorter than MASK_VALUE_MIN are passed over. -E2BIG: too many or too long for what one mask may take. */
int mask_new(const struct mask_value *values, size_t n, struct mask **ret);
struct mask *mask_ref(struct mask *m); /* NULL gives NULL */
void mask_unref(struct mask *m);
void mask_unrefp(struct mask **m);
#define _cleanup_mask_ _cleanup_(mask_unrefp)

/* Where masked bytes go. */
typedef void (*mask_sink)(const void *p, size_t n, void *arg);

struct mask_span {
        uint64_t start, end;
        unsigned rule;
        bool told; /* its marker went out */
};

struct mask_stream {
        struct mask *m;
        size_t slice;            /* bytes looked at in one go */
        struct buf pend;         /* bytes that may belong to an occurrence which is not complete */
        uint64_t from, at;       /* the place of the first of them, and of the next byte */
        uint32_t state[2];       /* of the two automata */
        unsigned char last;      /* the byte before `at` */
        bool prefixes;           /* MASK_CUT_INSIDE */
        struct mask_span *spans; /* what is to go of pend: in order, without overlaps */
        size_t n_spans, first_span, cap_spans;
        uint64_t *breaks; /* line breaks in pend that wrapped spellings are read across */
        size_t n_breaks, cap_breaks;
};

void mask_begin(struct mask_stream *s, struct mask *m); /* takes a reference of its own */
void mask_feed(struct mask_stream *s, const void *p, size_t n, mask_sink sink, void *arg);
/* The end of the text: what was held back goes out. cut: the text goes on elsewhere, so the beginning of a value at its
 * end is masked too. */
void mask_end(struct mask_stream *s, bool cut, mask_sink sink, void *arg);
void mask_done(struct mask_stream *s); /* wipes what was held back */

enum { MASK_CUT_BEFORE = 1, MASK_CUT_AFTER = 2, MASK_CUT_INSIDE = 4 };
/* One text as a whole, appended to out: 0, -ENOBUFS. cuts says on which sides it was cut off: fragments of values are
 * masked there as well. Inside: it may quote others that were cut, so the beginnings of values go wherever they are,
 * from MASK_PREFIX_MIN characters on. m must not be NULL. */
int mask_text(struct mask *m, struct str text, unsigned cuts, struct buf *out);
/* The masked text, allocated. A copy of it when m is NULL; NULL for NULL. */
char *mask_cstr(struct mask *m, const char *text);
char *mask_error(struct mask *m, const char *text); /* the same for a message that quotes, and cuts what it quotes */
/* One JSON value, its strings masked (not its keys, and nothing across two of them): 0, -EINVAL, -ENOBUFS. */
int mask_json(struct mask *m, struct str text, struct buf *out);
/* Whether something in it would be masked. False when m is NULL. */
bool mask_hits(struct mask *m, struct str text);
