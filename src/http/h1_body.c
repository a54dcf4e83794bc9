/* Body decoding: a state machine over single bytes of framing, with runs of body bytes handed out as they lie. */
#include "http/h1.h"

#include "http/h1_chars.h"

#include <errno.h>

enum {
        SIZE, /* hex digits; b->ext counts them */
        EXT,  /* chunk extension; b->ext counts its bytes */
        SIZE_LF,
        DATA,
        DATA_CR,
        DATA_LF,
        TRAILER, /* at the start of a line; from here on b->ext counts all trailer bytes */
        TRAILER_NAME,
        TRAILER_VALUE,
        TRAILER_LF,
        END_LF,
};

#define SIZE_DIGITS_MAX 16

void h1_body_init(struct h1_body *b, const struct h1_head *h)
{
        *b = (struct h1_body){ .framing = h->framing, .state = SIZE };
        if (h->framing == H1_LENGTH)
                b->left = h->length;
        b->done = h->framing == H1_NO_BODY || (h->framing == H1_LENGTH && !h->length);
}

/* RFC 9112 §7.1: chunk-size [chunk-ext] CRLF. White space after the size is refused: some readers stop there, some do
 * not. */
static int size_byte(struct h1_body *b, char c)
{
        int digit = h1_hex(c);

        if (digit >= 0) {
                if (++b->ext > SIZE_DIGITS_MAX || b->size > INT64_MAX / 16)
                        return -EPROTO; /* §7.1: must anticipate large numerals */
                b->size = b->size * 16 + (uint64_t) digit;
                return 0;
        }
        if (!b->ext)
                return -EPROTO;
        b->ext = 0;
        if (c == '\r')
                b->state = SIZE_LF;
        else if (c == ';')
                b->state = EXT;
        else
                return -EPROTO;
        return 0;
}

/* RFC 9112 §7.1.1: extensions are ignored; §7.1.1 also asks for a limit on their length. */
static int ext_byte(struct h1_body *b, char c)
{
        if (c == '\r')
                b->state = SIZE_LF;
        else if (!h1_is_field(c) || ++b->ext > H1_CHUNK_EXT_MAX)
                return -EPROTO;
        return 0;
}

static int size_end(struct h1_body *b, char c)
{
        if (c != '\n')
                return -EPROTO;
        b->left = b->size;
        b->state = b->size ? DATA : TRAILER;
        b->size = b->ext = 0;
        return 0;
}

/* RFC 9112 §7.1.2. Field lines are held to the same grammar as those of a head, then dropped (§7.1.2 allows it). */
static int trailer_byte(struct h1_body *b, char c)
{
        if (++b->ext > H1_TRAILER_MAX)
                return -EPROTO;
        switch (b->state) {
        case TRAILER:
                if (c != '\r' && !h1_is_token(c))
                        return -EPROTO;
                b->state = c == '\r' ? END_LF : TRAILER_NAME;
                return 0;
        case TRAILER_NAME:
                if (c == ':')
                        b->state = TRAILER_VALUE;
                else if (!h1_is_token(c))
                        return -EPROTO;
                return 0;
        case TRAILER_VALUE:
                if (c == '\r')
                        b->state = TRAILER_LF;
                else if (!h1_is_field(c))
                        return -EPROTO;
                return 0;
        default: /* TRAILER_LF, END_LF */
                if (c != '\n')
                        return -EPROTO;
                b->done = b->state == END_LF;
                b->state = TRAILER;
                return 0;
        }
}

static int framing_byte(struct h1_body *b, char c)
{
        switch (b->state) {
        case SIZE:
                return size_byte(b, c);
        case EXT:
                return ext_byte(b, c);
        case SIZE_LF:
                return size_end(b, c);
        case DATA_CR: /* RFC 9112 §7.1: chunk-data CRLF */
                b->state = DATA_LF;
                return c == '\r' ? 0 : -EPROTO;
        case DATA_LF:
                b->state = SIZE;
                return c == '\n' ? 0 : -EPROTO;
        default:
                return trailer_byte(b, c);
        }
}

long h1_body_feed(struct h1_body *b, const char *p, size_t n, const char **data, size_t *len)
{
        size_t i = 0;

        *data = p;
        *len = 0;
        if (b->done)
                return 0;
        if (b->framing == H1_UNTIL_CLOSE) {
                *len = n;
                return (long) n;
        }
        while (b->framing == H1_CHUNKED && b->state != DATA && i < n && !b->done) {
                int r = framing_byte(b, p[i++]);

                if (r < 0)
                        return r;
        }
        if (b->done || i == n)
                return (long) i;
        size_t run = n - i;
        if (run > b->left)
                run = (size_t) b->left;
        *data = p + i;
        *len = run;
        b->left -= run;
        if (!b->left) {
                b->done = b->framing == H1_LENGTH;
                b->state = DATA_CR;
        }
        return (long) (i + run);
}
